"""The library is used only if it is the declared build."""

from __future__ import annotations

import importlib.metadata
import logging
import re
import sys
import tomllib
from pathlib import Path

import pytest

from antiphon.engine.llama import ModelLoadError
from antiphon.engine.llama.binding import Declaration, Library, open_library, packaged_library, read_declaration
from antiphon.engine.llama.log import LINE_LIMIT, LogLines

ROOT = Path(__file__).parents[3]


def test_declaration_is_of_the_pinned_and_installed_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"xllamacpp=={read_declaration().package}" in project["dependencies"]
    assert importlib.metadata.version("xllamacpp") == read_declaration().package


def test_every_declared_function_is_used_and_exported() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src/antiphon/engine/llama").glob("*.py"))
    library = open_library()
    declared = re.findall(r"^[\w *]*?\b(\w+) ?\([^*]", read_declaration().text, re.MULTILINE)
    assert len(declared) > 50
    for name in declared:
        assert hasattr(library.c, name), name
        assert name in source or name.startswith("gguf_get_val_"), name


def test_open_library_is_opened_once() -> None:
    assert open_library() is open_library()


def test_other_version_is_refused() -> None:
    text = re.sub(r"^// llama.cpp .*$", "// llama.cpp 9.9.9", read_declaration().text, flags=re.MULTILINE)
    with pytest.raises(ModelLoadError, match=r"llama\.cpp .*, this version of antiphon needs 9\.9\.9"):
        Library(packaged_library(), Declaration(text))


@pytest.mark.parametrize(
    ("declared", "drifted"),
    [
        ("uint32_t n_batch;", "uint32_t n_extra;\n    uint32_t n_batch;"),
        ("bool swa_full;", "bool new_flag;\n    bool swa_full;"),
        ("int32_t main_gpu;", ""),
        ("enum ggml_type type_k;", "size_t type_k;"),
    ],
)
def test_layout_that_drifted_is_refused(declared: str, drifted: str) -> None:
    text = read_declaration().text
    assert text.count(declared) == 1
    with pytest.raises(ModelLoadError, match="lays out its parameters otherwise"):
        Library(packaged_library(), Declaration(text.replace(declared, drifted)))


def test_declaration_without_versions_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="names no version of xllamacpp"):
        Declaration("int f(void);")


def test_what_is_no_library_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "libllama.so"
    for content in (None, b"no library"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ModelLoadError, match=r"^libllama\.so is no libllama that can be opened here: .*$"):
            open_library(path)


def test_other_library_is_refused() -> None:
    other = next(Path(module.__file__ or "") for name, module in sys.modules.items() if name == "_cffi_backend")
    with pytest.raises(ModelLoadError, match="is no libllama"):
        open_library(other)


def test_library_can_be_given_by_path() -> None:
    assert open_library(packaged_library()).path == packaged_library()


def test_log_is_joined_to_lines(caplog: pytest.LogCaptureFixture) -> None:
    lines = LogLines()
    with caplog.at_level(logging.DEBUG, "antiphon.engine.llama.log"):
        lines.feed(2, "load")
        lines.feed(5, "ing\n")
        lines.feed(3, "odd\n")
        lines.feed(4, "one\ntwo\n")
    assert [(r.levelno, r.message) for r in caplog.records] == [
        (logging.DEBUG, "loading"),
        (logging.DEBUG, "odd"),
        (logging.DEBUG, "one"),
        (logging.DEBUG, "two"),
    ]
    assert lines.first_error == "one"


def test_log_line_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    lines = LogLines()
    with caplog.at_level(logging.DEBUG, "antiphon.engine.llama.log"):
        for _ in range(100):
            lines.feed(2, "x" * 100)
        lines.feed(5, "\n")
    assert [len(r.message) for r in caplog.records] == [LINE_LIMIT]


def test_loading_writes_nothing_to_the_process_stderr(
    load_tiny: object, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert callable(load_tiny)
    with caplog.at_level(logging.DEBUG, "antiphon.engine.llama.log"):
        load_tiny()
    assert any("n_ctx" in record.message for record in caplog.records)
    assert capfd.readouterr() == ("", "")
