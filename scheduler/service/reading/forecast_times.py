"""Times of forecasts, moved to the wall clock (`scheduler.service.record.wall_times`)."""

from __future__ import annotations

from typing import TypeAlias

from msgspec.structs import replace

from scheduler.forecasts.forecast import JobForecast
from scheduler.forecasts.futures import Spread
from scheduler.forecasts.quotes import Quote, Waiting
from scheduler.service.record.wall_times import moved_time

#: What the forecaster answers with.
Answer: TypeAlias = Quote | Waiting | list[JobForecast]


def by_wall_clock(answer: Answer, ahead_s: float) -> Answer:
    """Move all times of an answer to the wall clock, which is ahead by some seconds."""
    if ahead_s == 0:
        return answer
    if isinstance(answer, Quote):
        return _moved_quote(answer, ahead_s)
    if isinstance(answer, Waiting):
        return _moved_waiting(answer, ahead_s)
    return [_moved_forecast(job, ahead_s) for job in answer]


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
