"""The command `antiphon`: its arguments, and the one place where errors become a line and an exit code.

Rules
* What a command needs beyond its arguments is imported inside it: `--help` and `ask` load no engine and no server.
* A known error is one line on standard error. An unknown one too; `ANTIPHON_LOG_LEVEL=debug` shows its traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from antiphon import __version__
from antiphon.cli import options as o
from antiphon.cli.errors import FAILURE, INTERRUPTED, CommandError
from antiphon.hub import DEFAULT_MODEL, HubError, default_cache
from antiphon.hub.base import one_line

# Plain help: boxes cut the names of variables off on a narrow terminal.
app = typer.Typer(name="antiphon", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
models_app = typer.Typer(help="What is cached; fetch and remove models.", rich_markup_mode=None)
app.add_typer(models_app, name="models")

CacheFolder = Annotated[Path | None, o.flag("cache", "Folder of fetched models.", file_okay=False)]
# No variable here: it would count for more than the flag of `models` itself.
OwnCacheFolder = Annotated[Path | None, typer.Option("--cache", help="Folder of fetched models.", file_okay=False)]
ModelText = Annotated[str, typer.Argument(metavar="NAME", help="As for antiphon serve.")]


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs a command; returns the exit code. Whatever goes wrong is one line on standard error."""
    try:
        return app(arguments, prog_name="antiphon", standalone_mode=False) or 0
    except typer.TyperException as error:
        return _fail(error.format_message(), error.exit_code)
    except CommandError as error:
        return _fail(str(error), error.exit_code)
    except HubError as error:
        return _fail(str(error), FAILURE)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough; Python must not try to flush the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except Exception as error:
        if os.environ.get("ANTIPHON_LOG_LEVEL") == "debug":
            traceback.print_exc()
        return _fail(f"internal error, please report it: {type(error).__name__}: {error}", FAILURE)


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"antiphon: {one_line(message)}\n")
    return code


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"antiphon {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _antiphon(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Serve your own language models through the Responses API, event by event."""
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


@app.command()
def serve(
    model: o.Model = None,
    host: o.Host = "127.0.0.1",
    port: o.Port = 8000,
    engine: o.Engine = "llama",
    script: o.Script = None,
    log_prompts: o.LogPrompts = None,
    name: o.Name = None,
    alias: o.Aliases = None,
    dialect: o.DialectName = None,
    context_length: o.ContextLength = None,
    cache_tokens: o.CacheTokens = None,
    prefix_scope: o.Scope = "owner",
    prefix_ram: o.PrefixRam = None,
    prefix_dir: o.PrefixDir = None,
    prefix_dir_size: o.PrefixDirSize = None,
    step_target: o.StepTarget = 0.25,
    max_concurrency: o.MaxConcurrency = 8,
    threads: o.Threads = None,
    gpu_layers: o.GpuLayers = 0,
    library: o.Library = None,
    batch_tokens: o.BatchTokens = 512,
    max_queue: o.MaxQueue = 256,
    api_key: o.ApiKeys = None,
    api_key_file: o.ApiKeyFile = None,
    state_key: o.StateKey = None,
    insecure: o.Insecure = False,
    body_limit: o.BodyLimit = 32 << 20,
    keepalive_seconds: o.KeepaliveSeconds = 15.0,
    no_keepalive_events: o.NoKeepaliveEvents = False,
    strict_tools: o.StrictTools = False,
    reasoning_events: o.ReasoningNames = "openai",
    cache: o.Cache = None,
    log_level: o.Level = "info",
    offline: o.Offline = False,
) -> None:
    """Load a model and serve it."""
    options = o.collect(locals())
    from antiphon.cli.serve import serve as serve_model

    raise typer.Exit(serve_model(options))


@app.command()
def ask(
    text: Annotated[str, typer.Argument(help="The question; - reads it from standard input.")],
    url: Annotated[str, o.flag("url", "The server.")] = "http://127.0.0.1:8000",
    api_key: Annotated[str | None, o.flag("api-key", "The key that the server asks for.")] = None,
    model: Annotated[str | None, typer.Option(help="A model of the server; else its first.")] = None,
    instructions: Annotated[str | None, typer.Option(help="How to answer.")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of the answer, at most.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=2, help="0 always takes the likeliest.")] = None,
    events: Annotated[bool, typer.Option("--events", help="Print the raw events as they arrive.")] = False,
) -> None:
    """Ask a running server, and show the answer while it is made.

    The answer and calls go to standard output, thinking to standard error. An answer cut by a limit is noted there
    and exits with 0; a failed, cancelled or cut-off response exits with 1.
    """
    from antiphon.cli import ask as asking
    from antiphon.cli.client import Server

    server = Server(url, o.first_key(api_key))
    request = {
        "input": asking.read_text(sys.stdin.buffer) if text == "-" else text,
        "model": model or server.first_model(),
        "instructions": instructions,
        "max_output_tokens": max_output_tokens,
        "temperature": temperature,
    }
    stream = server.stream({name: value for name, value in request.items() if value is not None})
    if events:
        asking.show_events(stream, sys.stdout.buffer, sys.stderr)
    else:
        asking.show(stream, sys.stdout, sys.stderr)


@app.command()
def check(
    file: Annotated[typer.FileBinaryRead, typer.Argument(help="The bytes of a streamed answer; - is standard input.")],
    reasoning_events: o.ReasoningNames = "openai",
) -> None:
    """Check the stream of any Responses server against the contract."""
    from antiphon.cli.check import check_stream

    check_stream(file, sys.stdout, reasoning_events=reasoning_events)


@app.command()
def inspect(
    model: o.Model = None,
    cache: o.Cache = None,
    offline: o.Offline = False,
    as_json: Annotated[bool, typer.Option("--json", help="A report for programs.")] = False,
) -> None:
    """Show how a model is prompted and read: its dialect, tokens, template, and a sample prompt.

    Reads the file's metadata and vocabulary, not the weights.
    """
    from antiphon.cli.inspect import inspect_model

    inspect_model(
        model or DEFAULT_MODEL,
        cache or default_cache(os.environ),
        sys.stdout,
        sys.stderr,
        offline=offline,
        as_json=as_json,
    )


@models_app.callback(invoke_without_command=True)
def _models(
    context: typer.Context,
    cache: CacheFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="A list for programs.")] = False,
) -> None:
    context.obj = cache or default_cache(os.environ)
    if context.invoked_subcommand is None:
        from antiphon.cli.models import list_models

        list_models(context.obj, sys.stdout, as_json=as_json)


@models_app.command()
def fetch(context: typer.Context, name: ModelText, cache: OwnCacheFolder = None, offline: o.Offline = False) -> None:
    """Fetch a model, and print where it is."""
    from antiphon.cli.models import fetch_model

    fetch_model(name, cache or context.obj, sys.stdout, sys.stderr, offline=offline)


@models_app.command("remove")
def _remove(context: typer.Context, name: ModelText, cache: OwnCacheFolder = None) -> None:
    """Remove a model from the cache."""
    from antiphon.cli.models import remove_model

    remove_model(name, cache or context.obj, sys.stdout)
