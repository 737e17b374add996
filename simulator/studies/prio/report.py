"""The report of the PRIO study: tables 1 to 5 with the paper's values, claims, figures, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from simulator.results.statistics import Interval
from simulator.studies.prio.claims import COMPLETION, EXECUTION, SHARES, UTILIZATION, WAIT, claims
from simulator.studies.prio.runs import Mixes, of, paper
from simulator.studies.results import reported, titled
from simulator.study.report import shown
from simulator.study.study import Report, Row

WITH_STATIC = {0: "static", **SHARES}
#: Rows of table 5 -> the case of each.
TABLE_5 = {
    "static": "static",
    "static with priority": "static with priority",
    "pba-pr": "pba-pr 50 %",
    "pba-pr with priority": "pba-pr with priority",
}


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables with ours and the paper's values, claims with their verdicts, and figures."""
    mixes = Mixes(rows)
    n = len(mixes.seeds)
    parts = [
        f"{n} job mixes; ours as mean ± half of the 95 % interval; improvements over static are"
        " means over the mixes; the paper's values are in brackets",
        *_tables(mixes),
    ]
    data = {
        "mixes": n,
        "scenarios": _scenarios(mixes),
        "resizable": _shares(mixes),
        "priorities": _priorities(mixes),
    }
    files: dict[str, bytes] = {}
    if out is not None:
        from simulator.studies.prio.figures import (
            figures,
        )  # imported here: matplotlib is slow to load

        files = figures(mixes)
    plain_data = msgspec.to_builtins(data)
    return reported(parts, plain_data, claims(mixes), files, "Claims of section 4")


def _tables(mixes: Mixes) -> list[str]:
    """Tables 1 to 5, as far as their cases were run."""
    names = [name for name in paper.names if name in mixes and "static" in mixes]
    tables = [_table_1(mixes, names), _table_2(mixes, names), _table_3(mixes, names)]
    shares = {share: name for share, name in WITH_STATIC.items() if name in mixes}
    return [*tables, _table_4(mixes, shares), _table_5(mixes)]


def _table_1(mixes: Mixes, names: Sequence[str]) -> str:
    rows = []
    for name in names:
        theirs = paper.table_1[name]
        ours = [mixes.mean(name, UTILIZATION)]
        for pick in (COMPLETION, EXECUTION):
            ours += [mixes.mean(name, pick), mixes.improvement(name, pick)]
        cells = [_beside(o, t) if t is not None else "" for o, t in zip(ours, theirs, strict=True)]
        cells[1] = _beside(ours[1], theirs[1])
        rows.append([paper.names[name], *cells])
    head = ["SCENARIO", "UTILISATION %", "COMPLETION s", "IMPROV. %", "EXECUTION s", "IMPROV. %"]
    return titled("Table 1: completion and execution", head, rows)


def _table_2(mixes: Mixes, names: Sequence[str]) -> str:
    rows = []
    for name in names:
        pairs = zip(mixes.spread(name, WAIT), paper.table_2[name], strict=True)
        rows.append([paper.names[name], *(f"{ours:.1f} ({theirs:.1f})" for ours, theirs in pairs)])
    head = ["SCENARIO", "AVERAGE s", "STD. DEV.", "MAX", "MIN", "RANGE"]
    return titled("Table 2: queue wait over the mixes", head, rows)


def _table_3(mixes: Mixes, names: Sequence[str]) -> str:
    values = {name: mixes.values(name, COMPLETION) for name in names}
    rows = []
    for i, seed in enumerate(mixes.seeds[: len(paper.table_3["static"])]):
        row = [f"{values[name][i]:.1f} ({paper.table_3[name][i]:.1f})" for name in names]
        rows.append([f"mix {seed}", *row])
    for label, index in (("mean", 0), ("st. dev.", 1)):
        theirs = {name: _mean_and_deviation(paper.table_3[name])[index] for name in names}
        ours = {name: mixes.spread(name, COMPLETION)[index] for name in names}
        rows.append([label, *(f"{ours[name]:.1f} ({theirs[name]:.1f})" for name in names)])
    title = "Table 3: mean completion of each mix, s (mixes are not the paper's)"
    return titled(title, ["MIX", *(paper.names[name] for name in names)], rows)


def _table_4(mixes: Mixes, shares: dict[int, str]) -> str:
    rows = []
    for share, name in shares.items():
        pairs = zip(mixes.spread(name, WAIT), paper.table_4[share], strict=True)
        label = f"{share} %" if share else "Static"
        rows.append([label, *(f"{ours:.1f} ({theirs:.1f})" for ours, theirs in pairs)])
    head = ["RESIZABLE", "AVERAGE s", "STD. DEV.", "MAX", "MIN", "RANGE"]
    return titled("Table 4: queue wait by share of resizable jobs, PBA-PR", head, rows)


def _table_5(mixes: Mixes) -> str:
    rows = []
    for label, name in TABLE_5.items():
        if name in mixes:
            picks = [COMPLETION, *(of("mean_completion_s", user=user) for user in paper.by_class)]
            pairs = zip(picks, paper.table_5[label], strict=True)
            rows.append([label, *(_beside(mixes.mean(name, p), theirs) for p, theirs in pairs)])
    head = ["SCENARIO", "ALL s", "GOLD s", "PLATINUM s"]
    return titled("Table 5: completion by class of user, half of the jobs resizable", head, rows)


def _beside(ours: Interval, theirs: float) -> str:
    same = ours.half < 1e-9 * abs(ours.mean)  # all mixes are equal but for rounding
    return f"{f'{ours.mean:g}' if same else shown(ours)} ({theirs:g})"


def _mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    middle = sum(values) / len(values)
    return middle, (sum((v - middle) ** 2 for v in values) / (len(values) - 1)) ** 0.5


def _scenarios(mixes: Mixes) -> dict[str, Any]:
    """Numbers of each scenario with their intervals, by our names of the scenarios."""
    return {
        name: {
            "mean_completion_s": mixes.mean(name, COMPLETION),
            "completion_improvement_pct": mixes.improvement(name, COMPLETION),
            "mean_execution_s": mixes.mean(name, EXECUTION),
            "execution_improvement_pct": mixes.improvement(name, EXECUTION),
            "mean_wait_s": mixes.mean(name, WAIT),
            "utilization_pct": mixes.mean(name, UTILIZATION),
        }
        for name in paper.names
        if name in mixes and "static" in mixes
    }


def _shares(mixes: Mixes) -> dict[str, Any]:
    return {
        str(share): {
            "completion_improvement_pct": mixes.improvement(name, COMPLETION),
            "mean_wait_s": mixes.mean(name, WAIT),
            "utilization_pct": mixes.mean(name, UTILIZATION),
        }
        for share, name in WITH_STATIC.items()
        if name in mixes and "static" in mixes
    }


def _priorities(mixes: Mixes) -> dict[str, Any]:
    return {
        label: {
            user: {"mean_completion_s": mixes.mean(name, of("mean_completion_s", user=user))}
            for user in paper.by_class
        }
        for label, name in TABLE_5.items()
        if name in mixes
    }
