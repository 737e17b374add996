"""Study of GUIM chapter 6: shared nodes, tables 6.1 to 6.4, and runs for those of chapter 7.

F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures", 6.3: a run is a
trace with drawn demands: the first 10 000 jobs, nodes of four processors and 6000 MB/s, shortest
job backfilled first. The report has the tables beside ours, and verdicts on the sentences of 6.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

import simulator as sim
from simulator.results.statistics import Interval, mean
from simulator.studies.claims import (
    Claim,
    Key,
    StudyResults,
    beside,
    by_sign,
    keyed,
    paper,
    plain,
    reported,
    titled,
)
from simulator.study.study import TRACES, Parameters, Report, Row
from simulator.traces import swf
from simulator.traces.normalise import NEEDED
from simulator.workload_models.drawn import CAPACITY, MIXES, NAME, Demands

PER_NODE = 4


def run(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Simulate one trace with one mix of demands under one selection.

    Parameters
    ----------
    parameters : seed, trace, processors, jobs, mix ("none" for run times as in the trace, "high",
        "med" or "low"), selection; windows and penalty as of `Sharing`; tolerance_s, by which a job
        may exceed its request before it is killed, s; changes, further fields of the scenario.

    Returns
    -------
    bsld_p95, bsld_mean, wait_p95_s, wait_mean_s, penalised_p95_pct, penalised_mean_pct of the jobs
    that were not killed, and killed.
    """
    fields = {"backfill_order": "sjf", "selection": parameters["selection"]}
    return numbers(simulated(parameters, "easy", fields))


def simulated(
    parameters: Mapping[str, Any], policy: str, fields: Mapping[str, Any]
) -> sim.Simulation:
    """Simulate one trace with one mix of demands.

    Parameters
    ----------
    parameters : as of `run`, without the selection.
    policy, fields : scenario by name, and fields that it gets before those of `changes`.
    """
    mix = parameters["mix"]
    path = str(Path(parameters[TRACES]) / parameters["trace"])
    trace = _trace(path, float(parameters["tolerance_s"]))
    machine: dict[str, Any] = {
        "nodes": int(parameters["processors"]) // PER_NODE,
        "processors_per_node": PER_NODE,
    }
    sharing = None
    if mix != "none":
        trace = Demands(MIXES[mix]).of(trace, int(parameters["seed"]))
        machine["shared_per_node"] = {NAME: CAPACITY}
        sharing = {"windows": parameters["windows"], "penalty": parameters["penalty"]}
    return sim.simulate(
        sim.Jobs(trace).first(int(parameters["jobs"])),
        machine=machine,
        scenario={"name": policy, **fields, **(parameters.get("changes") or {})},
        sharing=sharing,
    )


def numbers(ran: sim.Simulation) -> dict[str, float]:
    """Metrics of the jobs that ran to their ends, and the number of those that were killed.

    Without sharing a job is killed if its run time is cut at the limit.
    """
    jobs = ran.jobs
    over = jobs["state"] == "completed"
    share = jobs.get("penalised_pct", np.zeros(jobs.rows))
    metrics = {"killed": float((jobs["state"] == "killed").sum())}
    for name, unit, values in (
        ("bsld", "", jobs["bounded_slowdown"]),
        ("wait", "_s", jobs["wait_s"]),
        ("penalised", "_pct", share),
    ):
        metrics[f"{name}_p95{unit}"] = float(np.percentile(values[over], 95))
        metrics[f"{name}_mean{unit}"] = float(values[over].mean())
    return metrics


@lru_cache(maxsize=1)
def _trace(path: str, tolerance_s: float) -> swf.Trace:
    """Trace whose jobs may exceed their requests by so much: the requests include it."""
    trace = swf.read(path, fields=NEEDED)
    requested = trace.columns["requested_time"]
    limit = np.where(requested > 0, requested + tolerance_s, requested)
    return msgspec.structs.replace(trace, columns=trace.columns | {"requested_time": limit})


PAPER: Final = paper("sharing")
#: (centre, mix, selection) -> the paper's numbers.
P95: Final = keyed(PAPER.p95)
MEAN: Final = keyed(PAPER.mean)
SELECTIONS: Final = {"equi-distribute": "FF", "contiguous": "FC"}
WITH_SHARING: Final = ("low", "med", "high")
#: Title of a table, the paper's numbers, and our metrics in their order.
TABLES: Final = (
    ("Tables 6.1 and 6.3, 95th percentiles", P95,
     ("bsld_p95", "wait_p95_s", "penalised_mean_pct", "killed")),
    ("Tables 6.2 and 6.4, means", MEAN,
     ("bsld_mean", "wait_mean_s", "penalised_mean_pct", "killed")),
)  # fmt: skip


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables with the paper's numbers in brackets, the trace that fits them, and the claims."""
    results = StudyResults(rows, _key)
    fits = {
        of: {trace: _distance(results, trace) for trace in results.parts() if centre(trace) == of}
        for of in ("CTC", "SDSC")
    }
    lines = [
        f"{of}: " + ", ".join(f"{trace} {distance:.2f}" for trace, distance in each.items())
        for of, each in fits.items()
    ]
    title = "Mean |ln(ours / paper)| over the cells of both tables, smaller is nearer:"
    parts = [*(_table(results, *table) for table in TABLES), "\n".join([title, *lines])]
    return reported(parts, {"tables": _data(results), "distances": fits}, judge(results))


