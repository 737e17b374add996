"""Hindcasts: forecasts of jobs that have started since, from what was known at their submission.

The records of jobs tell which jobs were queued and which ran at an earlier time. A hindcast runs
that state forward as a forecast would have done, and its outcome is known; a `Calibration` learns
from the outcomes. Nothing is stored for it: a journal of any release has the records.

The records do not have the nodes, advance reservations, performance histories and processor numbers
of that time, nor what a predictor had learned. A hindcast has the present nodes, of which running
jobs take the lowest processors, no reservations, no histories, and the present predictor with the
predictions that were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from time import monotonic

import msgspec

from scheduler.forecasts.calibration import LATEST, Calibration, ForecastOutcome
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.futures import Futures, last_arrival
from scheduler.forecasts.recorded_state import KEPT_JOBS, PAST_JOBS, RecordedState
from scheduler.model.job import Job, JobState
from scheduler.model.procset import ProcSet
from scheduler.state.records import CoreRecord, decode_core, encode_core

#: One of so many jobs has a hindcast, as the waits of neighbours hardly differ.
EVERY = 8
#: Futures of a hindcast.
FUTURES = 20
#: States with more jobs than this have no hindcasts, which would take minutes.
MOST_JOBS = 1000


class Hindcasts:
    """Outcomes of hindcasts; each is computed once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bool], ForecastOutcome | None] = {}

    def calibration(
        self, state: RecordedState, *, arrivals: bool, limit_s: float = inf
    ) -> Calibration:
        """Learn from the jobs that started last.

        Parameters
        ----------
        arrivals : whether further jobs are submitted in the futures.
        limit_s : seconds after which no further hindcast begins; the next call continues.
        """
        if len(state.jobs) > MOST_JOBS:
            return Calibration()
        deadline, known = monotonic() + limit_s, self._known
        waited = _latest_waited(state)
        for job in reversed(waited):
            key = job.id, arrivals
            if key not in known and monotonic() < deadline:
                known[key] = hindcast(state, job, arrivals=arrivals)
        numbers = {job.id for job in waited}
        self._known = {key: known[key] for key in known if key[0] in numbers}
        outcomes = (known.get((job.id, arrivals)) for job in waited)
        return Calibration([outcome for outcome in outcomes if outcome is not None])


def hindcast(state: RecordedState, job: Job, *, arrivals: bool) -> ForecastOutcome | None:
    """Forecast a job that has started, from the state after its submission.

    Parameters
    ----------
    state : a later state, in which the job is known.
    arrivals : see `Hindcasts.calibration`.

    Returns
    -------
    None if the earlier state cannot be told, or the job cannot run on the present nodes.
    """
    then = earlier_state(state, job.submitted_at)
    if then is None or job.started_at is None:
        return None
    expected = forecast(then, only=[job.id]).start(job.id)
    if expected == inf:
        return None
    until = last_arrival(then.now, expected) if arrivals else then.now
    spreads = Futures(then, job.id, arrive_until=until).spreads(FUTURES, seed=job.id)
    return ForecastOutcome.of(spreads.start, then.now, job.started_at)


def _latest_waited(state: RecordedState) -> list[Job]:
    """Jobs to be hindcast, in order of their starts: they have started and had to wait.

    All jobs that ended after the submission of each are known, and `PAST_JOBS` that ended before,
    so that it does not matter when its hindcast is computed.
    """
    past = state.past
    complete_from = -inf if len(past) < KEPT_JOBS else past[PAST_JOBS].ended_at or -inf
    waited = [
        job
        for job in (*past, *state.jobs)
        if job.id % EVERY == 0
        and job.started_at is not None
        and job.started_at > job.submitted_at
        and job.submitted_at >= complete_from
    ]
    return sorted(waited, key=lambda job: (job.started_at or 0.0, job.id))[-LATEST:]


def earlier_state(state: RecordedState, at: float) -> RecordedState | None:
    """State after the instant of an earlier time, as far as the records of jobs tell it.

    Parameters
    ----------
    at : the earlier time, s; jobs that ended since then are in `state.past`.

    Returns
    -------
    None if the jobs that ran then do not fit on the present nodes, or there were two groups.
    """
    record = decode_core(state.record)
    if len(record.partitions) != 1:
        return None
    [partition] = record.partitions
    alive = [
        job
        for job in (*state.past, *state.jobs)
        if job.submitted_at <= at and (job.ended_at is None or job.ended_at > at)
    ]
    try:
        jobs = _as_they_were(alive, at, ProcSet.union(node.offered for node in partition.nodes))
    except ValueError:  # there were more processors
        return None
    partition = msgspec.structs.replace(partition, reservations={}, exclusions=(), sorted_at=-inf)
    return replace(
        state,
        record=encode_core(CoreRecord(at, [partition])),
        jobs=jobs,
        now=at,
        points=(),
        past=[job for job in state.past if job.ended_at is not None and job.ended_at <= at],
    )


def _as_they_were(alive: Iterable[Job], at: float, free: ProcSet) -> Sequence[Job]:
    """Jobs as they were at a time, s, on the lowest of some processors.

    Raises
    ------
    ValueError : there are not enough processors.
    """
    jobs: list[Job] = []
    for job in sorted(alive, key=lambda job: (job.started_at or at, job.id)):
        was = Job(job.id, job.spec, job.submitted_at)
        if job.first_estimate_s:
            was.estimate_s = was.first_estimate_s = job.first_estimate_s
        if job.started_at is not None and job.started_at <= at:
            was.sizes = tuple(change for change in job.sizes if change[0] <= at)
            was.state, was.started_at = JobState.RUNNING, job.started_at
            was.start_on(job.processors)
            was.size = was.sizes[-1][1] if was.sizes else job.processors
            was.groups, was.next_group = {1: free.first(was.size)}, 2
            free -= was.groups[1]
        jobs.append(was)
    return sorted(jobs, key=lambda job: job.id)
