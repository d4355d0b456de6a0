"""When a saved state may be restored: what it depends on, as one name.

The model counts with every byte. A part of each tensor, or size and time of the file, would be had for nothing, and
would take a model for another one whose difference lies elsewhere: an adapter merged into a few rows, a file patched in
place. Keys and values of the other would then be restored, and nothing would tell. SHA-256, because processors have
instructions for it: 1.6 GB a second on one core of a small server, 0.8 for BLAKE2b.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from antiphon.engine.llama.errors import ModelLoadError
from antiphon.engine.llama.gguf import ModelFile

# Raise it when what a parcel holds changes in a way that nothing below tells.
FORMAT = 1

# Fields of `llama_context_params` that change what a key or value is, or how it is written. How many cells, lanes and
# threads there are does not.
SETTINGS = (
    "type_k",
    "type_v",
    "flash_attn_type",  # without it values are stored transposed
    "kv_unified",
    "swa_full",
    "attention_type",
    "rope_scaling_type",
    "rope_freq_base",
    "rope_freq_scale",
    "yarn_ext_factor",
    "yarn_attn_factor",
    "yarn_beta_fast",
    "yarn_beta_slow",
    "yarn_orig_ctx",
)

# 128 bits: enough for no two to meet by chance.
DIGEST_BYTES = 16


def fingerprint(build: str, file: ModelFile, window: int, params: Any) -> str:
    """Hexadecimal. `build` names the versions of llama.cpp, `window` is the model's sliding one, `params` are the
    context's. Reads the model's files; raises `ModelLoadError` if they cannot be read any more."""
    settings = [f"{name}={getattr(params, name)}" for name in SETTINGS]
    # LongRoPE turns keys by other factors in a cache that is longer than the model's original context.
    stretched = 0 < file.original_context < params.n_ctx
    parts = [f"format={FORMAT}", build, digest(file.parts), f"window={window}", f"stretched={stretched}", *settings]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=DIGEST_BYTES).hexdigest()


def digest(parts: Iterable[Path]) -> str:
    """Names a model by the content of its files, wherever they lie. Hexadecimal."""
    whole = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        try:
            with part.open("rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise ModelLoadError(f"{part} cannot be read: {error.strerror}") from error
    return whole.hexdigest()
