"""Results of a study by what its report compares, and the parts that all reports have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, TypeVar

import yaml

from scheduler.text.tables import Table, render
from simulator.results.statistics import Interval, mean_interval
from simulator.studies.claims import Claim, as_records, as_table, numbers, plus_minus
from simulator.study.study import SEED, Parameters, Report, Row

T = TypeVar("T")


def paper(study: str) -> SimpleNamespace:
    """Numbers of the paper of a study; each field of its file is an attribute."""
    file = Path(__file__).parent / "papers" / f"{study}.yaml"
    return SimpleNamespace(**yaml.safe_load(file.read_text()))


def keyed(rows: Mapping[str, T]) -> dict[tuple[str, ...], T]:
    """Rows of a table by the words of their names: ``CTC high`` is ("CTC", "high")."""
    return {tuple(name.split()): row for name, row in rows.items()}


Key: TypeAlias = tuple[Any, ...]


class StudyResults:
    """Results of runs by key; those of one key are in the order of the seeds.

    Parameters
    ----------
    key : gives the key of a run from its parameters.
    """

    def __init__(self, rows: Sequence[Row], key: Callable[[Parameters], Key]) -> None:
        self.rows: dict[Key, list[Row]] = {}
        for row in sorted(rows, key=lambda row: row.parameters.get(SEED, 0)):
            self.rows.setdefault(key(dict(row.parameters)), []).append(row)

    def __iter__(self) -> Iterator[Key]:
        """Iterate over the keys."""
        return iter(self.rows)

    def parts(self, *start: Any) -> list[Any]:
        """What follows in the keys that begin so: all first parts without a start."""
        n = len(start)
        return list(dict.fromkeys(key[n] for key in self if key[:n] == start))

    def values(self, key: Key, metric: str) -> list[float]:
        """A metric of the runs of a key, in the order of the seeds; empty if there are none."""
        return [float(row.result[metric]) for row in self.rows.get(key, ())]

    def interval(self, key: Key, metric: str) -> Interval:
        """Mean of a metric with its interval; nan if there are no runs."""
        return mean_interval(self.values(key, metric))

    def difference(self, metric: str, more: Key, less: Key) -> Interval:
        """Difference of two keys, seed by seed; nan if one was not run."""
        return mean_difference(self.values(more, metric), self.values(less, metric))


def mean_difference(more: Sequence[float], less: Sequence[float]) -> Interval:
    """Mean of `more` minus `less`, pair by pair; values without a partner are left out."""
    return mean_interval([a - b for a, b in zip(more, less, strict=False)])


def plain(interval: Interval) -> dict[str, float | None]:
    """Mean and limits for JSON, without nan."""
    return dict(zip(("mean", "low", "high"), numbers(interval), strict=True))


def beside(ours: Interval, paper: float | None, form: str = ".1f") -> str:
    """Cell of a table: our mean and half of its interval, and the paper's number in brackets."""
    text = plus_minus(ours, form)
    return text if paper is None else f"{text} ({paper:g})"


def titled(title: str, head: Sequence[str], lines: Sequence[Sequence[str]], names: int = 1) -> str:
    """Write a table below its title; "" without lines.

    Parameters
    ----------
    names : number of the first columns that hold names, not numbers.
    """
    table = Table([*head], [[*line] for line in lines], left=frozenset(head[:names]))
    return f"{title}\n{render(table)}" if lines else ""


def reported(
    parts: Iterable[str],
    data: Mapping[str, Any],
    claims: Sequence[Claim],
    files: Mapping[str, bytes] | None = None,
    title: str = "",
) -> Report:
    """Report of some parts, those that are not empty, and of the verdicts on claims.

    Parameters
    ----------
    title : of the table of claims.
    """
    judged = f"{title}\n{as_table(claims)}" if title else as_table(claims)
    text = "\n\n".join(part for part in (*parts, judged) if part)
    return Report(text, {**data, "claims": as_records(claims)}, files or {})
