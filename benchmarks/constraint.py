"""What constraints cost: steps of the engine with and without a grammar, by turns, in one process.

    .venv/bin/python -m benchmarks.constraint MODEL.gguf [--sequences 1 8] [--rounds 5]

Each case decodes the same number of tokens in the same context. Prints the median step, and how much longer it takes
than without a grammar. Cases: free text beside tools that may be called (a mask of nearly every token), a call of a
strict tool, a JSON object, a JSON string that goes on and on, and free text up to a closing marker of thinking. Where
an answer is finished before the others, it begins again: compiling is not counted, it is printed apart.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from antiphon.engine.backend import Batch, Entry, Sampled, Trim
from antiphon.engine.base import Sampling
from antiphon.engine.llama import LlamaBackend, load
from antiphon.text.constraint import Grammars
from antiphon.text.dialects import DIALECTS
from antiphon.text.dialects.grammar import Wanted, output_grammar
from antiphon.text.messages import ToolDefinition

STEPS = 60
PROMPT = 55  # tokens

WEATHER = ToolDefinition(
    "get_weather",
    "",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "unit": {"enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city", "days", "unit"],
        "additionalProperties": False,
    },
    strict=True,
)
MANY = [WEATHER, *(ToolDefinition(f"tool_{n}", "", WEATHER.parameters, strict=True) for n in range(30))]
LONG_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

WANTED: Mapping[str, Wanted] = {
    "free text beside 31 strict tools": Wanted(tools=MANY, calls="allowed", thinking="possible"),
    "a required call of one of 31 strict tools": Wanted(tools=MANY, calls="required"),
    "any JSON object": Wanted(schema={"type": "object"}),
    "a long JSON string": Wanted(schema=LONG_TEXT),
    "open thinking before a call": Wanted(tools=[WEATHER], calls="required", thinking="open"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    # Decoding belongs to one thread: the first that computes gets the OpenMP team.
    thread = threading.Thread(target=_run, args=(args.model, args.sequences, args.rounds))
    thread.start()
    thread.join()


def _run(model: Path, sequences: list[int], rounds: int) -> None:
    backend = load(model, lanes=max(sequences), context_length=512, cells=512 * max(sequences))
    grammars = Grammars(backend.tokenizer)
    start = time.perf_counter()
    grammars.constraint("%llguidance {}\nstart: /a/\n")
    print(f"the vocabulary's tables: {time.perf_counter() - start:.2f} s")
    texts: dict[str, str | None] = {"no grammar": None}
    for name, wanted in WANTED.items():
        texts[name] = output_grammar(DIALECTS["hermes"], wanted, backend.tokenizer.control)
        start = time.perf_counter()
        grammars.constraint(texts[name] or "")
        first, start = time.perf_counter() - start, time.perf_counter()
        grammars.constraint(texts[name] or "")
        print(f"compiling {name}: {first * 1000:.1f} ms, the second time {(time.perf_counter() - start) * 1000:.2f}")
    for count in sequences:
        times: dict[str, list[float]] = {name: [] for name in texts}
        for _ in range(rounds):
            for name, text in texts.items():
                times[name].append(_step(backend, grammars, text, count))
        base = statistics.median(times["no grammar"])
        for name, found in times.items():
            median = statistics.median(found)
            print(f"{count} sequences, {name}: {median * 1000:.2f} ms a step, {(median / base - 1) * 100:+.1f} %")


def _step(backend: LlamaBackend, grammars: Grammars, text: str | None, count: int) -> float:
    """Seconds of a step, the mean of `STEPS`."""

    def sampling(lane: int) -> Sampling:
        return Sampling(seed=lane, constraint=grammars.constraint(text) if text is not None else None)

    samplers = [backend.sampler(sampling(lane), [1]) for lane in range(count)]
    tokens = [200] * count
    for lane in range(count):
        prompt = list(range(100 + lane, 100 + lane + PROMPT))
        backend.execute(Batch((Trim(lane, 0),), (Entry(lane, 0, prompt),)))
    start = time.perf_counter()
    for at in range(STEPS):
        entries = tuple(Entry(lane, PROMPT + at, [tokens[lane]], samplers[lane]) for lane in range(count))
        for lane, sampled in enumerate(backend.execute(Batch((), entries))):
            assert isinstance(sampled, Sampled), sampled
            tokens[lane] = sampled.token
            if sampled.end:
                samplers[lane] = backend.sampler(sampling(lane), [1])
    return (time.perf_counter() - start) / STEPS


if __name__ == "__main__":
    main()
