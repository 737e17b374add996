"""The readings of LOC that its text leaves open, and which of them explain its claims.

A run is one part of a trace under one policy, selection and speed-up, in one reading. A reading of
the paper has four parts: the rounding of times to minutes, whether the estimates of jobs that run
faster are scaled too, what EASY reserves for the head, and which jobs it ends when the time of the
reservation has come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from scheduler.config import machine_file as platform
from scheduler.policies.scenarios import scenario
from scheduler.text.tables import Table, render
from simulator.results.statistics import Interval, mean_interval
from simulator.run import run as simulate
from simulator.studies.claims import (
    HELD,
    OPPOSITE,
    Claim,
    as_records,
    as_table,
    by_range,
    with_limits,
)
from simulator.studies.loc.curves import TOTAL, WAIT, Curve
from simulator.studies.loc.runs import COST, MINUTE_S, RULES, THRESHOLDS
from simulator.study.study import SEED, Report, Row, trace_path
from simulator.traces import swf
from simulator.traces.normalise import NEEDED, machine_size
from simulator.traces.swf import Trace

FLAT = "first-fit"
#: What `kill` means: fields of the scenario.
KILLS: dict[str, dict[str, Any]] = {
    "none": {},
    "overdue": {"backfill.kill_at_reservation": True},
    "later": {"backfill.kill_at_reservation": True, "backfill.kill": "later"},
    "walltime": {},
}
SAME = 0.05  #: thresholds at most so far apart are "about the same"
SHOWN = 8  # readings whose claims are in the text


def run(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Simulate a part of a trace.

    Parameters
    ----------
    parameters : `trace`, `k` (of the k-ary n-tree, whose n is the smallest with room for the
        machine), `jobs` (of a part; null: the whole trace), `seed` (number of the part, from 1),
        `policy` ("fcfs" or "easy"), `select`, `speedup`, and the reading: `minutes` ("exact",
        "nearest" or "up"), `estimates` ("kept" or "scaled"), `reserve` ("place" or "number"),
        `kill` ("none"; "overdue" or "later", as `Backfill.kill`; "walltime": every job at its
        estimate).

    Returns
    -------
    Means in minutes, `utilization` and `killed`.
    """
    trace = swf.read(trace_path(parameters, parameters["trace"]), fields=NEEDED)
    processors = machine_size(trace)
    trace = _part(trace, parameters["jobs"], parameters[SEED])
    speedup = parameters["speedup"]
    scaled = 1 - speedup if parameters["estimates"] == "scaled" else 1.0
    trace = _rounded(trace, parameters["minutes"], scaled)
    levels = 1
    while parameters["k"] ** levels < processors:
        levels += 1
    fields = {"selection": parameters["select"]}
    if parameters["policy"] == "easy":
        kill = parameters["kill"]
        if parameters["select"] != FLAT:
            fields |= KILLS[kill] | {"backfill.reserve": parameters["reserve"]}
        else:  # a place for the head is any place: the readings are one
            fields |= KILLS["overdue" if kill == "later" else kill]
    by_walltime = parameters["kill"] == "walltime"
    rules = msgspec.structs.replace(RULES, overrun="cut") if by_walltime else RULES
    schedule = simulate(
        trace,
        platform.tree(processors, parameters["k"], levels),
        scenario(parameters["policy"], fields),
        rules,
        counted=False,
        contiguity_speedup=speedup or None,
    )
    numbers = schedule.metrics()
    return {
        "jobs": numbers.jobs,
        "killed": numbers.killed,
        WAIT: numbers.mean_wait_s / MINUTE_S,
        TOTAL: numbers.mean_turnaround_s / MINUTE_S,
        "utilization": numbers.utilization,
    }


def _part(trace: Trace, jobs: int | None, number: int) -> Trace:
    """Part of a trace with this many jobs, in the order of submission; all of it if None."""
    if jobs is None:
        return trace
    order = np.argsort(trace.columns["submit"], kind="stable")
    lines = order[(number - 1) * jobs : number * jobs]
    columns = {name: column[lines] for name, column in trace.columns.items()}
    return Trace(trace.path, trace.header, columns, trace.oddities)


