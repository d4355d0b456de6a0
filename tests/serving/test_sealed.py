"""Reasoning that clients carry: what was sealed opens, nothing else does; and it takes part in the conversation."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from antiphon.serving.sealed import MAX_BLOB, NONCE_BYTES, PURPOSE, VERSION, NotSealedHere, Sealer
from antiphon.serving.service import Options, Service
from tests.server import RunningServer, error_of, scripted_server, text_of

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
NONCE = b"twelve bytes"


def counting(key: bytes = KEY) -> Sealer:
    """Its nonces are 0, 1, 2, ..."""
    numbers = count()
    return Sealer(key, lambda size: next(numbers).to_bytes(size, "big"))


def refused(blob: str, sealer: Sealer | None = None) -> bool:
    try:
        (sealer or Sealer(KEY)).open(blob)
    except NotSealedHere:
        return True
    return False


@pytest.mark.parametrize("text", ["", "a", "They ask.\n\n", "naïve 日本 🙂 \u2028\0", "x" * 100_000])
def test_what_was_sealed_opens(text: str) -> None:
    blob = Sealer(KEY).seal(text)
    assert Sealer(KEY).open(blob) == text
    assert len(base64.urlsafe_b64decode(blob)) == 1 + 12 + len(text.encode()) + 16
    assert set(blob) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=")


def test_a_blob_that_an_older_server_made_opens() -> None:
    """The format as it stands. One that replaces it must have another version, and leave this one readable."""
    blob = base64.urlsafe_b64encode(b"\x01" + NONCE + AESGCM(KEY).encrypt(NONCE, b"So.", b"\x01antiphon: reasoning"))
    assert Sealer(KEY).open(blob.decode()) == "So."
    assert Sealer(KEY, lambda size: NONCE[:size]).seal("So.") == blob.decode()


def test_each_blob_has_a_nonce_of_its_own() -> None:
    sealer = counting()
    blobs = [sealer.seal("a") for _ in range(3)]
    nonces = [base64.urlsafe_b64decode(blob)[1 : 1 + NONCE_BYTES] for blob in blobs]
    assert nonces == [number.to_bytes(NONCE_BYTES, "big") for number in range(3)]
    assert len({Sealer(KEY).seal("a") for _ in range(100)}) == 100


def test_no_character_of_a_blob_can_be_changed() -> None:
    blob = counting().seal("Hm")
    for at, character in enumerate(blob):
        for other in "AB-=":
            assert other == character or refused(blob[:at] + other + blob[at + 1 :]), (at, other)


def test_nothing_can_be_cut_off_or_added() -> None:
    blob = counting().seal("Hm")
    assert blob.endswith("=")
    assert all(refused(blob[:end]) for end in range(len(blob)))
    assert all(refused(blob[start:]) for start in range(1, len(blob)))
    assert all(refused(changed) for changed in (blob + "=", blob + "A", blob + "\n", " " + blob, blob * 2))


FOREIGN = [
    "",
    "c2VjcmV0",
    "gAAAAABm" + "x" * 92,
    "eyJhbGciOiJkaXIifQ..AAAAAAAAAAAA.AAAA.AAAA",
    "not base64",
    "schlüssel",
    "\0",
    "=" * 60,
    "A" * 60,
    base64.urlsafe_b64encode(VERSION).decode(),
    base64.urlsafe_b64encode(VERSION + NONCE).decode(),
    base64.urlsafe_b64encode(VERSION + NONCE + bytes(16)).decode(),
]


@pytest.mark.parametrize("blob", FOREIGN)
def test_what_others_made_is_refused(blob: str) -> None:
    assert refused(blob)


def test_another_key_opens_nothing() -> None:
    assert refused(Sealer(OTHER_KEY).seal("Hm"))
    assert refused(Sealer(KEY).seal("Hm"), Sealer(OTHER_KEY))


@pytest.mark.parametrize(
    ("version", "data"),
    [(b"\x02", b"\x02" + PURPOSE), (b"\x02", VERSION + PURPOSE), (VERSION, VERSION + b"compaction")],
)
def test_what_the_key_sealed_for_something_else_is_refused(version: bytes, data: bytes) -> None:
    sealed = AESGCM(KEY).encrypt(NONCE, b"Hm", data)
    assert refused(base64.urlsafe_b64encode(version + NONCE + sealed).decode())


def test_another_spelling_of_the_same_bytes_is_refused() -> None:
    sealer = counting()
    blob = next(blob for blob in (sealer.seal("Hm!") for _ in range(100)) if "-" in blob or "_" in blob)
    assert not refused(blob)
    assert refused(blob.replace("-", "+").replace("_", "/"))


def test_a_blob_has_a_limit() -> None:
    around = 1 + NONCE_BYTES + 16
    largest = MAX_BLOB // 4 * 3 - around
    for size, fits in ((largest, True), (largest + 1, False)):
        blob = Sealer(KEY).seal("x" * size)
        assert (len(blob) <= MAX_BLOB) == fits
        assert refused(blob) != fits


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_has_one_length(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Sealer(bytes(size))


# In a server

F: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
TURNS: list[dict[str, Any]] = [
    {"when": "weather", "steps": ["<think>They", " ask</think>", "<think>Well</think>", CALL]},
    {"when": "device", "steps": ["<think>They", {"fail": "lost"}]},
    {"steps": ["Fine."]},
]
ASKED: dict[str, Any] = {"role": "user", "content": "weather"}
INCLUDE: dict[str, Any] = {"include": ["reasoning.encrypted_content"], "tools": [F]}
SUMMARIES: list[dict[str, Any]] = [{}, {"reasoning": {"summary": "auto"}}]

each_summary = pytest.mark.parametrize("summary", SUMMARIES, ids=["text", "summary"])


@asynccontextmanager
async def sealing_server(folder: Path, key: bytes = KEY) -> AsyncIterator[RunningServer]:
    """A server that logs its prompts."""
    service = Service(Options(log_prompts=folder / "prompts.jsonl"), sealer=Sealer(key))
    async with scripted_server(folder, TURNS, service=service) as server:
        yield server


def prompts(folder: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in (folder / "prompts.jsonl").read_text().splitlines()]


def thoughts(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in items if item["type"] == "reasoning"]


def texts(items: list[dict[str, Any]], sealer: Sealer | None = None) -> list[str]:
    """What is sealed in the reasoning among the items."""
    return [(sealer or Sealer(KEY)).open(item["encrypted_content"]) for item in thoughts(items)]


def shown(item: dict[str, Any]) -> str:
    return "".join(part["text"] for part in item["content"] + item["summary"])


@each_summary
async def test_reasoning_is_sealed_if_that_was_asked_for(tmp_path: Path, summary: dict[str, Any]) -> None:
    async with sealing_server(tmp_path) as server:
        events = await server.events({"input": [ASKED], **INCLUDE, **summary})
        whole = await server.create({"input": [ASKED], **INCLUDE, **summary})
    added, done = ([e["item"] for e in events if e["type"].endswith(f"item.{kind}")] for kind in ("added", "done"))
    assert done == events[-1]["response"]["output"]
    for output in (done, whole["output"]):
        assert texts(output) == [shown(item) for item in thoughts(output)] == ["They ask", "Well"]
        assert ["encrypted_content" in item for item in output] == [True, True, False]
    assert not any("encrypted_content" in item for item in added)


@each_summary
async def test_reasoning_is_not_sealed_if_that_was_not_asked_for(tmp_path: Path, summary: dict[str, Any]) -> None:
    async with sealing_server(tmp_path) as server:
        events = await server.events({"input": [ASKED], "tools": [F], **summary})
    assert "encrypted_content" not in json.dumps(events)


async def test_reasoning_that_was_cut_off_is_sealed_as_far_as_it_came(tmp_path: Path) -> None:
    async with sealing_server(tmp_path) as server:
        for body in ({"input": "weather", "max_output_tokens": 11}, {"input": "device"}):
            last = (await server.events({**body, **INCLUDE}))[-1]["response"]
            assert last["status"] in ("incomplete", "failed")
            assert last["output"][0]["status"] == "incomplete"
            assert texts(last["output"]) == [shown(last["output"][0])] == ["They"]


def as_sent(item: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**item, **changes} if item["type"] == "reasoning" else item


CARRIED: dict[str, dict[str, Any]] = {
    "as it came": {},
    "as an SDK dumps it": {"status": None, "content": None},
    "without what it shows": {"content": [], "summary": []},
    "with nulls": {"content": None, "summary": None},
    "under an id of the client's": {"content": None, "id": "own-1"},
    "with something else in clear": {"content": [{"type": "reasoning_text", "text": "No!"}]},
    "with another summary": {"summary": [{"type": "summary_text", "text": "No!"}]},
}


@pytest.mark.parametrize("form", CARRIED)
@each_summary
async def test_sealed_reasoning_takes_part_in_the_next_turn(tmp_path: Path, summary: dict[str, Any], form: str) -> None:
    """However a client sends it back, the prompt is that of the text in clear."""
    async with sealing_server(tmp_path) as server:
        output = (await server.create({"input": [ASKED], **INCLUDE, **summary}))["output"]
        clear = [{key: value for key, value in item.items() if key != "encrypted_content"} for item in output]
        result = {"type": "function_call_output", "call_id": output[-1]["call_id"], "output": "18 degrees"}
        for items in (clear, [as_sent(item, **CARRIED[form]) for item in output]):
            assert text_of(await server.create({"input": [ASKED, *items, result], "tools": [F]})) == "Fine."
    first, second = prompts(tmp_path)[-2:]
    assert first == second
    assert "They ask\n\nWell" in first


async def test_servers_with_the_same_key_open_what_either_has_sealed(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("one", "same", "other")}
    for folder in folders.values():
        folder.mkdir()
    async with (
        sealing_server(folders["one"]) as one,
        sealing_server(folders["same"]) as same,
        sealing_server(folders["other"], OTHER_KEY) as other,
    ):
        output = (await one.create({"input": [ASKED], **INCLUDE}))["output"]
        body = {"input": [ASKED, *(as_sent(item, content=None) for item in thoughts(output))]}
        assert text_of(await same.create(body)) == "Fine."
        assert error_of(await other.post(body))["param"] == "input[1].encrypted_content"


@pytest.mark.parametrize("blob", ["", "gAAAA", "damaged", "cut", "of another key"])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_does_not_open_is_refused_naming_the_item(tmp_path: Path, blob: str, stream: bool) -> None:
    good = Sealer(KEY).seal("They ask")
    made = {"damaged": "B" + good[1:], "cut": good[:-4], "of another key": Sealer(OTHER_KEY).seal("They ask")}
    items = [{"type": "reasoning", "encrypted_content": text} for text in (good, made.get(blob, blob), "also wrong")]
    async with sealing_server(tmp_path) as server:
        answer = await server.post({"input": [ASKED, *items, ASKED], "stream": stream})
        error = error_of(answer)
        assert text_of(await server.create({"input": "Hi"})) == "Fine."
    assert (answer.status_code, error["code"]) == (400, "invalid_encrypted_content")
    assert (error["type"], error["param"]) == ("invalid_request_error", "input[2].encrypted_content")
    assert blob == "" or made.get(blob, blob) not in error["message"]


async def test_a_service_without_a_key_has_one_of_its_own(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, TURNS) as server:
        output = thoughts((await server.create({"input": [ASKED], **INCLUDE}))["output"])
        assert text_of(await server.create({"input": [ASKED, *output, ASKED | {"content": "Hi"}]})) == "Fine."
    assert all(refused(item["encrypted_content"]) for item in output)
