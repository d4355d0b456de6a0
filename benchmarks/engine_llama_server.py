"""llama.cpp's own HTTP server, as the wheel `xllamacpp` brings it, in a process of its own.

    python engine_llama_server.py '{"model": "MODEL.gguf", "port": 8080, "n_threads": 2, "n_parallel": 8, ...}'

Every other key is an attribute of `xllamacpp.CommonParams`, which are the flags of `llama-server`. Ends on SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import xllamacpp  # type: ignore[import-untyped]


def params(settings: dict[str, Any]) -> xllamacpp.CommonParams:
    """Raises `AttributeError` for a setting that this build does not have."""
    made = xllamacpp.CommonParams()
    made.model.path = settings.pop("model")
    made.cpuparams.n_threads = made.cpuparams_batch.n_threads = settings.pop("n_threads")
    made.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    for name, value in settings.items():
        getattr(made, name)
        setattr(made, name, value)
    return made


def main() -> None:
    stop = {signal.SIGTERM, signal.SIGINT}
    # Blocked before the server starts its threads, which inherit this: the signal is then ours to wait for.
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    server = xllamacpp.Server(params(json.loads(sys.argv[1])))
    print(server.listening_address, flush=True)
    signal.sigwait(stop)
    del server


if __name__ == "__main__":
    main()
