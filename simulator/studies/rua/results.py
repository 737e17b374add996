"""Results of the RUA study by trace, mix and strategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any, TypeAlias

from simulator.results.statistics import Interval, mean_interval
from simulator.studies.claims import NOT_RUN
from simulator.studies.rua.paper import TABLES
from simulator.study.study import Row

#: (trace, mix, strategy).
Key: TypeAlias = tuple[str, str, str]


class RuaResults:
    """Results by key; those of one key are in the order of the seeds."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows: dict[Key, list[Row]] = {}
        for row in sorted(rows, key=lambda row: int(row.parameters["seed"])):
            p = row.parameters
            self._rows.setdefault((p["name"], p["mix"], p["strategy"]), []).append(row)

    def __iter__(self) -> Iterator[Key]:
        """Iterate over the keys."""
        return iter(self._rows)

    @property
    def traces(self) -> list[str]:
        """Names of the traces."""
        return list(dict.fromkeys(trace for trace, _, _ in self))

    def mixes(self, trace: str) -> list[str]:
        """Mixes of demands that were run for a trace."""
        return list(dict.fromkeys(mix for of, mix, _ in self if of == trace))

    def strategies(self, trace: str, mix: str) -> list[str]:
        """Strategies that were run for a trace and a mix."""
        return [strategy for of, its, strategy in self if (of, its) == (trace, mix)]

    def values(self, key: Key, metric: str) -> list[float]:
        """A metric of the runs of a key, in the order of the seeds; empty if there are none."""
        return [float(row.result[metric]) for row in self._rows.get(key, ())]

    def interval(self, key: Key, metric: str) -> Interval:
        """Mean of a metric with its interval; nan if there are no runs."""
        return interval_of(self.values(key, metric))

    def data(self) -> list[dict[str, Any]]:
        """Means with their intervals, and the thesis' numbers, for JSON."""
        found = []
        for key in self:
            trace, mix, strategy = key
            cells = {}
            for metric, (_, _, paper) in TABLES.items():
                cells[metric] = plain(self.interval(key, metric)) | {
                    "paper": paper.get((centre(trace), mix, strategy))
                }
            found.append({"trace": trace, "mix": mix, "strategy": strategy} | cells)
        return found


def centre(trace: str) -> str:
    """Centre of the thesis' tables that a trace stands for."""
    return "CTC" if trace.startswith("CTC") else "SDSC"


def interval_of(values: Sequence[float]) -> Interval:
    """Mean with its interval; nan without values."""
    return mean_interval(values) if values else NOT_RUN


def plain(interval: Interval) -> dict[str, float | None]:
    """Mean and limits for JSON, without nan."""
    values = {"mean": interval.mean, "low": interval.low, "high": interval.high}
    return {name: None if isnan(value) else value for name, value in values.items()}
