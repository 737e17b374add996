"""Numbers that papers print: a YAML file for each study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import yaml

T = TypeVar("T")


def paper(study: str) -> SimpleNamespace:
    """Numbers of the paper of a study; each field of its file is an attribute."""
    file = Path(__file__).with_name(f"{study}.yaml")
    return SimpleNamespace(**yaml.safe_load(file.read_text()))


def keyed(rows: Mapping[str, T]) -> dict[tuple[str, ...], T]:
    """Rows of a table by the words of their names: ``CTC high`` is ("CTC", "high")."""
    return {tuple(name.split()): row for name, row in rows.items()}
