"""Tables of results: columns of equal length by name, which data frame libraries take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from reshape.errors import nearest
from scheduler.text.tables import Table as TextTable
from scheduler.text.tables import render
from simulator.traces.files import as_csv

Value = TypeVar("Value")
#: Rows that are shown at each end of a long table.
SHOWN = 5


class Named(dict[str, Value]):
    """Values by name; an unknown name is an error with the most similar ones."""

    def __missing__(self, name: object) -> Value:
        """Refuse a name that is not there.

        Raises
        ------
        KeyError : always.
        """
        raise KeyError(f"there is no {name!r}{nearest(str(name), self)}")


class Columns(Named[NDArray[Any]]):
    """Columns by name, (n,) arrays; ``pandas.DataFrame(columns)`` makes a data frame of them."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.values()))) if self else 0

    def lines(self) -> Iterator[dict[str, Any]]:
        """Rows as mappings of plain values."""
        lists = [column.tolist() for column in self.values()]
        return (dict(zip(self, row, strict=True)) for row in zip(*lists, strict=True))

    @property
    def _size(self) -> str:
        return f"{self.rows} rows x {len(self)} columns"

    def csv(self) -> bytes:
        """The rows as CSV, below a line of the names."""
        return as_csv(self, zip(*(column.tolist() for column in self.values()), strict=True))

    def __repr__(self) -> str:
        """The first and the last rows."""
        return f"{render(TextTable([*self], self._shown()))}\n[{self._size}]"

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        return f"{html_of(self, self._shown())}<p>{self._size}</p>"

    def _shown(self) -> list[list[str]]:
        """Rows as texts, of a long table the first and the last ones."""
        rows = [*range(self.rows)]
        if len(rows) > 2 * SHOWN:
            rows = [*rows[:SHOWN], *rows[-SHOWN:]]
        texts = [[_text(column[i]) for column in self.values()] for i in rows]
        if len(rows) < self.rows:
            texts.insert(SHOWN, ["..."] * len(self))
        return texts


def html_of(names: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Table in HTML of the names of its columns and the texts of its rows."""

    def line(kind: str, texts: Iterable[str]) -> str:
        return "".join(f"<{kind}>{escape(text)}</{kind}>" for text in texts)

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{line('th', names)}</tr></thead><tbody>{body}</tbody></table>"


def of_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Columns:
    """Columns of rows; without rows they are empty."""
    listed = list(rows)
    return Columns((name, _column([row[i] for row in listed])) for i, name in enumerate(names))


def _column(values: Sequence[Any]) -> NDArray[Any]:
    """Values as an array; texts beside numbers stay what they are."""
    mixed = len({isinstance(value, str) for value in values}) > 1
    return np.array(values, object if mixed else None)


def means_of(values: Mapping[str, Any]) -> dict[str, float]:
    """The entries that are single numbers."""
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _text(value: Any) -> str:
    """Value in a table; times that are long stay readable."""
    if not isinstance(value, float | np.floating):
        return str(value)
    return f"{value:.1f}" if 1e5 <= abs(float(value)) < 1e15 else f"{value:.6g}"
