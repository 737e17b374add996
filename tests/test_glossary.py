"""Pages name only modules, attributes and files that exist, and show the present example."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from paths import ROOT

PACKAGES = "redistribution|reshape|scheduler|simulator|apps"
GLOSSARY = ROOT / "docs" / "glossary.md"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
#: `scheduler.core.core`, `simulator.studies:loc` and the like, with or without an attribute.
DOTTED = re.compile(rf"`((?:{PACKAGES})(?:[.:]\w+)+)(?:\(.*?\))?`")
#: `scheduler/compiled.py`, `docs/design.md` and the like.
FILE = re.compile(rf"`((?:{PACKAGES}|tests|examples|benchmarks|docs)/[\w/.-]+\w)`")
#: An entry point group, which is no module.
ENTRY_POINTS = "reshape.policies"
LINK = re.compile(r"\]\(([\w./-]+?)(?:#[\w-]+)?\)")


def resolve(name: str) -> object:
    """Import a module, or the longest importable prefix of the name and its attributes."""
    parts = name.replace(":", ".").split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        try:
            found: object = import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # a dependency is missing
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(name)


def test_every_module_of_the_glossary_can_be_imported() -> None:
    rows = [line for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    names = {name for row in rows for name in DOTTED.findall(row.rsplit("|", 2)[1])}
    assert len(names) > 50
    for name in sorted(names):
        import_module(name)


def test_every_term_of_the_glossary_is_defined_once() -> None:
    rows = [line.split("|")[1] for line in GLOSSARY.read_text().splitlines() if line[:2] == "| "]
    terms = [term.strip() for row in rows for term in row.split(",") if term.strip() != "term"]
    assert len(terms) == len(set(terms))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_files_and_links_of_a_page_exist(page: Path) -> None:
    text = page.read_text()
    missing = [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    missing += [name for name in LINK.findall(text) if not (page.parent / name).exists()]
    for name in set(DOTTED.findall(text)) - {ENTRY_POINTS}:
        try:
            resolve(name)
        except (ModuleNotFoundError, AttributeError):
            missing.append(name)
    assert sorted(missing) == []


def test_the_program_of_the_readme_is_the_example() -> None:
    example = (ROOT / "examples" / "first_application.py").read_text().split('"""', 2)[2]
    assert f"```python\n{example.strip()}\n```" in (ROOT / "README.md").read_text()