def _rounded(trace: Trace, minutes: str, scaled: float) -> Trace:
    """Trace with its times in whole minutes, and requested times multiplied by a factor."""
    columns = dict(trace.columns)
    requested = columns["requested_time"]
    columns["requested_time"] = np.where(requested > 0, requested * scaled, requested)
    if minutes != "exact":
        to_minutes = {"nearest": np.rint, "up": np.ceil}[minutes]
        columns["submit"] = np.floor(columns["submit"] / MINUTE_S) * MINUTE_S
        for name in ("run", "requested_time"):
            times = columns[name]
            columns[name] = np.where(times > 0, to_minutes(times / MINUTE_S) * MINUTE_S, times)
    return Trace(trace.path, trace.header, columns, trace.oddities)


class PlacementReading(NamedTuple):
    """A reading of the paper; see the module docstring."""

    minutes: str
    estimates: str
    reserve: str
    kill: str

    def __str__(self) -> str:
        """Short text, part of the ids of claims."""
        return "/".join(self)

    @property
    def is_default(self) -> bool:
        """Whether it is that of the LOC study."""
        return self == ("exact", "kept", "place", "overdue")


class JudgedPlacementReading(msgspec.Struct, frozen=True):
    """A reading of a trace: costs and thresholds over its parts, and the verdicts.

    Parameters
    ----------
    costs, thresholds : policy -> mean over the parts. A part in which no speed-up pays counts with
        the largest one.
    unpaid : policy -> number of such parts.
    """

    trace: str
    reading: PlacementReading
    costs: dict[str, Interval]
    thresholds: dict[str, Interval]
    unpaid: dict[str, int]
    claims: list[Claim]

    @property
    def held(self) -> int:
        """Number of claims that held."""
        return sum(claim.verdict == HELD for claim in self.claims)


def judged(rows: Sequence[Row]) -> list[JudgedPlacementReading]:
    """All readings by trace, those with most claims held first."""
    runs = _Runs(rows)
    found = []
    for trace in runs.traces:
        for reading in runs.readings:
            curves = {
                policy: list(runs.curves(trace, policy, reading)) for policy in ("fcfs", "easy")
            }
            if curves["easy"]:
                found.append(_judged(trace, reading, curves))
    order = {_label(trace): i for i, trace in enumerate(runs.traces)}
    found.sort(key=lambda j: (order[j.trace], -j.held, not j.reading.is_default))
    return found


def _label(trace: str) -> str:
    """Short name of a trace."""
    return trace.split("-")[0]


