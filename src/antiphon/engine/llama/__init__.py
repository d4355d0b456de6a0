"""llama.cpp in this process: `load` a GGUF model, get a backend."""

from antiphon.engine.llama.backend import LlamaBackend, load
from antiphon.engine.llama.errors import ModelLoadError

__all__ = ["LlamaBackend", "ModelLoadError", "load"]
