"""Tables of text in aligned columns, as printed by the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from scheduler.text.plain import plain

T = TypeVar("T")


class Table(NamedTuple):
    """Headings and rows of text.

    Parameters
    ----------
    left : headings of the columns aligned to the left; other columns are aligned to the right.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: frozenset[str] = frozenset({"NAME", "USER", "ST", "STATE", "NODELIST(REASON)", "REASON"})

    @classmethod
    def of(
        cls, things: Iterable[T], columns: Mapping[str, Callable[[T], object]], left: str
    ) -> Table:
        """Make a table with a row for each thing.

        Parameters
        ----------
        columns : heading -> what the column has of a thing.
        left : headings of the columns aligned to the left.
        """
        rows = [[str(value(thing)) for value in columns.values()] for thing in things]
        return cls([*columns], rows, frozenset(left.split()))


def labelled(values: Mapping[str, object]) -> str:
    """Write values that are not "" below each other, each with its name and on one line."""
    texts = {f"{name}:": plain(str(value)) for name, value in values.items() if value != ""}
    width = max(map(len, texts))
    return "\n".join(f"{name:<{width}} {text}" for name, text in texts.items())


def render(table: Table) -> str:
    """Write a table as text, with aligned columns."""
    lines = [table.headings, *([plain(field) for field in row] for row in table.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.headings))]
    aligned = [
        "  ".join(
            field.ljust(width) if heading in table.left else field.rjust(width)
            for field, width, heading in zip(line, widths, table.headings, strict=True)
        )
        for line in lines
    ]
    return "\n".join(line.rstrip() for line in aligned)
