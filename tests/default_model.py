"""The real default model for the suite: fetched and rewritten once in the user's cache, then found there."""

from __future__ import annotations

import os
from pathlib import Path

from antiphon.hub import DEFAULT_MODEL, default_cache, parse_model_name, resolve


def default_model_path() -> Path:
    """The GGUF of the default model. The first call on a machine downloads about 93 MB and writes 145."""
    name = parse_model_name(DEFAULT_MODEL)
    return resolve(name, cache=default_cache(os.environ), progress=lambda progress: None).path
