"""The layout of the packages: imports run downwards and without cycles.

For every folder, its modules and subfolders form a graph: one depends on another if any module in
it imports any module of the other. Each of these graphs must be acyclic, which includes cycles
between single files and imports that are made for type checking only.
"""

from __future__ import annotations

import ast

import pytest
from module_graph import (
    FOLDERS,
    MODULES,
    PACKAGES,
    children,
    cycle,
    imports,
    parts_of_one_module,
    tree_of,
)

#: What each package may import besides itself.
BELOW = {
    "redistribution": set(),
    "reshape": {"redistribution"},
    "scheduler": {"reshape"},
    "simulator": {"reshape", "scheduler", "apps"},
    "apps": {"reshape", "redistribution"},
}
#: Modules that are a part of one other module of their folder. The number only becomes smaller: a
#: new module of this kind belongs in the module that imports it.
MOST_PARTS = 35


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_within_a_folder_have_no_cycle(folder: str) -> None:
    assert cycle(children(folder)) == []


def test_files_have_no_cycle() -> None:
    assert cycle(imports()) == []


def test_few_modules_are_parts_of_one_other_module() -> None:
    parts = parts_of_one_module()
    assert len(parts) <= MOST_PARTS, parts


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


def test_no_two_public_classes_have_the_same_name() -> None:
    owners: dict[str, list[str]] = {}
    for name in MODULES:
        for node in tree_of(name).body:
            if isinstance(node, ast.ClassDef):
                owners.setdefault(node.name, []).append(name)
    assert {name: where for name, where in owners.items() if len(where) > 1} == {}
