"""Tables 6.1 to 6.4 of GUIM beside ours, and verdicts on the sentences of 6.4."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, log
from pathlib import Path
from typing import Any, Final, TypeAlias

from scheduler.text.tables import Table, render
from simulator.results.statistics import Interval, mean, mean_interval
from simulator.studies.claims import NOT_RUN, Claim, as_records, as_table, by_sign, plus_minus
from simulator.studies.sharing.paper import MEAN, P95
from simulator.study.study import Report, Row

SELECTIONS: Final = {"equi-distribute": "FF", "contiguous": "FC"}
WITH_SHARING: Final = ("low", "med", "high")
#: Columns of a table: our metric, in the order of the paper's numbers.
COLUMNS: Final = {
    "P95": ("bsld_p95", "wait_p95_s", "penalised_mean_pct", "killed"),
    "mean": ("bsld_mean", "wait_mean_s", "penalised_mean_pct", "killed"),
}
PAPER: Final = {"P95": P95, "mean": MEAN}

#: (centre or trace, mix, selection).
Key: TypeAlias = tuple[str, str, str]


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables with the paper's numbers in brackets, the trace that fits them, and the claims."""
    results = SharingResults(rows)
    claims = judge(results)
    fits = {
        centre: {trace: results.distance(centre, trace) for trace in results.traces(centre)}
        for centre in ("CTC", "SDSC")
    }
    lines = [
        f"{centre}: " + ", ".join(f"{trace} {distance:.2f}" for trace, distance in each.items())
        for centre, each in fits.items()
    ]
    text = "\n\n".join(
        [
            *(_table(results, kind) for kind in COLUMNS),
            "Mean |ln(ours / paper)| over the cells of both tables, smaller is nearer:\n"
            + "\n".join(lines),
            as_table(claims),
        ]
    )
    data = {
        "tables": results.data(),
        "distances": fits,
        "claims": as_records(claims),
    }
    return Report(text, data)


class SharingResults:
    """Results by trace, mix and selection; those of one key are in the order of the seeds."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows: dict[Key, list[Row]] = {}
        self._centres: dict[str, str] = {}
        for row in rows:
            p = row.parameters
            selection = SELECTIONS.get(p["selection"], p["selection"])
            self._rows.setdefault((p["name"], p["mix"], selection), []).append(row)
            self._centres[p["name"]] = "CTC" if p["name"].startswith("CTC") else "SDSC"

    def __iter__(self) -> Any:
        """Iterate over the keys."""
        return iter(self._rows)

    def centre(self, trace: str) -> str:
        """Centre of the paper's tables that a trace stands for."""
        return self._centres[trace]

    def traces(self, centre: str) -> list[str]:
        """Traces of a centre."""
        return [trace for trace, of in self._centres.items() if of == centre]

    def values(self, key: Key, metric: str) -> list[float]:
        """A metric of the runs of a key, in the order of the seeds; empty if there are none."""
        rows = sorted(self._rows.get(key, ()), key=lambda row: row.parameters["seed"])
        return [float(row.result[metric]) for row in rows]

    def distance(self, centre: str, trace: str) -> float:
        """Mean absolute logarithm of our slowdowns and waits over the paper's; nan without runs."""
        found = []
        for kind, table in PAPER.items():
            for (of, mix, selection), paper in table.items():
                for metric, value in zip(COLUMNS[kind][:2], paper[:2], strict=True):
                    ours = mean(self.values((trace, mix, selection), metric))
                    if of == centre and ours > 0:
                        found.append(abs(log(ours / value)))
        return mean(found)

    def data(self) -> list[dict[str, Any]]:
        """Means with their intervals, for JSON."""
        metrics = dict.fromkeys(metric for columns in COLUMNS.values() for metric in columns)
        return [
            {"trace": key[0], "mix": key[1], "selection": key[2]}
            | {metric: _plain(mean_interval(self.values(key, metric))) for metric in metrics}
            for key in self
        ]


