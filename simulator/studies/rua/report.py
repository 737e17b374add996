"""Tables 7.1 to 7.8 of GUIM beside ours, figures 7.8 to 7.12, and the claims of 7.6."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simulator.studies.results import StudyResults, beside, plain, reported, titled
from simulator.studies.rua.claims import TABLES, judge, printed
from simulator.studies.rua.pictures import pictures
from simulator.study.study import Report, Row


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables with the thesis' numbers in brackets, the claims, and the figures."""
    results = StudyResults(rows, lambda p: (p["name"], p["mix"], p["strategy"]))
    tables = [_table(results, metric) for metric in TABLES]
    return reported(tables, {"tables": _data(results)}, judge(results), pictures(results))


def _table(results: StudyResults, metric: str) -> str:
    columns = list(dict.fromkeys(strategy for _, _, strategy in results))
    form = ".0f" if metric in ("wait_p95_s", "wait_mean_s", "killed", "cpus_p95") else ".1f"
    lines = []
    for trace in results.parts():
        for mix in results.parts(trace):
            keys = [(trace, mix, strategy) for strategy in columns]
            cells = (
                beside(results.interval(key, metric), printed(metric, key), form) for key in keys
            )
            lines.append([trace, mix, *cells])
    title = f"Table {TABLES[metric]['number']}: {TABLES[metric]['title']}; the thesis' in brackets"
    return titled(title, ["TRACE", "MIX", *columns], lines, 2)


def _data(results: StudyResults) -> list[dict[str, Any]]:
    """Means with their intervals, and the thesis' numbers, for JSON."""
    return [
        {"trace": key[0], "mix": key[1], "strategy": key[2]}
        | {
            metric: plain(results.interval(key, metric)) | {"paper": printed(metric, key)}
            for metric in TABLES
        }
        for key in results
    ]
