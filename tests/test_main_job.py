"""The main job, as a newcomer sees it: `scripts/serve`, the real default model, real clients, real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from antiphon.check import assert_valid, check_response
from antiphon.engine.llama import load
from tests.default_model import default_model_path

ROOT = Path(__file__).parents[1]
QUESTION = "What is the capital of France?"
BRIEF = "Be brief."  # with it the model answers in one sentence
START_LIMIT = 120.0  # seconds; only a bound for a machine that fetches the model first


class Serving:
    """`scripts/serve` in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str, announcement: str, prompts: Path) -> None:
        self.process = process
        self.url = url
        self.announcement = announcement
        self.prompts = prompts

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(ROOT / ".venv/bin/antiphon"), "ask", "--url", self.url, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    prompts = tmp_path_factory.mktemp("serve") / "prompts.jsonl"
    # Prefixes stay in their cells: where those are changes the last digits of logits, and with them what a seed gives.
    command = [str(ROOT / "scripts/serve"), "--port", "0", "--log-prompts", str(prompts), "--prefix-ram", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})
    try:
        announcement = _announcement(process)
        found = re.search(r"http://127\.0\.0\.1:\d+", announcement)
        assert found, announcement
        yield Serving(process, found[0], announcement, prompts)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        assert process.stdout is not None
        process.stdout.close()


def _announcement(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    text, deadline = "", time.monotonic() + START_LIMIT
    for line in process.stdout:
        text += line
        if "curl" in line or time.monotonic() > deadline:
            break
    return text


@pytest.fixture
def client(serving: Serving) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{serving.url}/v1", api_key="unused", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def count_tokens() -> Iterator[Any]:
    """How many tokens the model's own tokenizer makes of a prompt."""
    backend = load(default_model_path(), context_length=512, lanes=1)
    yield lambda text: len(backend.tokenizer.encode(text, control=True))
    backend.close()


def test_the_curl_line_can_be_pasted(serving: Serving) -> None:
    line = next(line.strip() for line in serving.announcement.splitlines() if line.strip().startswith("curl"))
    done = subprocess.run(["bash", "-c", f"{line} -s"], capture_output=True, timeout=60)
    assert_valid(done.stdout)


def test_ask_streams_an_answer(serving: Serving) -> None:
    done = serving.ask(QUESTION, "--instructions", BRIEF, "--temperature", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Paris" in done.stdout


def test_ask_prints_the_raw_events(serving: Serving) -> None:
    done = serving.ask(QUESTION, "--events", "--temperature", "0", "--max-output-tokens", "40")
    assert_valid(done.stdout.encode())
    assert done.stdout.count("response.output_text.delta") > 4


def test_usage_is_exact(serving: Serving, count_tokens: Any) -> None:
    body = {
        "input": QUESTION,
        "temperature": 0,
        "max_output_tokens": 60,
        "include": ["message.output_text.logprobs"],
    }
    answer = httpx.post(f"{serving.url}/v1/responses", json=body, timeout=60).json()
    assert check_response(answer) == []
    prompt = json.loads(serving.prompts.read_text().splitlines()[-1])
    assert prompt["response_id"] == answer["id"]
    part = answer["output"][0]["content"][0]
    usage = answer["usage"]
    assert usage["input_tokens"] == prompt["tokens"] == count_tokens(prompt["prompt"])
    assert usage["output_tokens"] == len(part["logprobs"]) == count_tokens(part["text"])
    assert bytes(byte for entry in part["logprobs"] for byte in entry["bytes"]).decode() == part["text"]


def test_the_output_limit_is_exact(serving: Serving) -> None:
    body = {"input": QUESTION, "temperature": 0, "max_output_tokens": 3, "stream": True}
    stream = httpx.post(f"{serving.url}/v1/responses", json=body, timeout=60).content
    assert_valid(stream)
    last = json.loads(stream.decode().split("data: ")[-2].split("\n")[0])["response"]
    assert (last["status"], last["usage"]["output_tokens"]) == ("incomplete", 3)


def test_the_openai_client(client: OpenAI) -> None:
    request: dict[str, Any] = {"model": "smollm2", "input": QUESTION, "instructions": BRIEF, "temperature": 0}
    whole = client.responses.create(**request)
    with client.responses.stream(**request) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text
    assert "Paris" in whole.output_text
    assert "Paris" in final.output_text
    assert final.usage is not None
    assert final.usage.input_tokens_details.cached_tokens > 0, "the prompt was computed before"


def test_the_same_seed_gives_the_same_answer(client: OpenAI) -> None:
    def answer(seed: int) -> str:
        response = client.responses.create(
            model="smollm2", input="Tell a story.", max_output_tokens=16, extra_body={"seed": seed}
        )
        return response.output_text

    # The first answer computes the prompt in one batch, later ones only its last token: kernels round differently.
    answer(7)
    assert answer(7) == answer(7) != answer(8)
