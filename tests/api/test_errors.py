"""One shape of errors, on every route and for every fault, with the request's id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from starlette.routing import Route

from antiphon.api.app import routes
from antiphon.api.gate import MAX_REQUEST_ID
from antiphon.api.settings import ApiSettings
from antiphon.engine.base import EngineBusy, EngineFailure
from antiphon.serving.service import Service
from tests.engines import RefusingEngine
from tests.server import RunningServer, error_of, running_server, scripted_server, untouched

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
SECRET = "/srv/models/secret.gguf is gone"
TURNS: list[dict[str, Any]] = [{"when": "boom", "steps": ["a", {"fail": SECRET}]}, {"steps": ["Hello"]}]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    async with scripted_server(tmp_path_factory.mktemp("errors"), TURNS) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def server(shared: RunningServer) -> AsyncIterator[RunningServer]:
    async with untouched(shared):
        yield shared


def paths() -> list[str]:
    """Every path of the application, and some that it does not have."""
    served = routes(Service(), ApiSettings())
    assert all(isinstance(route, Route) for route in served)
    known = sorted({route.path.replace("{name:path}", "no-such-model") for route in served})
    return [
        *known,
        "/nowhere",
        "/v1",
        "/v1/responses/resp_1",
        "/v1/responses/resp_1/cancel",
        "/%2e%2e/etc/passwd",
        "/%ff",
    ]


async def test_every_route_and_method_answers_in_one_shape(server: RunningServer) -> None:
    for path in paths():
        for method in METHODS:
            answer = await server.client.request(method, path)
            where = f"{method} {path}: {answer.status_code}"
            assert answer.headers["x-request-id"], where
            assert answer.status_code < 500, where
            if answer.status_code >= 400 and method != "HEAD":
                error_of(answer)
            if answer.status_code == 405:
                assert answer.headers["allow"], where
    assert (await server.create({"input": "Hi"}))["status"] == "completed"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("GET", "/v1/responses", 405, "method_not_allowed"),
        ("DELETE", "/v1/responses", 405, "method_not_allowed"),
        ("GET", "/v1/models/no-such-model", 404, "model_not_found"),
        ("POST", "/v1/responses", 400, "invalid_json"),
    ],
)
async def test_the_code_says_what_is_wrong(
    server: RunningServer, method: str, path: str, status: int, code: str
) -> None:
    answer = await server.client.request(method, path)
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)


async def test_a_websocket_upgrade_is_answered_with_426(server: RunningServer) -> None:
    headers = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    answer = await server.client.get("/v1/responses", headers=headers)
    assert answer.status_code == 426
    assert error_of(answer)["code"] == "upgrade_required"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fault_of_ours_is_a_500_without_its_words(stream: bool) -> None:
    engine = RefusingEngine(RuntimeError(SECRET))
    async with running_server(engine.load) as server:
        answer = await server.post({"input": "Hi", "stream": stream}, headers={"x-request-id": "mine-1"})
        assert (await server.client.get("/health")).status_code == 200
    assert answer.status_code == 500
    error = error_of(answer)
    assert (error["type"], error["code"]) == ("server_error", "server_error")
    assert "mine-1" in error["message"]
    assert_tells_nothing(answer.text)


async def test_the_failure_of_a_whole_answer_is_a_500_without_the_engine_s_words(server: RunningServer) -> None:
    answer = await server.post({"input": "boom"})
    assert server.running == 0
    assert (await server.create({"input": "Hi"}))["status"] == "completed"
    assert answer.status_code == 500
    assert error_of(answer)["code"] == "server_error"
    assert_tells_nothing(answer.text)


def assert_tells_nothing(text: str) -> None:
    assert "secret" not in text
    assert "Traceback" not in text
    assert ".py" not in text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_queue_is_a_429_that_says_when_to_come_back(stream: bool) -> None:
    engine = RefusingEngine(EngineBusy(retry_after=7))
    async with running_server(engine.load) as server:
        answer = await server.post({"input": "Hi", "stream": stream})
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "7"
    assert error_of(answer)["code"] == "rate_limit_exceeded"


async def test_an_engine_that_is_gone_is_a_503_that_says_when_to_come_back() -> None:
    engine = RefusingEngine(EngineFailure(SECRET))
    async with running_server(engine.load) as server:
        answer = await server.post({"input": "Hi"})
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert_tells_nothing(error_of(answer)["message"])


async def test_a_closed_engine_fails_the_answer_not_the_server(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, TURNS) as server:
        await server.engine.aclose()
        assert (await server.post({"input": "Hi"})).status_code == 503
        assert b"response.failed" in await server.stream({"input": "Hi"})


async def test_every_answer_has_a_request_id_of_its_own(server: RunningServer) -> None:
    answers = [await server.client.get(path) for path in ("/", "/health", "/v1/models", "/nowhere")]
    answers += [await server.post({"input": "Hi", "stream": stream}) for stream in (False, True)]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == len(answers)
    assert all(id.startswith("req_") and len(id) >= 28 for id in ids)


@pytest.mark.parametrize("own", ["mine-1", "A" * MAX_REQUEST_ID, "!~{}"])
async def test_a_client_s_own_request_id_is_echoed(server: RunningServer, own: str) -> None:
    for answer in await answers_of_all_kinds(server, own.encode()):
        assert answer.headers.get_list("x-request-id") == [own]


@pytest.mark.parametrize("own", [b"", b"A" * (MAX_REQUEST_ID + 1), b"two words", b"\xc3\xa9", b"a\tb"])
async def test_an_unfit_request_id_is_replaced(server: RunningServer, own: bytes) -> None:
    for answer in await answers_of_all_kinds(server, own):
        (given,) = answer.headers.get_list("x-request-id")
        assert given.startswith("req_")


async def answers_of_all_kinds(server: RunningServer, own: bytes) -> list[Any]:
    """A whole answer, a stream, a refusal and a path that is not there."""
    headers: Any = {b"x-request-id": own}
    return [
        await server.post({"input": "Hi"}, headers=headers),
        await server.post({"input": "Hi", "stream": True}, headers=headers),
        await server.post({}, headers=headers),
        await server.client.get("/nowhere", headers=headers),
    ]


async def test_a_client_that_leaves_while_it_sends_is_no_fault(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await server.create({"input": "Hi"}))["status"] == "completed"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
