"""`--log-prompts`: what the model was really asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from antiphon.serving.service import Options, Service
from tests.server import scripted_server


async def test_every_prompt_is_logged_with_the_id_of_its_answer(tmp_path: Path) -> None:
    log = tmp_path / "prompts.jsonl"
    log.write_text('"kept"\n')
    async with scripted_server(tmp_path, [{"steps": ["a"]}], options=Options(log_prompts=log)) as server:
        answers = [await server.create({"input": text}) for text in ("one", "é<|im_end|>")]
    kept, *lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert kept == "kept"
    assert [line["response_id"] for line in lines] == [answer["id"] for answer in answers]
    assert lines[0]["prompt"] == "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n"
    assert [line["tokens"] for line in lines] == [answer["usage"]["input_tokens"] for answer in answers]
    assert "\né<|im_end|><|im_end|>\n" in lines[1]["prompt"]


def test_a_log_that_cannot_be_written_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        Service(Options(log_prompts=tmp_path))
