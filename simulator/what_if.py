"""What if: the jobs of a live run again under another scenario, both as runs that pages draw."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from reshape.errors import ReshapeError
from scheduler.client.web.journal_run import recorded_run
from scheduler.client.web.run_data import RunData
from scheduler.core.core import Core
from scheduler.journal.journal_reader import JournalReader
from scheduler.policies.scenarios import scenario
from scheduler.text.formats import format_time
from simulator.engine.engine import Engine
from simulator.live_runs import RecordedRun, costs, measured, shares_in
from simulator.results.report import run_of_schedule


def what_if(
    journal: JournalReader, name: str, policy: str, last_s: float = inf
) -> tuple[list[RunData], dict[str, Any]]:
    """Simulate the jobs of a journal that have ended, by the times that were measured of them.

    Parameters
    ----------
    name : of the live run, for people.
    policy : name of the other scenario.
    last_s : leave out jobs that were submitted longer ago, s.

    Returns
    -------
    runs : live and simulated; the same job has the same number in both. Times count from the
        earliest submission on.
    table : of the means of both, as `scheduler.client.web.document.report` takes them.

    Raises
    ------
    ReshapeError : there is no such scenario, the journal is not complete, or no such job has ended.
    """
    chosen = scenario(policy)
    batches, damage = journal.readable_batches()
    if damage and not batches:
        raise ReshapeError(damage)
    recorded = RecordedRun.of(batches)
    since = (batches[-1].events[0].at if batches else 0.0) - last_s
    jobs = [job for job in recorded.jobs if job.submitted_at >= since]
    if not jobs:
        raise ReshapeError(f"{name}: no job has started and ended in this time")
    numbers = [job.id for job in sorted(jobs, key=lambda job: job.submitted_at)]
    kept = {job.id for job in jobs}
    cost = costs(recorded)
    simulated = [
        each for job, each in zip(recorded.jobs, measured(recorded), strict=True) if job.id in kept
    ]
    nodes, like = recorded.core.machine.nodes.values(), recorded.core.partitions[0].machine
    core = Core.on(
        chosen,
        nodes,
        like,
        shares_in(recorded.core, chosen),
        kill_at_walltime=recorded.core.kill_at_walltime,
    )
    schedule = Engine(core, simulated, costs=cost, allocations=True).run()
    live = recorded_run(journal, f"{name}, as it was").part(numbers)
    other = run_of_schedule(schedule, f"simulated under {policy}", live.processors, live.hosts)
    other.numbers = numbers
    known = dict(zip(live.numbers, live.jobs, strict=True))
    other.jobs = [
        replace(row, label=known[number].label, name=known[number].name, user=known[number].user)
        for number, row in zip(numbers, other.jobs, strict=True)
    ]
    runs = [live, other]
    return runs, {
        "title": f"The same {len(jobs)} jobs under {policy}",
        "heads": ["", *(run.name for run in runs), "change"],
        "rows": [*_rows(runs)],
    }


def _rows(runs: list[RunData]) -> list[list[str]]:
    rows = []
    for title, name in (
        ("mean wait", "wait_s"),
        ("mean turnaround", "turnaround_s"),
        ("longest wait", "longest_wait_s"),
        ("from the first submission to the last end", "makespan_s"),
    ):
        values = [_means(run)[name] for run in runs]
        rows.append([title, *map(format_time, values), _change(*values)])
    used = [_means(run)["utilization"] for run in runs]
    texts = [f"{100 * part:.1f} %" for part in used]
    return [*rows, ["utilisation", *texts, f"{100 * (used[1] - used[0]):+.1f} points"]]


def _means(run: RunData) -> dict[str, float]:
    rows = [
        (row.submitted, row.started, row.ended)
        for row in run.jobs
        if row.started is not None and row.ended is not None
    ]
    table = np.array(rows, np.float64).reshape(-1, 3)
    submitted, started, ended = table.T
    makespan = float(ended.max() - submitted.min()) if len(table) else 0.0
    held = run.segments
    area = float((held["count"] * (held["end"] - held["begin"])).sum())
    return {
        "wait_s": float((started - submitted).mean()) if len(table) else 0.0,
        "turnaround_s": float((ended - submitted).mean()) if len(table) else 0.0,
        "longest_wait_s": float((started - submitted).max()) if len(table) else 0.0,
        "makespan_s": makespan,
        "utilization": area / (run.processors * makespan) if makespan else 0.0,
    }


def _change(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.0f} %" if before else "-"
