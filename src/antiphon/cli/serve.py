"""`antiphon serve`: takes the port at once, then loads the model while `/health` already answers."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

from antiphon.api.server import serve as run_service
from antiphon.api.settings import ApiSettings
from antiphon.cli.engines import engine_loader
from antiphon.cli.errors import INTERRUPTED, CommandError
from antiphon.cli.options import ServeOptions
from antiphon.cli.progress import ProgressDisplay
from antiphon.cli.state_key import state_key
from antiphon.engine.base import EngineFailure
from antiphon.engine.script_file import ScriptError
from antiphon.hub import ModelFile, Progress, resolve
from antiphon.serving.sealed import Sealer
from antiphon.serving.service import Options, Service
from antiphon.text.template import TemplateError

BACKLOG = 2048  # connections that the system holds while we are busy; uvicorn's own figure


def serve(options: ServeOptions) -> int:
    """Serves until it is stopped; returns the exit code. Raises `CommandError` and `HubError`."""
    with listen(options.host, options.port) as listening:
        return run_server(options, listening)


def run_server(options: ServeOptions, listening: socket.socket) -> int:
    """Serves on the socket until SIGINT or SIGTERM; returns the exit code. Raises `CommandError` if loading fails."""
    configure_logging(options.log_level)
    service = _service(options)
    settings = ApiSettings(
        api_keys=options.api_keys,
        body_limit=options.body_limit,
        keepalive_seconds=options.keepalive_seconds,
        keepalive_events=options.keepalive_events,
    )
    loader = engine_loader(options, lambda report: fetch_model(options, report), service.metrics.observe_step)

    def ready() -> None:
        sys.stdout.write(announcement(options, listening, service.model.name))
        sys.stdout.flush()

    # uvicorn stops in order at SIGTERM and then raises it again: an orderly end is no failure.
    signal.signal(signal.SIGTERM, _end)
    try:
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            runner.run(run_service(service, settings, listening, loader, on_ready=ready))
    except (EngineFailure, ScriptError) as failure:
        raise CommandError(str(failure)) from failure
    except TemplateError as error:
        raise CommandError(f"the model's chat template cannot be used: {error}") from error
    except asyncio.CancelledError:
        return INTERRUPTED
    return 0


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _service(options: ServeOptions) -> Service:
    serving = Options(
        name=options.name or (options.model.served if options.model else None),
        names=options.aliases,
        dialect=options.dialect,
        strict_tools=options.strict_tools,
        reasoning_events=options.reasoning_events,
        prefix_scope=options.prefix_scope,
        log_prompts=options.log_prompts,
    )
    sealer = Sealer(state_key(options.state_key, os.environ))
    try:
        return Service(serving, sealer=sealer)
    except OSError as error:
        raise CommandError(f"{options.log_prompts}: cannot be written: {error.strerror}") from error


def configure_logging(level: str) -> None:
    """One line a record, on standard error."""
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    # uvicorn's own start and stop lines say nothing that ours do not.
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))
    # A WebSocket attempt is answered with 426; a warning for each would only fill the log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one (not on Windows)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `CommandError` if the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CommandError(f"cannot listen on {host}: {error.strerror}") from error
    try:
        if os.name == "posix":  # elsewhere the option lets two servers share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise CommandError(_refused(host, port, error)) from error
    return listening


def fetch_model(options: ServeOptions, report: Callable[[Progress], None]) -> ModelFile:
    """The model's file, fetched if need be; progress goes to standard error and to `report`. Blocks: not for the loop.

    Raises `HubError`, and whatever `report` raises, which ends the fetch.
    """
    if options.model is None:
        raise ValueError("the scripted engine has no model file")
    with ProgressDisplay(sys.stderr) as display:

        def both(progress: Progress) -> None:
            display(progress)
            report(progress)

        return resolve(options.model, cache=options.cache, progress=both, offline=options.offline)


def announcement(options: ServeOptions, listening: socket.socket, model: str) -> str:
    """What is printed when the model is ready: address, model, and a command to paste."""
    url = base_url(listening)
    body = json.dumps(
        {"model": model, "input": "Say hello.", "max_output_tokens": 100, "stream": True}, ensure_ascii=False
    ).replace("'", "\\u0027")
    key = " -H 'Authorization: Bearer YOUR_KEY'" if options.api_keys else ""
    return (
        f"Antiphon serves {model} on {url}/v1\n\n"
        f"  curl -N {url}/v1/responses{key} -H 'Content-Type: application/json' -d '{body}'\n"
    )


def base_url(listening: socket.socket) -> str:
    """The address to paste: that of this machine if the server listens on all of them."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _refused(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; choose another with --port"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} is not allowed for this user; choose one above 1023 with --port"
    return f"cannot listen on {host}, port {port}: {error.strerror}"
