"""Modules of the packages and their imports, for the tests and the figures of the layout."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from paths import ROOT

PACKAGES = ("redistribution", "reshape", "scheduler", "simulator", "apps")


def module_name(path: Path) -> str:
    """Name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    """Return the files of all packages by the names of their modules."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {module_name(path): path for path in sorted(found)}


MODULES = modules()
FOLDERS = sorted({"", *(n for n, path in MODULES.items() if path.name == "__init__.py")})


@cache
def tree_of(name: str) -> ast.Module:
    """Syntax tree of a module."""
    return ast.parse(MODULES[name].read_text())


def _for_types(tree: ast.Module) -> set[ast.AST]:
    """Parts of a file that are only for type checking."""
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    skipped = (block.body for block in blocks if "TYPE_CHECKING" in ast.unparse(block.test))
    return {inner for body in skipped for node in body for inner in ast.walk(node)}


def imported(name: str, *, types: bool = True) -> Iterator[str]:
    """Modules of this project that a module imports, anywhere in it, or not only for types."""
    tree = tree_of(name)
    skipped = set() if types else _for_types(tree)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for each in names:
            parent = each.rpartition(".")[0]
            if each in MODULES:
                yield each
            elif parent in MODULES:
                yield parent


@cache
def imports() -> dict[str, set[str]]:
    """Modules of this project that each of them imports."""
    return {name: {other for other in imported(name) if other != name} for name in MODULES}


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


def parts_of_one_module() -> dict[str, str]:
    """Modules that one other module of their own folder imports and no other, with that module."""
    importers: dict[str, set[str]] = {}
    for name, others in imports().items():
        for other in others:
            importers.setdefault(other, set()).add(name)
    found = {}
    for name, path in MODULES.items():
        by = importers.get(name, set())
        if path.name != "__init__.py" and len(by) == 1:
            (only,) = by
            if only.rpartition(".")[0] == name.rpartition(".")[0]:
                found[name] = only
    return found


def longest_chain() -> tuple[str, ...]:
    """Modules of which each imports the next one when it is loaded or later, the longest such."""

    @cache
    def longest(name: str) -> tuple[str, ...]:
        others = set(imported(name, types=False)) - {name}
        return name, *max(map(longest, sorted(others)), key=len, default=())

    return max(map(longest, MODULES), key=len)
