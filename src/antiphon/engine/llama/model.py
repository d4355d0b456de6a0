"""Loading a model's weights."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from antiphon.engine.llama.binding import Library, one_line
from antiphon.engine.llama.errors import ModelLoadError
from antiphon.engine.llama.gguf import ModelFile

Progress = Callable[[float], None]

# Longest value of a text in the metadata that we ask for; names are far shorter.
TEXT_BYTES = 256


class Model:
    """Loaded weights and their vocabulary. Freed when the last holder (backend, tokenizer) lets go of it."""

    def __init__(
        self,
        library: Library,
        file: ModelFile,
        gpu_layers: int,
        progress: Progress | None,
        *,
        vocabulary_only: bool = False,
    ) -> None:
        """`vocabulary_only`: metadata and vocabulary without the weights, for looking at them."""
        self.library = library
        self.file = file
        self.handle = _load(library, file, gpu_layers, progress, vocabulary_only)
        self.vocab = library.c.llama_model_get_vocab(self.handle)
        self._require_generation()

    @property
    def name(self) -> str:
        return self._text("general.name") or self.file.path.stem

    @property
    def chat_template(self) -> str | None:
        c = self.library.c
        return self.library.text(c.llama_model_chat_template(self.handle, self.library.ffi.NULL)) or None

    @property
    def tokenizer(self) -> str:
        """Which of llama.cpp's tokenizers the vocabulary is for, such as "gpt2", byte-level BPE."""
        return self._text("tokenizer.ggml.model")

    @property
    def can_trim(self) -> bool:
        """A recurrent state is the sum of all that was read: nothing can be taken out of it. And what has left a
        sliding window may be overwritten, so a prefix would not be whole."""
        return not self._recurrent and not self.window

    # Asked for each sequence of each step, so kept.
    @functools.cached_property
    def window(self) -> int:
        """Positions that the layers with a sliding window see, the token's own among them; 0: there is none."""
        return int(self.library.c.llama_model_n_swa(self.handle))

    def first_needed(self, position: int) -> int:
        """From where on the cache must hold what is before a position, for a token there to be computed."""
        if self._recurrent:
            return max(0, position - 1)
        return max(0, position - self.window + 1) if self.window else 0

    @functools.cached_property
    def _recurrent(self) -> bool:
        c = self.library.c
        return bool(c.llama_model_is_recurrent(self.handle) or c.llama_model_is_hybrid(self.handle))

    def _text(self, key: str) -> str:
        buffer = self.library.ffi.new("char[]", TEXT_BYTES)
        found = self.library.c.llama_model_meta_val_str(self.handle, key.encode(), buffer, TEXT_BYTES)
        return self.library.text(buffer) if found > 0 else ""

    def _require_generation(self) -> None:
        c = self.library.c
        generates = c.llama_model_has_decoder(self.handle) and not (
            c.llama_model_has_encoder(self.handle) or c.llama_model_is_diffusion(self.handle)
        )
        if not generates or not c.llama_vocab_n_tokens(self.vocab):
            raise ModelLoadError(f"{self.file.path.name} is not a model that writes text token by token")


def _load(library: Library, file: ModelFile, gpu_layers: int, progress: Progress | None, vocabulary_only: bool) -> Any:
    params = library.c.llama_model_default_params()
    params.n_gpu_layers = gpu_layers
    params.vocab_only = vocabulary_only
    failure: list[BaseException] = []

    def report(fraction: float, _user_data: Any) -> bool:
        # An exception cannot pass through llama.cpp: it ends the loading, and is raised behind it.
        try:
            if progress is not None:
                progress(fraction)
        except BaseException as error:
            failure.append(error)
        return not failure

    callback = library.ffi.callback("bool(float, void *)", report)
    params.progress_callback = callback
    library.log.first_error = ""
    handle = library.ffi.gc(
        library.c.llama_model_load_from_file(os.fsencode(file.path), params), library.c.llama_model_free
    )
    if failure:
        raise failure[0]
    if not handle:
        reason = one_line(library.log.first_error) or "no reason given"
        raise ModelLoadError(f"llama.cpp cannot load {file.path.name}: {reason}")
    return handle
