"""How a command ends badly: one line on standard error and an exit code."""

from __future__ import annotations

FAILURE = 1
USAGE = 2  # the shell's convention for wrong arguments
INTERRUPTED = 130  # 128 + SIGINT


class CommandError(Exception):
    """The command cannot go on. The text is one line for the person at the terminal."""

    exit_code = FAILURE


class UsageError(CommandError):
    """An argument or variable is wrong; the text names it."""

    exit_code = USAGE
