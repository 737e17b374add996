"""Tables 7.1 to 7.8 of GUIM beside ours, figures 7.8 to 7.12, and the claims of 7.6."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from scheduler.text.tables import Table, render
from simulator.studies.claims import plus_minus, record
from simulator.studies.rua.claims import RuaClaim, judge
from simulator.studies.rua.paper import TABLES
from simulator.studies.rua.pictures import pictures
from simulator.studies.rua.results import RuaResults, centre
from simulator.study.study import Report, Row

CLAIM_COLUMNS: Final = ("claim", "trace", "mix", "paper", "ours", "tables", "verdict")


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables with the thesis' numbers in brackets, the claims, and the figures."""
    results = RuaResults(rows)
    claims = judge(results)
    text = "\n\n".join([*(_table(results, metric) for metric in TABLES), _claims_table(claims)])
    data = {"tables": results.data(), "claims": [_claim_data(claim) for claim in claims]}
    return Report(text, data, pictures(results))


def _claim_data(claim: RuaClaim) -> dict[str, Any]:
    ours = claim.ours
    return record(
        claim.id,
        claim.text,
        claim.paper,
        (ours.mean, ours.low, ours.high),
        claim.verdict,
        trace=claim.trace,
        mix=claim.mix,
        tables=claim.tables,
    )


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


def _claims_table(claims: Sequence[RuaClaim]) -> str:
    """Write the claims; `tables` is the verdict on the thesis' own numbers."""
    lines = []
    for claim in claims:
        paper = "" if claim.paper is None else f"{claim.paper:g}"
        ours = plus_minus(claim.ours, ".2f")
        lines.append([claim.text, claim.trace, claim.mix, paper, ours, claim.tables, claim.verdict])
    headings = [name.upper() for name in CLAIM_COLUMNS]
    numbers = {"PAPER", "OURS"}
    return render(Table(headings, lines, left=frozenset(headings) - numbers))
