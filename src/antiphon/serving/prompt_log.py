"""`--log-prompts`: what the model was really asked, a JSON line for each request.

For tests of templates and chaining, and for people who wonder. It holds all that users wrote: the operator's choice.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from antiphon.text.prompt import Prompt


class PromptLog:
    """Appends to a file; each line is there when `write` returns. Raises `OSError` at once if it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, response_id: str, prompt: Prompt) -> None:
        """Adds `{"response_id", "prompt", "tokens"}`: the answer's id, the rendered text, the number of its tokens."""
        line = {"response_id": response_id, "prompt": prompt.text, "tokens": len(prompt.tokens)}
        self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        self._file.close()