def judge(results: SharingResults) -> list[Claim]:
    """Judge the sentences of GUIM 6.4, for each trace.

    A claim is that a difference is above 0; it is taken seed by seed.
    """
    claims: list[Claim] = []
    for centre in ("CTC", "SDSC"):
        for trace in results.traces(centre):
            claims += _of_demands(results, centre, trace)
            claims += _of_selections(results, centre, trace)
    return claims


def _of_demands(results: SharingResults, centre: str, trace: str) -> list[Claim]:
    """More jobs with high demands make every metric worse."""
    claims = []
    names = {
        "bsld_p95": "bounded slowdown, P95",
        "wait_p95_s": "wait, P95",
        "killed": "number of killed jobs",
    }
    places = {"bsld_p95": 0, "wait_p95_s": 1, "killed": 3}
    for selection in SELECTIONS.values():
        for metric, name in names.items():
            for less, more in (("none", "low"), ("low", "med"), ("med", "high")):
                paper = [P95[centre, mix, selection][places[metric]] for mix in (less, more)]
                text = f"{name} grows from {less} to {more}, {selection}"
                ours = _difference(
                    results, metric, (trace, more, selection), (trace, less, selection)
                )
                value = round(paper[1] - paper[0], 2)
                claims.append(Claim(text, ours, value, by_sign(ours), "GUIM table 6.3", trace))
    return claims


def _of_selections(results: SharingResults, centre: str, trace: str) -> list[Claim]:
    """First continuous fit kills and penalises more; which selection has the shorter waits."""
    claims = []
    for mix in WITH_SHARING:
        for metric, name, place in (
            ("killed", "killed jobs", 3),
            ("penalised_mean_pct", "penalised run time, %", 2),
        ):
            paper = P95[centre, mix, "FC"][place] - P95[centre, mix, "FF"][place]
            ours = _difference(results, metric, (trace, mix, "FC"), (trace, mix, "FF"))
            text = f"more {name} with FC than with FF, {mix}"
            value = round(paper, 2)
            claims.append(Claim(text, ours, value, by_sign(ours), "GUIM table 6.3", trace))
    better, worse = ("FC", "FF") if centre == "CTC" else ("FF", "FC")
    for metric, name, number, table in (
        ("bsld_p95", "bounded slowdown, P95", "6.1", P95),
        ("bsld_mean", "bounded slowdown, mean", "6.2", MEAN),
    ):
        paper = table[centre, "none", worse][0] - table[centre, "none", better][0]
        ours = _difference(results, metric, (trace, "none", worse), (trace, "none", better))
        text = f"run times of the trace: {name} of {worse} above that of {better}"
        part = f"GUIM table {number}"
        claims.append(Claim(text, ours, round(paper, 2), by_sign(ours), part, trace))
    return claims


def _difference(results: SharingResults, metric: str, more: Key, less: Key) -> Interval:
    """Interval of the difference of two keys, paired by seed; nan if one was not run."""
    pairs = zip(results.values(more, metric), results.values(less, metric), strict=False)
    differences = [a - b for a, b in pairs]
    return mean_interval(differences) if differences else NOT_RUN


def _plain(interval: Interval) -> dict[str, float | None]:
    values = {"mean": interval.mean, "low": interval.low, "high": interval.high}
    return {name: None if isnan(value) else value for name, value in values.items()}


def _table(results: SharingResults, kind: str) -> str:
    title = {"P95": "Tables 6.1 and 6.3, 95th percentiles", "mean": "Tables 6.2 and 6.4, means"}
    lines = []
    for key in results:
        trace, mix, selection = key
        paper = PAPER[kind].get((results.centre(trace), mix, selection))
        cells = []
        for i, metric in enumerate(COLUMNS[kind]):
            ours = plus_minus(mean_interval(results.values(key, metric)))
            cells.append(ours if paper is None else f"{ours} ({paper[i]:g})")
        lines.append([trace, mix, selection, *cells])
    headings = ["TRACE", "MIX", "SELECTION", "BSLD", "WAIT, S", "% PRT", "KILLED"]
    table = Table(headings, lines, left=frozenset(headings[:3]))
    return f"{title[kind]}; the paper's in brackets\n{render(table)}"
