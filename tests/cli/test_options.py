"""Every flag and variable of `antiphon serve`: a bad value is one line that names it, exit 2."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli import main
from antiphon.cli.errors import UsageError
from antiphon.cli.options import ServeOptions, collect, is_loopback
from antiphon.hub import default_cache, parse_model_name
from tests.cli.processes import antiphon, refused

# Flags with a value that each must refuse; those that take no value have only a bad variable.
BAD = {
    "host": ["", "a b", "0.0.0.0", "192.168.0.1", "example.org", "::"],
    "port": ["x", "-1", "65536", "1.5", ""],
    "engine": ["vllm", "LLAMA", ""],
    "script": ["/no/such/file", "."],
    "log-prompts": ["/no/such/folder/file", "."],
    "name": ["", " ", "a\nb", "a" * 257],
    "alias": ["a,,b", "a,", "a" * 257],
    "dialect": ["klingon", ""],
    "context-length": ["0", "-5", "many"],
    "cache-tokens": ["0", "x"],
    "prefix-scope": ["all", ""],
    "prefix-ram": ["-1", "2X", "1.5G", "", "9" * 40],
    "prefix-dir": [__file__],
    "prefix-dir-size": ["-1", "big", "1G"],
    "step-target": ["0", "nan", "61", "fast"],
    "max-concurrency": ["0", "257", "1e3"],
    "threads": ["0", "x", "513"],
    "gpu-layers": ["-2", "all"],
    "library": ["/no/such/lib.so", "."],
    "batch-tokens": ["0", "x", "65537"],
    "max-queue": ["0", "x"],
    "api-key": ["", "with blank", "ключ", "a,,b"],
    "api-key-file": ["/no/such/file", "."],
    "state-key": ["/no/such/file", "."],
    "body-limit": ["0", "32MiB"],
    "keepalive-seconds": ["0", "nan", "inf", "-1", "soon"],
    "reasoning-events": ["anthropic", ""],
    "cache": [__file__],
    "log-level": ["loud", ""],
}
SWITCHES = ["insecure", "no-keepalive-events", "strict-tools", "offline"]


def variable(flag: str) -> str:
    return "ANTIPHON_" + flag.replace("-", "_").upper()


@contextmanager
def variables(**values: str) -> Iterator[None]:
    """Sets variables of this process, and puts back what was there."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@pytest.fixture(autouse=True)
def nothing_to_serve(tmp_path: Path) -> Iterator[None]:
    """A value that is taken by mistake then ends in exit 1, not in a server."""
    with variables(ANTIPHON_CACHE=str(tmp_path / "empty"), ANTIPHON_OFFLINE="1"):
        yield


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.startswith("antiphon: ")
    return err


@pytest.mark.parametrize(("flag", "value"), [(flag, value) for flag, values in BAD.items() for value in values])
def test_a_bad_flag_is_named(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["serve", f"--{flag}", value]) == 2
    assert f"--{flag}" in one_line(capsys)


@pytest.mark.parametrize(
    ("flag", "value"),
    # An empty variable counts as not set; blanks in a variable separate keys.
    [(flag, value) for flag, values in BAD.items() for value in values if value and value != "with blank"]
    + [(switch, "maybe") for switch in SWITCHES],
)
def test_a_bad_variable_is_named(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with variables(**{variable(flag): value}):
        assert main.run(["serve"]) == 2
    line = one_line(capsys)
    assert variable(flag) in line and f"--{flag}" in line


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["serve", "--engine", "scripted"], "--script"),
        (["serve", "--script", __file__], "--script"),
        (["serve", "smollm2", "--engine", "scripted", "--script", __file__], "MODEL"),
        (["serve", "gpt-4"], "MODEL (ANTIPHON_MODEL): unknown model 'gpt-4'"),
        (["serve", "pypi:x"], "pypi:package==version"),
        (["serve", "a.gguf", "b.gguf"], "unexpected extra argument"),
        (["serve", "--prot", "1"], "--prot"),
        (["serv"], "serv"),
        (["ask"], "text"),
        (["ask", "x", "--temperature", "3"], "--temperature"),
        (["ask", "x", "--max-output-tokens", "0"], "--max-output-tokens"),
        (["ask", "x", "--url", "ftp://x"], "--url"),
        (["ask", "x", "--url", "http://x:port"], "--url"),
        (["ask", "x", "--url", "http://x/ y"], "--url"),
        (["ask", "x", "--api-key", "a\nb"], "--api-key"),
        (["models", "remove"], "NAME"),
        (["models", "--json=x"], "--json"),
    ],
)
def test_wrong_arguments(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 2
    assert named.lower() in one_line(capsys).lower()


def test_a_real_process_says_the_same() -> None:
    assert "--port" in refused(antiphon("serve", "--port", "x"), 2)
    assert "ANTIPHON_THREADS" in refused(antiphon("serve", variables={"ANTIPHON_THREADS": "none"}), 2)


def test_keys_are_never_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["serve", "--api-key", "se cret"]) == 2
    assert "cret" not in one_line(capsys)
    file = tmp_path / "keys"
    for content in (b"", b"\n \n", b"good\nse cret\n", b"\xff\xfe", b"k" * (1 << 20) + b"\n"):
        file.write_bytes(content)
        assert main.run(["serve", "--api-key-file", str(file)]) == 2
        line = one_line(capsys)
        assert "--api-key-file" in line and "cret" not in line


def test_help_lists_every_flag_and_its_variable() -> None:
    text = antiphon("serve", "--help").stdout
    described = {f"--{name}" for name in [*BAD, *SWITCHES]}
    assert described | {"--help"} == set(re.findall(r"^ +(--[a-z-]+)", text, re.MULTILINE))
    assert {variable(flag.removeprefix("--")) for flag in described} | {"ANTIPHON_MODEL"} == set(
        re.findall(r"ANTIPHON_[A-Z_]+", text)
    )


def values(**given: Any) -> dict[str, Any]:
    """What the command line parser gives for no arguments, with some changed."""
    default = ServeOptions(cache=Path("unused"))
    own = {name: getattr(default, name) for name in ServeOptions.__struct_fields__}
    for made in ("api_keys", "aliases", "keepalive_events"):
        del own[made]
    raw = {"model": None, "alias": None, "api_key": None, "api_key_file": None, "no_keepalive_events": False}
    return {**own, **raw, **given}


def test_collected(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("from-file\n\n")
    options = collect(
        values(api_key=["a,b", "c"], api_key_file=file, host="0.0.0.0", cache=None, no_keepalive_events=True)
    )
    assert options.api_keys == ("a", "b", "c", "from-file")
    assert options.model == parse_model_name("smollm2")
    assert collect(values(alias=["a,b", "c"])).aliases == ("a", "b", "c")
    assert options.cache == default_cache(os.environ)
    assert not options.keepalive_events
    scripted = collect(values(engine="scripted", script=file))
    assert (scripted.model, scripted.script) == (None, file)


def test_other_machines_only_with_a_key_or_by_name() -> None:
    with pytest.raises(UsageError, match="--insecure"):
        collect(values(host="0.0.0.0"))
    assert collect(values(host="0.0.0.0", insecure=True)).host == "0.0.0.0"
    assert collect(values(host="0.0.0.0", api_key=["k"])).api_keys == ("k",)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("127.0.0.1.nip.io", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
