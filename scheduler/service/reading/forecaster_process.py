"""The forecaster: a process that computes forecasts, so that none delays a decision or a reader.

It reads the journal like the reader (`scheduler.service.reading.reader_process`) and runs the core
forward from the recorded state, at a lower priority than the service, which starts it with the
first question.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from math import inf
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from reshape.errors import ProtocolError, ReshapeError
from reshape.wire.codec import encode
from scheduler.forecasts.answers import JobForecast, Quote, Spread, Starts, Waiting
from scheduler.forecasts.calibration import Calibration, Hindcasts
from scheduler.forecasts.forecast import Forecast, Trajectory, forecast, last_job_changes_nothing
from scheduler.forecasts.quotes import Outlook, nearest_feasible, quote, waiting
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.journal.clock import moved_time, noted_ahead_s
from scheduler.journal.journal_reader import JournalReader
from scheduler.model.events import JobSpec
from scheduler.model.job import Job, JobState
from scheduler.protocol import messages as m
from scheduler.service.reading.reader_process import ForecastQuestion, answer_questions

#: Added to the niceness, because a forecast takes all of a processor.
NICENESS = 10
#: Most futures of one question, which bounds the memory that it takes.
MOST_FUTURES = 1000
#: Seconds that a forecast may take before it ends, with what it has found so far. The service
#: gives the forecaster up later (`scheduler.service.server.FORECAST_S`).
LIMIT_S = 40.0
#: Seconds that the forecasts for a listing, or for one job that waits, may take.
SHOWN_S = 10.0
#: Seconds that the trajectory of a first quote may take.
TRAJECTORY_S = 2.0
#: Seconds after which a question begins no further hindcast; later ones continue.
HINDCASTS_S = 4.0


class Forecaster:
    """Answers questions from the recorded state, which it keeps until the journal has more."""

    def __init__(self, journal: JournalReader) -> None:
        self._journal = journal
        self._workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._state: RecordedState | None = None
        self._batch = -1  # of the recorded state
        self._trajectory: Trajectory | None = None
        self._tried = False  # whether the trajectory of the recorded state was computed
        self._hindcasts = Hindcasts()

    def answer(self, request: int, question: ForecastQuestion) -> list[bytes]:
        """Answer a question with the frames of a message; an error is answered with `Failure`."""
        try:
            result = self._answer(question, self._recorded_state(question.now))
            result = by_wall_clock(result, noted_ahead_s(self._journal))
            return encode(m.ForecastResult(id=request, found=msgspec.to_builtins(result)))
        except (ReshapeError, ProtocolError) as error:
            return encode(m.Failure(id=request, message=str(error)))

    def _answer(self, question: ForecastQuestion, state: RecordedState) -> Answer:
        query = question.query
        _check(query)
        if query.of is None:
            return self._starts(query, state)
        if isinstance(query.of, int):
            return self._waiting(query.of, self._outlook(query, state, SHOWN_S), state)
        if question.refusal or question.spec is None:
            raise ReshapeError(question.refusal + _nearest_hint(state, question.spec))
        known = self._kept_trajectory(state, TRAJECTORY_S)
        outlook = self._outlook(query, state, LIMIT_S)
        return quote(state, question.spec, outlook, trajectory=known)

    def _starts(self, query: m.RequestForecast, state: RecordedState) -> Starts:
        horizon_s, limit_s = _horizon(query), _limit(query, SHOWN_S)
        known = self._kept_trajectory(state, limit_s) if horizon_s == inf else None
        starts = expected_starts(state, horizon_s, limit_s, known)
        return replace(starts, jobs=[still_ahead(job, state.now) for job in starts.jobs])

    def _waiting(self, job: int, outlook: Outlook, state: RecordedState) -> Waiting:
        try:
            found = waiting(state, job, outlook, ahead_s=noted_ahead_s(self._journal))
        except KeyError:
            raise ReshapeError(f"job {job} is not queued any more") from None
        return replace(found, forecast=still_ahead(found.forecast, state.now))

    def _outlook(self, query: m.RequestForecast, state: RecordedState, most_s: float) -> Outlook:
        """Look ahead as a question says, for some seconds at most."""
        calibration = Calibration()
        if query.futures:
            calibration = self._hindcasts.calibration(
                state, arrivals=query.arrivals, limit_s=HINDCASTS_S
            )
        return Outlook(
            _horizon(query),
            *(query.futures, query.seed, query.arrivals),
            *(self._workers, _limit(query, most_s)),
            calibration,
        )

    def _recorded_state(self, now: float) -> RecordedState:
        batch = self._journal.last_batch()
        if self._state is None or batch != self._batch:
            self._state, self._batch = RecordedState.of_journal(self._journal, now), batch
            self._trajectory, self._tried = None, False
        return dataclasses.replace(self._state, now=max(now, self._state.now))

    def _kept_trajectory(self, state: RecordedState, limit_s: float) -> Trajectory | None:
        """Trajectory from the recorded state; the first question computes it if there can be one.

        It takes little longer than a forecast of all jobs.
        """
        if not self._tried:
            self._tried = True
            if last_job_changes_nothing(state):
                self._trajectory = Trajectory(state, limit_s)
        kept = self._trajectory
        return kept if kept is not None and kept.holds_at(state.now) else None


def still_ahead(job: JobForecast, now: float) -> JobForecast:
    """Drop an expected start of a queued job that is not after the present time, s.

    The job would run by then. It waits for jobs that should have ended, perhaps on nodes that are
    silent, for an unknown time.
    """
    is_past = job.start is not None and job.start <= now
    return JobForecast(job.job, None, None) if is_past else job


def expected_starts(
    state: RecordedState,
    horizon_s: float = inf,
    limit_s: float = LIMIT_S,
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
        wanted = [state.next_task(job) for job in queued if not _is_held(job)]
        forecasts = forecast(state, horizon_s=horizon_s, limit_s=limit_s, only=wanted)
    found = [_expected(forecasts, state, job) for job in queued]
    found.sort(key=lambda job: (inf if job.start is None else job.start, job.job))
    return Starts(found, forecasts.until - forecasts.now if forecasts.time_is_over else None)


def _is_held(job: Job) -> bool:
    return job.conditions is not None and bool(job.conditions.hold)


def _expected(forecasts: Forecast, state: RecordedState, job: Job) -> JobForecast:
    """Forecast of a queued job; of an array the start of the task that comes next."""
    number = state.next_task(job)
    if number == job.id:
        return forecasts.of(number)
    start = forecasts.starts.get(number)
    return JobForecast(job.id, start, None)


def _check(query: m.RequestForecast) -> None:
    """Check how far a question looks ahead.

    Raises
    ------
    ReshapeError : a number is out of range.
    """
    if query.horizon_s is not None and not query.horizon_s > 0:
        raise ReshapeError(f"the horizon must be above 0 s, got {query.horizon_s:g}")
    if not 0 <= query.futures <= MOST_FUTURES:
        raise ReshapeError(f"futures must be from 0 to {MOST_FUTURES}, got {query.futures}")
    if query.seed < 0:
        raise ReshapeError(f"the seed must be >= 0, got {query.seed}")


def _horizon(query: m.RequestForecast) -> float:
    return inf if query.horizon_s is None else query.horizon_s


def _limit(query: m.RequestForecast, most_s: float) -> float:
    return most_s if query.limit_s is None else max(0.0, min(most_s, query.limit_s))


def _nearest_hint(state: RecordedState, spec: JobSpec | None) -> str:
    """Words on the nearest feasible request, empty if the machine can run the request itself."""
    nearest = None if spec is None else nearest_feasible(state, spec)
    if nearest is None or nearest == spec:
        return ""
    words = [f"-n {nearest.processors}"]
    if nearest.malleable:
        words.append(f"--min {nearest.min_processors}")
    if nearest.max_processors is not None:
        words.append(f"--max {nearest.max_processors}")
    if nearest.resources:
        amounts = ",".join(f"{name}={amount}" for name, amount in nearest.resources.items())
        words.append(f"--resources {amounts}")
    return f" (the nearest feasible request is {' '.join(words)})"


def _answers(journal: JournalReader) -> Callable[[int, bytes], list[bytes]]:
    decode = msgspec.msgpack.Decoder(ForecastQuestion).decode
    forecaster = Forecaster(journal)
    return lambda request, question: forecaster.answer(request, decode(question))


#: What the forecaster answers with.
Answer: TypeAlias = Quote | Waiting | Starts


def by_wall_clock(answer: Answer, ahead_s: float) -> Answer:
    """Move all times of an answer to the wall clock, which is ahead by some seconds."""
    if ahead_s == 0:
        return answer
    if isinstance(answer, Quote):
        return _moved_quote(answer, ahead_s)
    if isinstance(answer, Waiting):
        return _moved_waiting(answer, ahead_s)
    return replace(answer, jobs=[_moved_forecast(job, ahead_s) for job in answer.jobs])


def _moved_forecast(answer: JobForecast, by_s: float) -> JobForecast:
    return replace(
        answer,
        start=moved_time(answer.start, by_s),
        end=moved_time(answer.end, by_s),
        sizes=tuple((at + by_s, size) for at, size in answer.sizes),
    )


def _moved_quote(answer: Quote, by_s: float) -> Quote:
    return replace(
        answer,
        now=answer.now + by_s,
        start=moved_time(answer.start, by_s),
        end=moved_time(answer.end, by_s),
        sizes=tuple((at + by_s, size) for at, size in answer.sizes),
        start_quantiles=_moved_spread(answer.start_quantiles, by_s),
        end_quantiles=_moved_spread(answer.end_quantiles, by_s),
    )


def _moved_waiting(answer: Waiting, by_s: float) -> Waiting:
    return replace(
        answer,
        now=answer.now + by_s,
        forecast=_moved_forecast(answer.forecast, by_s),
        start_quantiles=_moved_spread(answer.start_quantiles, by_s),
        changes=[replace(other, start=moved_time(other.start, by_s)) for other in answer.changes],
    )


def _moved_spread(answer: Spread | None, by_s: float) -> Spread | None:
    if answer is None:
        return None
    return Spread(*(moved_time(at, by_s) for at in (answer.p10, answer.p50, answer.p90)))


if __name__ == "__main__":
    os.nice(NICENESS)
    answer_questions(_answers)
