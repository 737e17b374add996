"""The default report of a study: a table of means over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isnan, log10
from pathlib import Path
from typing import Any

import msgspec

from scheduler.text.tables import Table, render
from simulator.results.statistics import Interval, mean_interval
from simulator.study.study import SEED, Report, Row


def means(rows: Sequence[Row], out: Path | None) -> Report:
    """Mean of each number of the results, over the seeds, with its 95 % interval.

    A line for each combination of the parameters that vary; what is no number is left out.
    """
    groups: dict[bytes, list[Row]] = {}
    for row in rows:
        point = {name: value for name, value in row.parameters.items() if name != SEED}
        groups.setdefault(msgspec.json.encode(point, order="deterministic"), []).append(row)
    varied = _varied(rows)
    numbers = [name for name in _names(row.result for row in rows) if _any_number(rows, name)]
    data, lines = [], []
    for group in groups.values():
        point = {name: group[0].parameters.get(name) for name in varied}
        intervals = {name: mean_interval(_values(group, name)) for name in numbers}
        data.append({"parameters": point, "results": intervals})
        lines.append([*map(text, point.values()), *map(shown, intervals.values())])
    table = Table([*varied, *numbers], lines, left=frozenset(varied))
    result = msgspec.to_builtins({"runs": len(rows), "means": data})
    return Report(render(table), result)


def shown(interval: Interval) -> str:
    """Write a mean and its interval, both to two digits of the interval."""
    if isnan(interval.mean):
        return "-"
    if isnan(interval.half):
        return f"{interval.mean:.6g}"
    digits = 1 - floor(log10(interval.half)) if interval.half > 0 else 6
    kept = max(0, digits)
    return f"{round(interval.mean, digits):.{kept}f} ± {round(interval.half, digits):.{kept}f}"


def text(value: Any) -> str:
    """Write the value of a parameter."""
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)


def _varied(rows: Sequence[Row]) -> list[str]:
    """Parameters with more than one value, or all if none has."""
    names = [name for name in _names(row.parameters for row in rows) if name != SEED]
    several = [name for name in names if len({repr(row.parameters.get(name)) for row in rows}) > 1]
    return several or names


def _names(mappings: Any) -> list[str]:
    """Names in the order in which they are met first."""
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def _any_number(rows: Sequence[Row], name: str) -> bool:
    return bool(_values(rows, name))


def _values(rows: Sequence[Row], name: str) -> list[float]:
    """Numbers of this name; runs that gave none are left out."""
    values = [row.result.get(name) for row in rows]
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