def centre(trace: str) -> str:
    """Centre of the paper's tables that a trace stands for."""
    return "CTC" if trace.startswith("CTC") else "SDSC"


def _key(parameters: Parameters) -> Key:
    """Trace, mix and selection."""
    selection = parameters["selection"]
    return parameters["name"], parameters["mix"], SELECTIONS.get(selection, selection)


def _distance(results: StudyResults, trace: str) -> float:
    """Mean absolute logarithm of our slowdowns and waits over the paper's; nan without runs."""
    distances = []
    for _, table, metrics in TABLES:
        for (of, *key), numbers in table.items():
            for metric, value in zip(metrics[:2], numbers[:2], strict=True):
                ours = mean(results.values((trace, *key), metric))
                if of == centre(trace) and ours > 0:
                    distances.append(abs(log(ours / value)))
    return mean(distances)


def _data(results: StudyResults) -> list[dict[str, Any]]:
    """Means with their intervals, for JSON."""
    metrics = dict.fromkeys(metric for _, _, names in TABLES for metric in names)
    return [
        {"trace": key[0], "mix": key[1], "selection": key[2]}
        | {metric: plain(results.interval(key, metric)) for metric in metrics}
        for key in results
    ]


def _table(results: StudyResults, title: str, table: Any, metrics: Sequence[str]) -> str:
    lines = []
    for key in results:
        numbers = table.get((centre(key[0]), *key[1:]), [None] * len(metrics))
        pairs = zip(metrics, numbers, strict=True)
        lines.append([*key, *(beside(results.interval(key, m), number) for m, number in pairs)])
    head = ["TRACE", "MIX", "SELECTION", "BSLD", "WAIT, S", "% PRT", "KILLED"]
    return titled(f"{title}; the paper's in brackets", head, lines, 3)


def judge(results: StudyResults) -> list[Claim]:
    """Judge the sentences of GUIM 6.4, for each trace.

    A claim is that a difference is above 0; it is taken seed by seed.
    """
    traces = sorted(results.parts(), key=centre)
    return [
        claim
        for trace in traces
        for claim in (*_of_demands(results, trace), *_of_selections(results, trace))
    ]


def _of_demands(results: StudyResults, trace: str) -> list[Claim]:
    """More jobs with high demands make every metric worse."""
    claims = []
    for selection in SELECTIONS.values():
        for metric, name, index in (
            ("bsld_p95", "bounded slowdown, P95", 0),
            ("wait_p95_s", "wait, P95", 1),
            ("killed", "number of killed jobs", 3),
        ):
            for less, more in (("none", "low"), ("low", "med"), ("med", "high")):
                mine, other = (P95[centre(trace), mix, selection][index] for mix in (more, less))
                ours = results.difference(
                    metric, (trace, more, selection), (trace, less, selection)
                )
                text = f"{name} grows from {less} to {more}, {selection}"
                claims.append(_claim(text, ours, mine - other, "6.3", trace))
    return claims


def _of_selections(results: StudyResults, trace: str) -> list[Claim]:
    """First continuous fit kills and penalises more; which selection has the shorter waits."""
    claims, of = [], centre(trace)
    for mix in WITH_SHARING:
        for metric, name, index in (
            ("killed", "killed jobs", 3),
            ("penalised_mean_pct", "penalised run time, %", 2),
        ):
            value = P95[of, mix, "FC"][index] - P95[of, mix, "FF"][index]
            ours = results.difference(metric, (trace, mix, "FC"), (trace, mix, "FF"))
            text = f"more {name} with FC than with FF, {mix}"
            claims.append(_claim(text, ours, value, "6.3", trace))
    better, worse = ("FC", "FF") if of == "CTC" else ("FF", "FC")
    for metric, name, number, table in (
        ("bsld_p95", "bounded slowdown, P95", "6.1", P95),
        ("bsld_mean", "bounded slowdown, mean", "6.2", MEAN),
    ):
        value = table[of, "none", worse][0] - table[of, "none", better][0]
        ours = results.difference(metric, (trace, "none", worse), (trace, "none", better))
        text = f"run times of the trace: {name} of {worse} above that of {better}"
        claims.append(_claim(text, ours, value, number, trace))
    return claims


def _claim(text: str, ours: Interval, value: float, table: str, trace: str) -> Claim:
    return Claim(text, ours, round(value, 2), by_sign(ours), f"GUIM table {table}", trace)
