"""Tables 7.1 to 7.8 of GUIM beside ours, figures 7.8 to 7.12, and the claims of 7.6."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scheduler.text.tables import Table, render
from simulator.studies.claims import as_records, as_table, plus_minus
from simulator.studies.rua.claims import judge
from simulator.studies.rua.paper import TABLES
from simulator.studies.rua.pictures import pictures
from simulator.studies.rua.results import RuaResults, centre
from simulator.study.study import Report, Row


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables with the thesis' numbers in brackets, the claims, and the figures."""
    results = RuaResults(rows)
    claims = judge(results)
    text = "\n\n".join([*(_table(results, metric) for metric in TABLES), as_table(claims)])
    data = {"tables": results.data(), "claims": as_records(claims)}
    return Report(text, data, pictures(results))


def _table(results: RuaResults, metric: str) -> str:
    number, title, paper = TABLES[metric]
    columns = list(dict.fromkeys(strategy for _, _, strategy in results))
    form = ".0f" if metric in ("wait_p95_s", "wait_mean_s", "killed", "cpus_p95") else ".1f"
    lines = []
    for trace in results.traces:
        for mix in results.mixes(trace):
            cells = []
            for strategy in columns:
                ours = plus_minus(results.interval((trace, mix, strategy), metric), form)
                printed = paper.get((centre(trace), mix, strategy))
                cells.append(ours if printed is None else f"{ours} ({printed:g})")
            lines.append([trace, mix, *cells])
    table = Table(["TRACE", "MIX", *columns], lines, left=frozenset(["TRACE", "MIX"]))
    return f"Table {number}: {title}; the thesis' in brackets\n{render(table)}"
