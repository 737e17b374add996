"""The layout of the packages: imports run downwards, without cycles, and folders stay small.

For every folder, its modules and subfolders form a graph: one depends on another if any module in
it imports any module of the other. Each of these graphs must be acyclic, which includes cycles
between single files and imports that are made for type checking only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from paths import ROOT

PACKAGES = ("redistribution", "reshape", "scheduler", "simulator", "apps")
#: What each package may import besides itself.
BELOW = {
    "redistribution": set(),
    "reshape": {"redistribution"},
    "scheduler": {"reshape"},
    "simulator": {"reshape", "scheduler", "apps"},
    "apps": {"reshape", "redistribution"},
}
MOST_MODULES = 14
#: Files of which each imports the next one, imports for type checking apart.
LONGEST_CHAIN = 32


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path = ROOT) -> dict[str, Path]:
    found = (path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return {module_name(path): path for path in found}


MODULES = modules()


def for_types(tree: ast.Module) -> set[ast.AST]:
    """Parts of a file that are only for type checking."""
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    skipped = (block.body for block in blocks if "TYPE_CHECKING" in ast.unparse(block.test))
    return {inner for body in skipped for node in body for inner in ast.walk(node)}


def imported(path: Path, *, types: bool = True) -> Iterator[str]:
    """Modules of this project that a file imports, anywhere in it, or not only for types."""
    tree = ast.parse(path.read_text())
    skipped = set() if types else for_types(tree)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            candidates = (name, name.rpartition(".")[0])
            yield from (each for each in candidates[:1] if each in MODULES)
            if name not in MODULES:
                yield from (each for each in candidates[1:] if each in MODULES)


@cache
def imports() -> dict[str, set[str]]:
    """Modules of this project that each of them imports."""
    return {
        name: {other for other in imported(path) if other != name} for name, path in MODULES.items()
    }


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """A cycle of a directed graph; empty if there is none."""
    done: set[str] = set()

    def visit(node: str, trail: list[str]) -> list[str]:
        if node in trail:
            return [*trail[trail.index(node) :], node]
        if node in done:
            return []
        for other in sorted(graph.get(node, ())):
            if found := visit(other, [*trail, node]):
                return found
        done.add(node)
        return []

    for node in sorted(graph):
        if found := visit(node, []):
            return found
    return []


def children(folder: str) -> dict[str, set[str]]:
    """Graph of the modules and subfolders directly in a folder ("" is the root)."""
    depth = len(folder.split(".")) if folder else 0
    graph: dict[str, set[str]] = {}
    for name, others in imports().items():
        if folder and not name.startswith(f"{folder}."):
            continue
        mine = ".".join(name.split(".")[: depth + 1])
        edges = graph.setdefault(mine, set())
        for other in others:
            if not folder or other.startswith(f"{folder}."):
                edges.add(".".join(other.split(".")[: depth + 1]))
        edges.discard(mine)
    return graph


FOLDERS = sorted({"", *(n for n, path in MODULES.items() if path.name == "__init__.py")})


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_within_a_folder_have_no_cycle(folder: str) -> None:
    assert cycle(children(folder)) == []


def test_files_have_no_cycle() -> None:
    assert cycle(imports()) == []


def test_chains_of_imports_are_short() -> None:
    @cache
    def longest(name: str) -> tuple[str, ...]:
        others = set(imported(MODULES[name], types=False)) - {name}
        return name, *max(map(longest, sorted(others)), key=len, default=())

    chain = max(map(longest, MODULES), key=len)
    assert len(chain) <= LONGEST_CHAIN, chain


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_packages_below_it(package: str) -> None:
    used = {
        other.split(".")[0]
        for name, others in imports().items()
        for other in others
        if name.split(".")[0] == package
    }
    assert used - {package} <= BELOW[package]


def test_studies_simulate_by_the_interface() -> None:
    """A study is what a user could have written: it puts no core and no engine together."""
    used = {
        (name, other)
        for name, others in imports().items()
        for other in others
        if name.startswith("simulator.studies")
        and other.startswith(("simulator.engine", "scheduler.core"))
    }
    assert used == set()


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f.startswith("simulator.studies.")])
def test_a_study_has_at_most_five_modules(folder: str) -> None:
    assert len([*MODULES[folder].parent.glob("*.py")]) <= 5


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f])
def test_a_folder_has_few_modules(folder: str) -> None:
    directory = MODULES[folder].parent
    side_by_side = [path.name for path in directory.glob("*.py") if path.name != "__init__.py"]
    assert len(side_by_side) <= MOST_MODULES, side_by_side


def test_no_two_public_classes_have_the_same_name() -> None:
    owners: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                owners.setdefault(node.name, []).append(name)
    assert {name: where for name, where in owners.items() if len(where) > 1} == {}
