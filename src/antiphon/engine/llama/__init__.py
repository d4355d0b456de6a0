"""llama.cpp in this process: `load` a GGUF model, get a backend; or `describe` it without its weights."""

from antiphon.engine.llama.backend import LlamaBackend
from antiphon.engine.llama.errors import ModelLoadError
from antiphon.engine.llama.loading import Description, describe, load

__all__ = ["Description", "LlamaBackend", "ModelLoadError", "describe", "load"]
