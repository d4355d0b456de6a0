"""llama.cpp in this process: `load` a GGUF model, get a backend."""

from antiphon.engine.llama.backend import LlamaBackend
from antiphon.engine.llama.errors import ModelLoadError
from antiphon.engine.llama.loading import load

__all__ = ["LlamaBackend", "ModelLoadError", "load"]
