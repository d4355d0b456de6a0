"""`antiphon models`: what is cached, and fetching and removing by name."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import msgspec

from antiphon.cli.progress import ProgressDisplay
from antiphon.hub import CachedModel, cached, parse_model_name, remove, resolve


def list_models(cache: Path, out: TextIO, *, as_json: bool) -> None:
    """A table on a terminal; elsewhere a line a model: name, bytes, path, with tabs between. With `as_json`, a list."""
    models = cached(cache)
    if as_json:
        out.write(msgspec.json.format(msgspec.json.encode(models, enc_hook=str)).decode() + "\n")
    elif out.isatty():
        _print_table(models, out)
    else:
        out.writelines(f"{model.name}\t{model.size}\t{model.path}\n" for model in models)


def fetch_model(text: str, cache: Path, out: TextIO, err: TextIO, *, offline: bool) -> None:
    """Fetches a model if it is not there yet, and says where it is. Raises `HubError`."""
    name = parse_model_name(text)
    with ProgressDisplay(err) as display:
        file = resolve(name, cache=cache, progress=display, offline=offline)
    out.write(f"{file.path}\n")


def remove_model(text: str, cache: Path, out: TextIO) -> None:
    """Removes a model and says how much room that made. Raises `HubError`."""
    freed = remove(parse_model_name(text), cache=cache)
    out.write(f"removed {text}, {megabytes(freed)}\n")


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _print_table(models: list[CachedModel], out: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=out)
    if not models:
        console.print("Nothing is cached. antiphon models fetch NAME fetches a model.", markup=False)
        return
    table = Table("Model", "Alias", "Size", box=None, pad_edge=False)
    table.columns[2].justify = "right"
    for model in models:
        table.add_row(Text(model.name), Text(model.alias or ""), Text(megabytes(model.size)))
    table.add_section()
    table.add_row("", "in all", megabytes(sum(model.size for model in models)))
    console.print(table)
