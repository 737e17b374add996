"""Figures 5.1 to 5.9 of GUIM as tables and pictures, and verdicts on its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scheduler.text.tables import Table, render
from simulator.predictions.fake import QUALITATIVE
from simulator.results.statistics import mean_interval
from simulator.studies.claims import as_records, as_table, plus_minus
from simulator.studies.fmodels.claims import claims
from simulator.studies.fmodels.results import Cell, ErrorKind, ErrorResults
from simulator.study.study import Report, Row

#: Number of a figure -> workload (None: all) and categories.
FIGURES: Final[dict[str, tuple[str | None, tuple[str, ...]]]] = {
    "5.1": (None, ("pure-equal",)),
    "5.2": ("SDSC-Par-96", ("equal", "large", "short")),
    "5.3": ("CTC", ("equal", "large", "short")),
    "5.4": ("KTH", ("equal", "large", "short")),
    "5.5": ("LANL", ("equal", "large", "short")),
    "5.6": ("CTC", QUALITATIVE),
    "5.7": ("LANL", QUALITATIVE),
    "5.8": ("KTH", QUALITATIVE),
    "5.9": ("SDSC-Par-96", QUALITATIVE),
}


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables and pictures of the figures, of the other categories, and the claims."""
    from simulator.studies.fmodels.pictures import pictures  # late: matplotlib is slow to load

    results = ErrorResults(rows)
    found = claims(results)
    shown = {name for _, names in FIGURES.values() for name in names}
    tables = [
        (f"Figure {number}, {workload or 'all workloads'}", lines(results, workload, categories))
        for number, (workload, categories) in FIGURES.items()
    ]
    others = tuple(dict.fromkeys(s.category for s in results.series if s.category not in shown))
    tables.append(
        ("Other categories, which the thesis does not show", lines(results, None, others))
    )
    unknown = [w for w in results.workloads if all(w != of for of, _ in FIGURES.values())]
    tables += [(f"Workload {w}", lines(results, w, tuple(sorted(shown)))) for w in unknown]
    text = "\n\n".join(
        [
            "95th percentile of the bounded slowdown, by error or share of converted jobs (%)",
            *(f"{title}\n{table}" for title, table in tables if table),
            as_table(found),
        ]
    )
    data = {"seeds": results.seeds, "points": [*results.data()], "claims": as_records(found)}
    return Report(text, data, {} if out is None else pictures(results, FIGURES))


def lines(results: ErrorResults, workload: str | None, categories: Sequence[str]) -> str:
    """Table of a figure: a line for each combination and kind of errors; "" if none was run."""
    kinds = [series for name in categories for series in results.series if series.category == name]
    if not kinds:
        return ""
    xs = sorted({x for series in kinds for x in results.xs(series)})
    rows = [
        [*cell, _kind(series), *(_cell(results, cell, series, x) for x in xs)]
        for series in kinds
        for cell in results.cells
        if workload in (None, cell.workload)
    ]
    headings = ["WORKLOAD", "POLICY", "CATEGORY", *(f"{x:g}" for x in xs)]
    return render(Table(headings, rows, left=frozenset(headings[:3]))) if rows else ""


def _kind(series: ErrorKind) -> str:
    wide = series.deviations == "wide"
    return f"{series.category}, wide" if wide else series.category


def _cell(results: ErrorResults, cell: Cell, series: ErrorKind, x: float) -> str:
    values = results.values(cell, series, x)
    return plus_minus(mean_interval(values)) if values else ""
