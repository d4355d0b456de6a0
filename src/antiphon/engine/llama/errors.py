"""What this backend raises besides the errors of `engine.base` and `engine.backend`."""

from __future__ import annotations

from antiphon.engine.base import EngineFailure


class ModelLoadError(EngineFailure):
    """The library or a model cannot be used. The text is one line for whoever started the server."""
