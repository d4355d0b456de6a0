"""Who may come in: a key as Bearer or x-api-key, on every path but /health."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from antiphon.api.settings import ApiSettings
from antiphon.engine.base import Finish, Step
from antiphon.serving.service import Options
from tests.api.test_errors import METHODS, paths
from tests.engines import GivenEngine
from tests.server import RunningServer, error_of, running_server, scripted_server, untouched

KEY = "secret-key-1"
OTHER = "schlüssel-2"
TURNS = [{"steps": ["Hello"]}]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    settings = ApiSettings(api_keys=(KEY, OTHER))
    async with scripted_server(tmp_path_factory.mktemp("auth"), TURNS, settings=settings) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def server(shared: RunningServer) -> AsyncIterator[RunningServer]:
    async with untouched(shared):
        yield shared


@pytest_asyncio.fixture(loop_scope="module")
async def stranger(server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a key."""
    async with httpx.AsyncClient(base_url=server.url) as client:
        yield client


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("authorization", f"Bearer {KEY}"),
        ("authorization", f"bearer {KEY}"),
        ("authorization", f"BEARER   {KEY}"),
        ("authorization", f"Bearer {OTHER}"),
        ("x-api-key", KEY),
        ("X-Api-Key", OTHER),
    ],
)
async def test_each_key_opens_in_either_header(stranger: httpx.AsyncClient, header: str, value: str) -> None:
    for stream in (False, True):
        body = {"input": "Hi", "stream": stream}
        answer = await stranger.post("/v1/responses", json=body, headers=[(header.encode(), value.encode())])
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-nothing", ""),
        ("authorization", ""),
        ("authorization", "Bearer"),
        ("authorization", "Bearer wrong"),
        ("authorization", f"Bearer {KEY}x"),
        ("authorization", f"Bearer {KEY[:-1]}"),
        ("authorization", f"Basic {KEY}"),
        ("authorization", KEY),
        ("authorization", f"Bearer {KEY.upper()}"),
        ("authorization", "Bearer ключ"),
        ("x-api-key", ""),
        ("x-api-key", "wrong"),
        ("x-api-key", f"Bearer {KEY}"),
        ("x-api-key", "\u00ff" * 1000),
    ],
)
async def test_anything_else_is_a_401(
    server: RunningServer, stranger: httpx.AsyncClient, header: str, value: str
) -> None:
    answer = await stranger.post("/v1/responses", json={"input": "Hi"}, headers=[(header.encode(), value.encode())])
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    error = error_of(answer)
    assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
    assert KEY not in answer.text
    assert server.running == 0


async def test_without_a_key_only_health_is_open(stranger: httpx.AsyncClient) -> None:
    for path in paths():
        for method in METHODS:
            answer = await stranger.request(method, path)
            assert (answer.status_code == 401) == (path != "/health"), f"{method} {path}: {answer.status_code}"
            assert answer.headers["x-request-id"]
    assert (await stranger.get("/health")).json()["status"] == "ok"


async def test_without_keys_everybody_is_let_in(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with scripted_server(tmp_path_factory.mktemp("open"), TURNS) as server:
        answer = await server.post({"input": "Hi"}, headers={"authorization": "Bearer anything"})
    assert answer.status_code == 200


async def owners(options: Options, keys: tuple[str, ...], *shown: dict[str, str]) -> list[str]:
    """Whose prompts the engine takes them for: a request for each set of headers."""
    engine = GivenEngine([Step(tuple(b"a"), Finish.STOP)])
    async with running_server(engine.load, options=options, settings=ApiSettings(api_keys=keys)) as server:
        for headers in shown:
            encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
            async with httpx.AsyncClient(base_url=server.url) as client:
                answer = await client.post("/v1/responses", json={"input": "Hi"}, headers=encoded)
            assert answer.status_code == 200
    return [generation.owner for generation in engine.asked]


ONE, TWO = {"x-api-key": KEY}, {"authorization": f"Bearer {OTHER}"}


async def test_a_prompt_belongs_to_the_key_that_was_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    first, second, again = await owners(Options(), (KEY, OTHER), ONE, TWO, {"authorization": f"Bearer {KEY}"})
    assert first == again != second
    for owner in (first, second):
        assert re.fullmatch("[0-9a-f]{16}", owner)
        assert owner not in caplog.text
    assert KEY not in caplog.text
    restarted = await owners(Options(), ("another", OTHER, KEY), TWO, ONE)
    assert restarted == [second, first]


async def test_all_share_when_the_operator_says_so() -> None:
    assert await owners(Options(prefix_scope="server"), (KEY, OTHER), ONE, TWO) == ["", ""]


async def test_without_keys_prompts_are_everybody_s() -> None:
    assert await owners(Options(), (), {}, ONE) == ["", ""]
