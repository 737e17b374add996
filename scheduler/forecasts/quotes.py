"""What forecasts tell: quotes of requests, why a queued job waits, and when all queued jobs start.

A quote says when a job would start if it were submitted now. Each answer has one forecast; futures
and other requests that are tried have further ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from math import inf
from time import monotonic

import msgspec

from scheduler.forecasts.answers import JobForecast, OtherRequest, Quote, Starts, Waiting
from scheduler.forecasts.calibration import Calibration
from scheduler.forecasts.forecast import Forecast, Trajectory, forecast
from scheduler.forecasts.futures import Futures, Spreads, last_arrival, run_ratio
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.arrays import TaskOf
from scheduler.model.events import JobSpec
from scheduler.model.job import Job, JobState
from scheduler.state.derived_jobs import tasks_of
from scheduler.state.records import copied

#: Queued jobs before a job that `waiting` lists.
LISTED = 10


class Outlook(msgspec.Struct, frozen=True):
    """How far forecasts look, and over how many futures.

    Parameters
    ----------
    horizon_s : seconds from now at which forecasts end.
    futures, seed : number of futures for the quantiles, and the seed of their draws.
    arrivals : in the futures, further jobs are submitted like the latest ones for twice the
        expected wait.
    workers : processes that compute the futures.
    limit_s : seconds that the first forecast, and those of other requests, may take together;
        futures and other requests look no further ahead than the first one.
    calibration : corrects the quantiles; without outcomes they stay as the futures have them.
    """

    horizon_s: float = inf
    futures: int = 0
    seed: int = 0
    arrivals: bool = False
    workers: int = 1
    limit_s: float = inf
    calibration: Calibration = msgspec.field(default_factory=Calibration)

    def horizon_after(self, first: Forecast, now: float) -> float:
        """Seconds from now at which the forecasts after a first one end."""
        return first.until - now if first.time_is_over else self.horizon_s

    def over_futures(
        self, state: RecordedState, job: int, specs: Sequence[JobSpec], first: Forecast
    ) -> tuple[Futures, Spreads]:
        """Futures of a job, and the corrected quantiles of its start and end over them.

        Parameters
        ----------
        specs : requests that are submitted now.
        first : forecast of the job.
        """
        now = state.now
        until = last_arrival(now, first.of(job).start) if self.arrivals else -inf
        several = Futures(state, job, specs, self.horizon_after(first, now), until)
        spreads = several.spreads(self.futures, self.seed, self.workers)
        return several, self.calibration.corrected(spreads, now)


SURE = Outlook()  #: without a horizon and without futures


def quote(
    state: RecordedState,
    spec: JobSpec,
    outlook: Outlook = SURE,
    *,
    trajectory: Trajectory | None = None,
) -> Quote:
    """Forecast a job that is submitted now.

    Parameters
    ----------
    spec : its request, which the core can run.
    trajectory : of the same state, which holds at its time; the first forecast then begins later.
    """
    number, until = state.last + 1, state.now + outlook.horizon_s
    before_start = None if trajectory is None else trajectory.state_before_start(spec, until)
    begin, limit_s = before_start or state, outlook.limit_s
    run = forecast(begin, [spec], horizon_s=until - begin.now, only=[number], limit_s=limit_s)
    expected = run.of(number)
    start, end = expected.start, expected.end
    answer = Quote(
        now=state.now,
        start=start,
        end=end,
        wait_s=None if start is None else start - state.now,
        slowdown=_slowdown(state.now, start, end),
        processors=expected.processors,
        sizes=expected.sizes,
        past_jobs=sum(run_ratio(job) is not None for job in state.past),
        looked_ahead_s=run.looked_ahead_s,
    )
    if not outlook.futures:
        return answer
    several, spreads = outlook.over_futures(state, number, [spec], run)
    return msgspec.structs.replace(
        answer,
        futures=outlook.futures,
        predicted_jobs=several.predicted,
        start_quantiles=spreads.start,
        end_quantiles=spreads.end,
        outcomes=outlook.calibration.count,
    )


def _slowdown(now: float, start: float | None, end: float | None) -> float | None:
    if start is None or end is None or end <= start:
        return None
    return (end - now) / (end - start)


def _smaller(spec: JobSpec, size: int) -> JobSpec | None:
    """Return a request for as many processors or fewer; None if its topology does not allow it."""
    least = None if spec.min_processors is None else min(spec.min_processors, size)
    try:
        if spec.topology is not None:
            spec.topology.check_start(size, least)
    except ValueError:
        return None
    return msgspec.structs.replace(spec, processors=size, min_processors=least)


def waiting(
    state: RecordedState, number: int, outlook: Outlook = SURE, *, ahead_s: float = 0.0
) -> Waiting:
    """Describe what a queued job waits for, when it will start, and what would change that.

    Parameters
    ----------
    ahead_s : wall clock minus the clock of the state, seconds, for the moments of the reason.

    Raises
    ------
    KeyError : no job of this number is queued.
    """
    core, until_s = state.core(), monotonic() + outlook.limit_s
    job = next((j for j in state.jobs if j.id == number and j.state is JobState.PENDING), None)
    array = state.array_of(number) if job is None else job
    if array is None:
        raise KeyError(f"job {number} is not in the queue")
    # The forecast of an array is that of its next task. `is_one`: a job, with requests to try.
    is_one = job is not None and job.to_come is None
    task = number if job is None else state.next_task(job)
    name = "" if task == array.id else TaskOf(array.id, tasks_of(array).index(task - array.id - 1))
    if job is None:
        reason = core.reason_to_come(core.jobs[array.id], number - array.id - 1)
    else:
        reason = core.reason_pending(number)
    expected, run, spread = JobForecast(number, None, None), None, None
    if is_one or name:
        run = forecast(state, horizon_s=outlook.horizon_s, only=[task], limit_s=outlook.limit_s)
        if is_one or task in run.starts:
            expected = msgspec.structs.replace(run.of(task), job=number)
    changes, untried, before = list[OtherRequest](), 0, list[int]()
    if is_one and run is not None:
        if outlook.futures:
            spread = outlook.over_futures(state, number, (), run)[1].start
        if array.conditions is None:
            changes, untried = _with_other_requests(
                state, array, outlook.horizon_after(run, state.now), until_s
            )
            queue = core.partition_of(array).queue
            before = [other.id for other in takewhile(lambda other: other.id != number, queue)]
    return Waiting(
        job=number,
        now=state.now,
        reason=reason.dated(ahead_s).sentence,
        before=before[:LISTED],
        before_count=len(before),
        forecast=_still_ahead(expected, state.now),
        start_quantiles=spread,
        changes=changes,
        outcomes=0 if spread is None else outlook.calibration.count,
        looked_ahead_s=None if run is None else run.looked_ahead_s,
        untried=untried,
        task=str(name),
    )


def _with_other_requests(
    state: RecordedState, job: Job, horizon_s: float, until_s: float
) -> tuple[list[OtherRequest], int]:
    """Starts of a queued job with other requests, and how many there was no time to try."""
    others, changes = list(_other_requests(job.spec)), list[OtherRequest]()
    for spec in others:
        left_s = until_s - monotonic()
        tried = _start_with(state, job, spec, horizon_s, left_s) if left_s > 0 else None
        if tried is None:
            break
        changes.append(tried)
    return changes, len(others) - len(changes)


def _other_requests(spec: JobSpec) -> Iterator[JobSpec]:
    """Yield smaller and shorter requests: of both, one half, one quarter, one eighth."""
    for part in (2, 4, 8):
        size = spec.processors // part
        smaller = _smaller(spec, size) if size else None
        if smaller is not None:
            yield smaller
    for part in (2, 4, 8):
        yield msgspec.structs.replace(spec, walltime_s=spec.walltime_s / part)


def _start_with(
    state: RecordedState, job: Job, spec: JobSpec, horizon_s: float, limit_s: float
) -> OtherRequest | None:
    """Forecast the start of a queued job as if it had been submitted with another request.

    None: that would take too long.
    """
    other = copied(job)
    other.change_limits(spec)
    other.processors = spec.processors
    own = state.scenario.partitions.get(job.partition, state.scenario)
    other.minimum = own.backfill.minimum_of(spec)
    other.estimate_s = min(job.estimate_s, spec.walltime_s)
    other.first_estimate_s = min(job.first_estimate_s, spec.walltime_s)
    jobs: Sequence[Job] = [other if each.id == job.id else each for each in state.jobs]
    changed = replace(state, jobs=jobs)
    run = forecast(changed, horizon_s=horizon_s, only=[job.id], limit_s=limit_s)
    start = run.of(job.id).start
    if start is None and run.time_is_over:
        return None
    return OtherRequest(spec.processors, spec.walltime_s, start)


def _still_ahead(job: JobForecast, now: float) -> JobForecast:
    """Drop an expected start of a queued job that is not after the present time, s.

    The job would run by then. It waits for jobs that should have ended, perhaps on nodes that are
    silent, for an unknown time.
    """
    is_past = job.start is not None and job.start <= now
    return JobForecast(job.job, None, None) if is_past else job


def expected_starts(
    state: RecordedState,
    horizon_s: float = inf,
    limit_s: float = inf,
    trajectory: Trajectory | None = None,
) -> Starts:
    """Forecast all queued jobs, in order of their expected starts; an array with its next task.

    Parameters
    ----------
    limit_s : seconds that this may take.
    trajectory : of the same state, which holds at its time; only without a horizon. It is used
        unless it had to end earlier than a forecast.
    """
    queued = [job for job in state.jobs if job.state is JobState.PENDING]
    if trajectory is not None and (
        trajectory.limit_s >= limit_s or not trajectory.forecast.time_is_over
    ):
        forecasts = trajectory.forecast
    else:
        numbers = [state.next_task(job) for job in queued if not _is_held(job)]
        forecasts = forecast(state, horizon_s=horizon_s, limit_s=limit_s, only=numbers)
    expected = [_expected(forecasts, state, job) for job in queued]
    expected.sort(key=lambda job: (inf if job.start is None else job.start, job.job))
    ahead = [_still_ahead(job, state.now) for job in expected]
    return Starts(ahead, forecasts.looked_ahead_s)


def _is_held(job: Job) -> bool:
    return job.conditions is not None and bool(job.conditions.hold)


def _expected(forecasts: Forecast, state: RecordedState, job: Job) -> JobForecast:
    """Forecast of a queued job; of an array the start of the task that comes next."""
    number = state.next_task(job)
    if number == job.id:
        return forecasts.of(number)
    start = forecasts.starts.get(number)
    return JobForecast(job.id, start, None)
