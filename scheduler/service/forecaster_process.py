"""The forecaster: a process that computes forecasts, so that none delays a decision or a reader.

It reads the journal like the reader (`scheduler.service.reader_process`) and runs the core
forward from the recorded state, at a lower priority than the service, which starts it with the
first question.
"""

from __future__ import annotations

import dataclasses
import os
from math import inf
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from reshape.errors import ReshapeError
from reshape.wire.codec import encode
from scheduler.forecasts.answers import Quote, Starts, Waiting
from scheduler.forecasts.calibration import Calibration, Hindcasts
from scheduler.forecasts.forecast import Trajectory, last_job_changes_nothing
from scheduler.forecasts.quotes import Outlook, expected_starts, quote, waiting
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.journal.clock import moved_time, noted_ahead_s
from scheduler.journal.journal_reader import JournalReader
from scheduler.protocol import messages as m
from scheduler.service.reader_process import ForecastQuestion, answer_questions

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
        except ReshapeError as error:
            return encode(m.Failure(id=request, message=str(error)))

    def _answer(self, question: ForecastQuestion, state: RecordedState) -> Answer:
        query = question.query
        _check(query)
        if query.of is None:
            return self._starts(query, state)
        if isinstance(query.of, int):
            return self._waiting(query.of, self._outlook(query, state, SHOWN_S), state)
        assert question.spec is not None, "the service has accepted the submission"
        trajectory = self._kept_trajectory(state, TRAJECTORY_S)
        outlook = self._outlook(query, state, LIMIT_S)
        return quote(state, question.spec, outlook, trajectory=trajectory)

    def _starts(self, query: m.RequestForecast, state: RecordedState) -> Starts:
        horizon_s, limit_s = _horizon(query), _limit(query, SHOWN_S)
        trajectory = self._kept_trajectory(state, limit_s) if horizon_s == inf else None
        return expected_starts(state, horizon_s, limit_s, trajectory)

    def _waiting(self, job: int, outlook: Outlook, state: RecordedState) -> Waiting:
        try:
            return waiting(state, job, outlook, ahead_s=noted_ahead_s(self._journal))
        except KeyError:
            raise ReshapeError(f"job {job} is not queued any more") from None

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


def _check(query: m.RequestForecast) -> None:
    """Check how far a question looks ahead."""
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


#: What the forecaster answers with.
Answer: TypeAlias = Quote | Waiting | Starts


#: Fields with a time in s; None: it is beyond the horizon.
_TIMES = {"now", "start", "end", "p10", "p50", "p90"}
_Moved = TypeVar("_Moved", bound=msgspec.Struct)


def by_wall_clock(answer: _Moved, ahead_s: float) -> _Moved:
    """Move all times of an answer, or of a part of it, to the wall clock, which is ahead (s)."""
    if ahead_s == 0:
        return answer

    def moved(name: str, value: Any) -> Any:
        if name in _TIMES:
            return moved_time(value, ahead_s)
        if name == "sizes":
            return tuple((at + ahead_s, size) for at, size in value)
        if isinstance(value, list):
            return [moved("", each) for each in value]
        return by_wall_clock(value, ahead_s) if isinstance(value, msgspec.Struct) else value

    fields = answer.__struct_fields__
    return replace(answer, **{name: moved(name, getattr(answer, name)) for name in fields})


if __name__ == "__main__":
    os.nice(NICENESS)
    answer_questions(ForecastQuestion, lambda journal: Forecaster(journal).answer)