class _Runs:
    """Curves by trace, policy and reading."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._flat: dict[tuple[Any, ...], Mapping[str, float]] = {}
        self._points: dict[tuple[Any, ...], dict[float, Mapping[str, float]]] = {}
        self._parts: list[int] = sorted({row.parameters[SEED] for row in rows})
        for row in rows:
            p = row.parameters
            key = p["trace"], p["policy"], p[SEED], p["minutes"]
            key += () if p["policy"] == "fcfs" else (p["kill"],)
            if p["select"] == FLAT:
                self._flat[key] = row.result
                continue
            key += () if p["policy"] == "fcfs" else (p["estimates"], p["reserve"])
            self._points.setdefault(key, {})[p["speedup"]] = row.result
        self.traces = list(dict.fromkeys(row.parameters["trace"] for row in rows))
        names = PlacementReading._fields
        self.readings = list(
            dict.fromkeys(
                PlacementReading(*(row.parameters[name] for name in names))
                for row in rows
                if row.parameters["policy"] == "easy" and row.parameters["select"] != FLAT
            )
        )

    def curves(self, trace: str, policy: str, reading: PlacementReading) -> Iterator[Curve]:
        """Curve of each part."""
        for part in self._parts:
            key: tuple[Any, ...] = (trace, policy, part, reading.minutes)
            flat_key = key if policy == "fcfs" else (*key, reading.kill)
            last = () if policy == "fcfs" else (reading.estimates, reading.reserve)
            points = self._points.get((*flat_key, *last))
            if points and flat_key in self._flat:
                yield Curve(self._flat[flat_key], dict(sorted(points.items())))


def _judged(
    trace: str, reading: PlacementReading, curves: Mapping[str, Sequence[Curve]]
) -> JudgedPlacementReading:
    costs, thresholds, unpaid, by_part = {}, {}, {}, {}
    for policy, own in curves.items():
        values = [curve.cost() for curve in own]
        costs[policy] = mean_interval([value for value in values if value is not None])
        found = [curve.threshold() for curve in own]
        largest = [max(curve.points) for curve in own]
        by_part[policy] = [m if f is None else f for f, m in zip(found, largest, strict=True)]
        thresholds[policy] = mean_interval(by_part[policy])
        unpaid[policy] = found.count(None)
    label = _label(trace)
    claims = [*judge(label, costs, thresholds, by_part)]
    where = f"{label} {reading}"
    claims = [
        msgspec.structs.replace(claim, id=f"{label}/{reading}/{claim.id}", where=where)
        for claim in claims
        if not isnan(claim.ours.mean)
    ]
    return JudgedPlacementReading(label, reading, costs, thresholds, unpaid, claims)


def judge(
    label: str,
    costs: Mapping[str, Interval],
    thresholds: Mapping[str, Interval],
    by_part: Mapping[str, Sequence[float]],
) -> Iterator[Claim]:
    """Judge the claims of LOC section 4 on a trace."""
    names = {"fcfs": "FCFS", "easy": "EASY"}
    for policy, name in names.items():
        text = f"{name}: wait without speed-up, times that of first fit"
        verdict = by_range(costs[policy], *COST)
        yield Claim(text, costs[policy], "7 to 100", verdict, id=f"cost-{policy}")
    for policy in names if label == "HPC2N" else ("easy",):
        if label in THRESHOLDS:
            low, high, paper = THRESHOLDS[label]
            verdict = by_range(thresholds[policy], low, high)
            text = f"{names[policy]}: threshold"
            yield Claim(text, thresholds[policy], paper, verdict, id=f"threshold-{policy}")
    pairs = [*zip(by_part["easy"], by_part["fcfs"], strict=False)]
    if label == "HPC2N" and pairs:
        ours = mean_interval([easy - fcfs for easy, fcfs in pairs])
        text = "threshold of EASY minus that of FCFS"
        yield Claim(text, ours, "about the same", by_range(ours, -SAME, SAME), id="same")


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Readings by the number of claims that they explain, and the claims in the first of them."""
    found = judged(rows)
    parts = len({row.parameters[SEED] for row in rows})
    shown = []
    for trace in dict.fromkeys(j.trace for j in found):
        own = [j for j in found if j.trace == trace]
        shown += own[:SHOWN] + [j for j in own[SHOWN:] if j.reading.is_default]
    claims = [claim for j in shown for claim in j.claims]
    text = [
        f"{len(found)} readings, {parts} parts of each trace. COST: wait without speed-up over that"
        f" of first fit;\nTHRESHOLD: speed-up from which on contiguous allocations pay; UNPAID:"
        f" parts without a threshold\n{_table(found)}",
        f"Claims in the readings with most claims held, and in that of `reshape study loc`\n"
        f"{as_table(claims)}",
    ]
    data = {
        "readings": [_as_data(j) for j in found],
        "claims": as_records([claim for j in found for claim in j.claims]),
    }
    return Report("\n\n".join(text), data)


def _table(found: Sequence[JudgedPlacementReading]) -> str:
    head = [
        "TRACE",
        *(name.upper() for name in PlacementReading._fields),
        "COST, FCFS",
        "COST, EASY",
    ]
    head += ["THRESHOLD, FCFS", "THRESHOLD, EASY", "UNPAID", "HELD", "OPPOSITE"]
    lines = [
        [
            j.trace,
            *j.reading,
            *(with_limits(values[p]) for values in (j.costs, j.thresholds) for p in values),
            str(j.unpaid["easy"]),
            f"{j.held} of {len(j.claims)}",
            str(sum(claim.verdict == OPPOSITE for claim in j.claims)),
        ]
        for j in found
    ]
    return render(Table(head, lines, left=frozenset(head[:5])))


def _as_data(j: JudgedPlacementReading) -> dict[str, Any]:
    numbers = {
        f"{name}_{policy}": {"mean": of.mean, "low": of.low, "high": of.high}
        for name, values in (("cost", j.costs), ("threshold", j.thresholds))
        for policy, of in values.items()
    }
    return {
        "trace": j.trace,
        **j.reading._asdict(),
        **numbers,
        "unpaid": j.unpaid,
        "claims": len(j.claims),
        "held": j.held,
        "opposite": sum(claim.verdict == OPPOSITE for claim in j.claims),
    }
