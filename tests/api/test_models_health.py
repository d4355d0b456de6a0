"""The models and the health of the server, from loading to the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from antiphon.engine.base import Engine
from antiphon.engine.script_file import load_script
from antiphon.engine.scripted import ScriptedEngine
from antiphon.serving.service import LoadProgress, Options, Report
from tests.server import error_of, running_server, script, scripted_server

TURNS = [{"steps": ["Hello"]}]


class SlowLoader:
    """Loads when it is told to."""

    def __init__(self, path: Path) -> None:
        self.reported = asyncio.Event()
        self.go_on = asyncio.Event()
        self._path = path

    async def __call__(self, report: Report) -> Engine:
        report(LoadProgress("downloading", 0.25))
        self.reported.set()
        await self.go_on.wait()
        return ScriptedEngine(load_script(self._path))


async def test_while_the_model_loads_everything_answers_503_and_health_tells_how_far_it_is(tmp_path: Path) -> None:
    loader = SlowLoader(script(tmp_path, TURNS))
    async with running_server(loader, wait=False) as server:
        await loader.reported.wait()
        health = await server.client.get("/health")
        assert health.status_code == 503
        assert health.headers["retry-after"].isdecimal()
        told = health.json()
        assert told.pop("error")["code"] == "server_unavailable"
        assert told == {"status": "unavailable", "stage": "downloading", "progress": 0.25}
        for method, path in (("GET", "/v1/models"), ("GET", "/v1/models/scripted-1"), ("POST", "/v1/responses")):
            answer = await server.client.request(method, path, content=b"{" * 10)
            assert answer.status_code == 503, path
            assert answer.headers["retry-after"].isdecimal()
            assert error_of(answer)["code"] == "server_unavailable"
        loader.go_on.set()
        while (health := await server.client.get("/health")).status_code != 200:
            pass
        assert health.json() == {"status": "ok", "stage": "ready", "progress": 1.0}
        assert "retry-after" not in health.headers
        assert (await server.create({"input": "Hi"}))["status"] == "completed"


async def test_a_server_that_is_stopped_while_it_loads_stops(tmp_path: Path) -> None:
    loader = SlowLoader(script(tmp_path, TURNS))
    async with running_server(loader, wait=False) as server:
        await loader.reported.wait()
    assert not server.service.ready


async def test_what_the_loader_raises_ends_the_server(tmp_path: Path) -> None:
    async def load(report: Report) -> Engine:
        raise FileNotFoundError("no such model")

    with pytest.raises(FileNotFoundError, match="no such model"):
        async with running_server(load):
            pass


async def test_the_models_are_listed_and_found(tmp_path: Path) -> None:
    options = Options(names=("alias", "owner/model"))
    async with scripted_server(tmp_path, TURNS, options=options) as server:
        listed = (await server.client.get("/v1/models", params={"client_version": "0.171.0"})).json()
        assert listed["object"] == "list"
        assert listed["models"] == []
        assert [model["id"] for model in listed["data"]] == ["scripted-1", "alias", "owner/model"]
        for model in listed["data"]:
            assert set(model) == {"id", "object", "created", "owned_by"}
            assert (model["object"], type(model["created"])) == ("model", int)
            found = await server.client.get(f"/v1/models/{model['id']}")
            assert found.json() == model


async def test_an_unknown_model_is_a_404_that_names_those_served(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, TURNS, options=Options(names=("alias",))) as server:
        answers = [
            await server.client.get("/v1/models/gpt-x"),
            await server.client.get("/v1/models/"),
            await server.post({"input": "Hi", "model": "gpt-x"}),
            await server.post({"input": "Hi", "model": "gpt-x", "stream": True}),
            await server.post({"input": "Hi", "model": "ALIAS" * 10_000}),
        ]
        assert server.running == 0
        for name in ("alias", "scripted-1", None):
            assert (await server.create({"input": "Hi", "model": name}))["model"] == "scripted-1"
    for answer in answers:
        assert answer.status_code == 404
        error = error_of(answer)
        assert error["code"] == "model_not_found"
        assert error["param"] == "model"
        assert len(error["message"]) < 2000
    assert "scripted-1" in error_of(answers[0])["message"]
    assert "alias" in error_of(answers[0])["message"]


async def test_the_root_tells_what_answers(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, TURNS) as server:
        assert (await server.client.get("/")).json()["name"] == "antiphon"
        head = await server.client.head("/")
    assert (head.status_code, head.content) == (200, b"")


async def test_a_server_whose_engine_has_died_says_so(tmp_path: Path) -> None:
    engine = ScriptedEngine(load_script(script(tmp_path, TURNS)))

    async def load(report: Report) -> Engine:
        return engine

    async with running_server(load) as server:
        assert (await server.client.get("/health")).status_code == 200
        await engine.aclose()
        health = await server.client.get("/health")
        assert health.status_code == 503
        assert "engine has failed" in health.json()["error"]["message"]
