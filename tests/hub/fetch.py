"""`python -m tests.hub.fetch NAME CACHE [STAGE]`: resolves a model in a process of its own, which tests can kill.

NAME may also be `rewritten:package==version`: what an alias of that package would be.

Writes one JSON line for each new stage and one for the result or the error. At the first report of STAGE it waits for
a line on standard input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from antiphon.hub import HubError, ModelName, Progress, parse_model_name, resolve
from antiphon.hub.names import Rewritten, Wheel


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def parse(text: str) -> ModelName:
    scheme, _, rest = text.partition(":")
    if scheme != "rewritten":
        return parse_model_name(text)
    source = parse_model_name(f"pypi:{rest}").source
    assert isinstance(source, Wheel)
    return ModelName(text, Rewritten(source), "an-alias")


def main(name: str, cache: str, hold: str = "") -> int:
    seen: list[str] = []

    def report(progress: Progress) -> None:
        if progress.stage not in seen:
            seen.append(progress.stage)
            say(stage=progress.stage, name=progress.name, total=progress.total)
            if progress.stage == hold:
                sys.stdin.readline()

    try:
        file = resolve(parse(name), cache=Path(cache), progress=report)
    except HubError as error:
        say(error=str(error))
        return 1
    say(path=str(file.path), name=file.name, digest=file.digest, size=file.size)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
