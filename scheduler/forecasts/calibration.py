"""Calibration: quantiles of waits, corrected by what became of earlier forecasts.

Futures know what is drawn, not how users, arrivals and rules go together. Outcomes of earlier
forecasts tell how far their quantiles were off. The score of an outcome is its wait divided by the
quantile, and a new quantile is multiplied by the score that the latest outcomes did not exceed with
the probability of the quantile. If forecasts are exchangeable, the start then comes no later than
P90 with a probability of at least 0.9, whatever is wrong with the futures.

This is conformalized quantile regression (Y. Romano, E. Patterson and E. J. Candès, NeurIPS 2019),
for each quantile alone and with logarithms of waits. Sites change, so only the latest outcomes
count; I. Gibbs and E. Candès (NeurIPS 2021) discuss distributions that change.

The outcomes are those of hindcasts: forecasts of jobs that have started since, from what was known
at their submission. The records of jobs tell which jobs were queued and which ran at an earlier
time. A hindcast runs that state forward as a forecast would have done, and its outcome is known.
Nothing is stored for it: a journal of any release has the records.

The records do not have the nodes, advance reservations, performance histories and processor numbers
of that time, nor what a predictor had learned. A hindcast has the present nodes, of which running
jobs take the lowest processors, no reservations, no histories, and the present predictor with the
predictions that were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil, inf
from time import monotonic
from typing import NamedTuple

import msgspec
import numpy as np

from scheduler.forecasts.answers import Spread
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.futures import LEVELS, Futures, Spreads, last_arrival
from scheduler.forecasts.recorded_state import KEPT_JOBS, PAST_JOBS, RecordedState
from scheduler.model.job import Job, JobState
from scheduler.model.procset import ProcSet
from scheduler.state.records import CoreRecord, decode_core, encode_core

#: Latest outcomes that a calibration uses.
LATEST = 50
#: Fewer outcomes do not tell what nine tenths of them do not exceed.
LEAST = 9
#: Seconds added to waits before they are divided: errors of waits far below this are taken as
#: differences, errors of waits far above as ratios. See docs/studies/waits.md.
ADDED_S = 3600.0


class ForecastOutcome(NamedTuple):
    """What became of a forecast of a job that had to wait.

    Parameters
    ----------
    quantiles : of its wait at `LEVELS`, s; inf beyond the horizon.
    wait_s : how long it waited.
    """

    quantiles: tuple[float, ...]
    wait_s: float

    @classmethod
    def of(cls, spread: Spread, now: float, started_at: float) -> ForecastOutcome:
        """Make it from the quantiles of a start that were computed at a time, s, and the start."""
        return cls(tuple(at - now for at in _times(spread)), started_at - now)


class Calibration:
    """Corrects quantiles; a calibration of fewer than `LEAST` outcomes leaves them as they are.

    Parameters
    ----------
    outcomes : in order of time; the `LATEST` are used.

    Attributes
    ----------
    count : number of outcomes that it uses, 0 if it corrects nothing.
    """

    def __init__(self, outcomes: Sequence[ForecastOutcome] = ()) -> None:
        latest = outcomes[-LATEST:]
        self.count = len(latest) if len(latest) >= LEAST else 0
        self._factors = [1.0] * len(LEVELS)
        if self.count:
            waits = np.array([outcome.wait_s for outcome in latest])
            quantiles = np.array([outcome.quantiles for outcome in latest])
            scores = np.sort((waits[:, None] + ADDED_S) / (quantiles + ADDED_S), axis=0)
            # The smallest score with this share of n + 1 exchangeable ones at or below it.
            ranks = [ceil((self.count + 1) * level / 100) for level in LEVELS]
            self._factors = [float(scores[rank - 1, i]) for i, rank in enumerate(ranks)]

    def corrected(self, spreads: Spreads, now: float) -> Spreads:
        """Correct the quantiles of a start; those of the end move with them.

        Parameters
        ----------
        now : time at which the job would start if it did not wait, s.

        Returns
        -------
        Quantiles that do not decrease from P10 to P90. Those of a job that starts at once in all
        futures stay: outcomes are those of jobs that waited.
        """
        starts, ends = _times(spreads.start), _times(spreads.end)
        if not self.count or starts[-1] == now:
            return spreads
        moved = [
            at if at == inf else now + max((at - now + ADDED_S) * factor - ADDED_S, 0.0)
            for at, factor in zip(starts, self._factors, strict=True)
        ]
        later = np.maximum.accumulate(moved).tolist()
        ended = [
            end if inf in (start, end) else end + (new - start)
            for start, new, end in zip(starts, later, ends, strict=True)
        ]
        return Spreads(Spread.of(later), Spread.of(np.maximum.accumulate(ended).tolist()))


def _times(spread: Spread) -> list[float]:
    """Times of a spread, s; inf beyond the horizon."""
    return [inf if at is None else at for at in (spread.p10, spread.p50, spread.p90)]


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
    """Jobs as they were at a time, s, on the lowest of some processors, if there are enough."""
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
