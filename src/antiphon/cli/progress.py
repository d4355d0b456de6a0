"""Shows how far a download is: a bar on a terminal, elsewhere a line per tenth."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from antiphon.hub import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

WORDS = {
    "waiting": "Waiting for another process that fetches",
    "downloading": "Downloading",
    "unpacking": "Unpacking",
    "rewriting": "Rewriting",
}


class ProgressDisplay:
    """A context manager; inside it, call it with every `Progress`. Writes to `stream`, standard error as a rule."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bars: Bars | None = None
        self._task: TaskID | None = None
        self._stage = ""
        self._tenth = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, progress: Progress) -> None:
        new_stage = progress.stage + progress.name != self._stage
        self._stage = progress.stage + progress.name
        if self._stream.isatty():
            self._draw(progress, new_stage)
        else:
            self._write(progress, new_stage)

    def _draw(self, progress: Progress, new_stage: bool) -> None:
        bars = self._bars = self._bars or _bars(self._stream)
        if new_stage:
            if self._task is not None:
                bars.remove_task(self._task)
            self._task = bars.add_task(f"{WORDS[progress.stage]} {progress.name}", total=None)
        assert self._task is not None
        bars.update(self._task, completed=progress.done, total=progress.total)

    def _write(self, progress: Progress, new_stage: bool) -> None:
        tenth = 10 * progress.done // progress.total if progress.total else 0
        if not new_stage and tenth <= self._tenth:
            return
        self._tenth = tenth
        share = f" {10 * tenth} % of {progress.total / 1e6:.0f} MB" if progress.total else ""
        self._stream.write(f"{WORDS[progress.stage]} {progress.name}{share}\n")
        self._stream.flush()


def _bars(stream: TextIO) -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    # Names come from strangers' repositories: they are no markup.
    text = TextColumn("{task.description}", markup=False)
    bars = Bars(text, BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=Console(file=stream))
    bars.start()
    return bars
