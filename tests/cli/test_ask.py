"""`antiphon ask`: what goes where, and that every bad end is one line and exit 1."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.cli.ask import DIM, PLAIN, show, show_events
from antiphon.cli.errors import CommandError
from tests.cli.canned_server import CannedServer, canned_server
from tests.cli.processes import antiphon, refused

DONE = b"data: [DONE]\n\n"


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def delta(kind: str, text: str) -> bytes:
    return event(f"response.{kind}.delta", delta=text)


def ended(status: str, **fields: Any) -> bytes:
    kind = status if status in ("completed", "failed") else "incomplete"
    return event(f"response.{kind}", response={"status": status, **fields})


CALL = {"type": "function_call", "name": "get_weather"}
ANSWER = [
    event("response.created", response={"status": "in_progress"}),
    event("response.output_item.added", item={"type": "reasoning"}),
    delta("reasoning_text", "They ask"),
    delta("reasoning_text", " about it"),
    event("response.output_item.done", item={"type": "reasoning"}),
    event("response.output_item.added", item={"type": "message"}),
    delta("output_text", "Let me "),
    delta("output_text", "look."),
    event("response.output_item.done", item={"type": "message"}),
    event("response.output_item.added", item=CALL),
    delta("function_call_arguments", '{"city": '),
    delta("function_call_arguments", '"Paris"}'),
    event("response.output_item.done", item=CALL),
    ended("completed"),
    DONE,
]
SHOWN = 'Let me look.\nget_weather({"city": "Paris"})\n'


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def server() -> Iterator[CannedServer]:
    with canned_server() as server:
        server.pieces = list(ANSWER)
        yield server


def test_the_answer_alone_goes_to_standard_output(server: CannedServer) -> None:
    result = antiphon("ask", "Weather?", "--url", server.url)
    assert (result.returncode, result.stdout) == (0, SHOWN)
    assert result.stderr == "They ask about it\n"
    assert server.requests == [{"input": "Weather?", "model": "first", "stream": True}]
    assert server.paths == ["/v1/models", "/v1/responses"]


def test_everything_that_can_be_asked_for(server: CannedServer) -> None:
    arguments = ["--instructions", "Be brief", "--max-output-tokens", "9", "--temperature", "0.5", "--model", "second"]
    variables = {"ANTIPHON_URL": f"{server.url}/v1/", "ANTIPHON_API_KEY": "k1,k2"}
    assert antiphon("ask", "-", *arguments, stdin="Größe?\n", variables=variables).returncode == 0
    assert server.requests == [
        {
            "input": "Größe?\n",
            "model": "second",
            "instructions": "Be brief",
            "max_output_tokens": 9,
            "temperature": 0.5,
            "stream": True,
        }
    ]
    assert (server.paths, server.keys) == (["/v1/responses"], ["Bearer k1"])


def test_raw_events_are_passed_on_byte_by_byte(server: CannedServer) -> None:
    odd = [b": comment\r\n\r\n", *ANSWER]
    server.pieces = odd
    result = antiphon("ask", "x", "--url", server.url, "--events")
    assert result.returncode == 0
    assert result.stdout.encode() == b"".join(odd).replace(b"\r\n", b"\n")  # text mode translates
    out, err = io.BytesIO(), io.StringIO()
    show_events(odd, out, err)
    assert (out.getvalue(), err.getvalue()) == (b"".join(odd), "")


def test_cut_anywhere_the_same_is_shown() -> None:
    whole = b"".join(ANSWER)
    for size in (1, 2, 7, 64, len(whole)):
        out, err = io.StringIO(), io.StringIO()
        show((whole[at : at + size] for at in range(0, len(whole), size)), out, err)
        assert (out.getvalue(), err.getvalue()) == (SHOWN, "They ask about it\n")


def test_on_a_terminal_thinking_is_dim_and_control_characters_do_nothing() -> None:
    out, err = Terminal(), Terminal()
    show([delta("reasoning_text", "hm"), delta("output_text", "a\x1b[2J\tb\r\x07é\n"), ended("completed")], out, err)
    assert err.getvalue() == f"{DIM}hm{PLAIN}\n"
    assert out.getvalue() == "a[2J\tbé\n"
    plain = io.StringIO()
    show([delta("output_text", "a\x1b[2J"), ended("completed")], plain, io.StringIO())
    assert plain.getvalue() == "a\x1b[2J\n", "a pipe gets what the model wrote"


def test_an_incomplete_answer_is_noted(server: CannedServer) -> None:
    reason = {"reason": "max_output_tokens"}
    server.pieces = [delta("output_text", "half"), ended("incomplete", incomplete_details=reason)]
    for extra in ([], ["--events"]):
        result = antiphon("ask", "x", "--url", server.url, *extra)
        assert result.returncode == 0
        assert result.stderr == "antiphon: the answer is incomplete: max_output_tokens\n"


BAD_ENDS = {
    "failed": ([ended("failed", error={"code": "server_error", "message": "It broke."})], "failed: It broke."),
    "cancelled": ([ended("cancelled")], "the response was cancelled"),
    "nothing": ([], "the stream ended before the response did"),
    "no terminal event": ([delta("output_text", "x"), DONE], "the stream ended before the response did"),
    "cut inside an event": ([ANSWER[0][:-9]], "the stream ended before the response did"),
    "error event": ([event("error", error={"message": "No room."})], "the server sent an error: No room."),
    "flat error event": ([event("error", message="No room.", code=None)], "the server sent an error: No room."),
    "no JSON": ([b"data: {\n\n"], "an event that cannot be read"),
    "no object": ([b"data: 7\n\n"], "an event that cannot be read"),
    "no delta": ([event("response.output_text.delta")], "an event that cannot be read"),
    "no response": ([event("response.completed")], "an event that cannot be read"),
    "not UTF-8": ([b'data: {"type": "\xff"}\n\n'], "an event that cannot be read"),
}


@pytest.mark.parametrize(("pieces", "message"), BAD_ENDS.values(), ids=BAD_ENDS.keys())
def test_bad_ends(pieces: list[bytes], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        show(pieces, io.StringIO(), io.StringIO())


def test_raw_events_also_end_badly() -> None:
    for name in ("failed", "nothing", "error event", "no JSON"):
        pieces, message = BAD_ENDS[name]
        out = io.BytesIO()
        with pytest.raises(CommandError, match=message):
            show_events(pieces, out, io.StringIO())
        assert out.getvalue() == b"".join(pieces)


def test_a_failure_after_text_ends_the_line_first(server: CannedServer) -> None:
    server.pieces = [delta("output_text", "partial"), ended("failed", error={"message": "It\nbroke."})]
    result = antiphon("ask", "x", "--url", server.url)
    assert (result.returncode, result.stdout) == (1, "partial\n")
    assert result.stderr == "antiphon: the response failed: It broke.\n"


def test_a_connection_that_is_cut(server: CannedServer) -> None:
    server.length = 10_000
    result = antiphon("ask", "x", "--url", server.url, "--model", "m")
    # All of the answer arrived, so the missing rest does not matter ...
    assert (result.returncode, result.stdout) == (0, SHOWN)
    server.pieces = ANSWER[:8]
    result = antiphon("ask", "x", "--url", server.url, "--model", "m")
    # ... and here it does.
    assert (result.returncode, result.stdout) == (1, "Let me look.\n")
    assert result.stderr.splitlines()[-1].startswith("antiphon: ")


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, b'{"error": {"message": "A key is needed.", "code": null}}', "the server answered 401: A key is needed."),
        (404, b"<html>nginx</html>", "the server answered 404: Not Found"),
        (503, b'{"error": null}', "the server answered 503: Service Unavailable"),
        (302, b"", "the server answered 302: Found"),
    ],
)
def test_http_errors(server: CannedServer, status: int, body: bytes, message: str) -> None:
    server.status, server.pieces = status, [body]
    assert refused(antiphon("ask", "x", "--url", server.url, "--model", "m"), 1) == message


def test_no_server_no_model_no_text(server: CannedServer) -> None:
    message = refused(antiphon("ask", "x", "--url", "http://127.0.0.1:9"), 1)
    assert message == "no server answers at http://127.0.0.1:9; start one with: antiphon serve"
    server.models = b'{"data": []}'
    assert "lists no model" in refused(antiphon("ask", "x", "--url", server.url), 1)
