"""No import against the layers: `docs/ARCHITECTURE.md` draws them, this test reads every import and holds them."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "antiphon"

# From the top down; packages on one line never import each other. `check` and `hub` stand alone at the bottom.
LAYERS = [{"cli"}, {"api"}, {"serving"}, {"text"}, {"protocol", "engine", "check", "hub"}]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported_packages(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import, line {node.lineno}"
            names = [node.module or ""]
            if node.module == "antiphon":
                names = [f"antiphon.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found.update(name.split(".")[1] for name in names if name.startswith("antiphon."))
    return found - {"__version__"}


def test_every_import_points_down() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if package in ("__init__", "__main__"):
            continue
        upward = (t for t in imported_packages(path) - {package} if LEVEL[t] <= LEVEL[package])
        wrong += [f"{path.relative_to(SOURCE)} imports antiphon.{target}" for target in upward]
    assert not wrong, "\n".join(wrong)


def test_no_file_is_longer_than_400_lines() -> None:
    long = [str(p) for p in SOURCE.rglob("*.py") if len(p.read_text().splitlines()) > 400]
    assert not long


def test_no_function_is_longer_than_60_lines() -> None:
    long = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > 60:
                    long.append(f"{path.name}:{node.name} {length}")
    assert not long
