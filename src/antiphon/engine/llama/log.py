"""llama.cpp's own log, brought to `logging`: the process's stderr belongs to the server.

All of it is for debugging: what matters to anybody is raised as an error of ours, in one line, and llama.cpp warns of
things that are everyday life to a scheduler (a full cache, an aborted step).
"""

from __future__ import annotations

import logging

# llama.cpp prints whole tables in pieces without a line end; a line longer than this is cut.
LINE_LIMIT = 1_000

# Below `logging.DEBUG`: llama.cpp's debug level names every node of a graph.
VERBOSE = 5

# enum ggml_log_level; 5 continues the line before.
CONTINUED = 5
ERROR = 4
DEBUG = 1

logger = logging.getLogger(__name__)


class LogLines:
    """Puts the pieces of a log together to lines. `first_error` is the first error line since somebody
    emptied it: llama.cpp names the cause first, then what could not be done because of it."""

    def __init__(self) -> None:
        self.first_error = ""
        self._level = 0
        self._line = ""

    def feed(self, level: int, text: str) -> None:
        if level != CONTINUED:
            self._level = level
        *lines, self._line = (self._line + text).split("\n")
        self._line = self._line[:LINE_LIMIT]
        for line in filter(None, lines):
            self._emit(line[:LINE_LIMIT])

    def _emit(self, line: str) -> None:
        if self._level == ERROR:
            self.first_error = self.first_error or line
        logger.log(VERBOSE if self._level == DEBUG else logging.DEBUG, "%s", line)
