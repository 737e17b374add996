"""Sentences about what the numbers of a schedule do not show by themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scheduler.policies.scenario import Scenario
from scheduler.text.formats import counted
from simulator.results.schedule import Schedule

#: Jobs that could not start and are named.
NAMED = 5


def notes(schedule: Schedule, chosen: Scenario | None, *, is_rigid: bool) -> Iterator[str]:
    """Say what cleaning changed, which settings had no effect, and which jobs the means leave out.

    Parameters
    ----------
    chosen : scenario of the machine; None: there are several centres.
    is_rigid : whether the workload has no resizable job.
    """
    if schedule.report is not None and not schedule.report.is_regular:
        yield schedule.report.sentence
    if chosen is not None and chosen.resizing is not None and is_rigid:
        yield (
            f"{chosen.name} resizes no job, because none is resizable: give --resizable SHARE for a"
            " trace, max_processors or min_processors for jobs of a workload file"
        )
    by_pass = chosen is not None and chosen.scheduling is not None
    yield from _unstarted(schedule, by_pass=by_pass)


def _unstarted(schedule: Schedule, *, by_pass: bool) -> Iterator[str]:
    (indices,) = np.nonzero(~schedule.ran)
    if not len(indices):
        return
    reasons, jobs = [], schedule.jobs
    for index in indices[:NAMED]:
        number, requested = jobs.numbers[index], int(jobs.processors[index])
        text = f"job {number} requests {counted(requested, 'processor')}"
        if jobs.names:
            amounts = zip(jobs.names, jobs.resources[index].tolist(), strict=True)
            text += "".join(f" and {name}={amount}" for name, amount in amounts if amount)
        if requested > schedule.processors:
            text += f", the machine has {schedule.processors}"
        elif by_pass:
            text += ", and the scheduling pass never started it"
        else:
            text += ", which never became available to it"
        reasons.append(text)
    if len(indices) > NAMED:
        reasons.append(f"and {len(indices) - NAMED} more")
    count = counted(len(indices), "job")
    yield f"{count} could not start and count in no mean: {'; '.join(reasons)}"
