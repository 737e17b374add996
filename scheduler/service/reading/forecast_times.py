"""Times of forecasts, moved to the wall clock (`scheduler.service.record.wall_times`)."""

from __future__ import annotations

from typing import TypeAlias

from msgspec.structs import replace

from scheduler.forecasts.forecast import JobForecast
from scheduler.forecasts.futures import Spread
from scheduler.forecasts.quotes import Quote, Waiting
from scheduler.service.record.wall_times import moved_time

#: What the forecaster answers with.
Found: TypeAlias = Quote | Waiting | list[JobForecast]


def by_wall_clock(found: Found, ahead_s: float) -> Found:
    """Move all times of an answer to the wall clock, which is ahead by some seconds."""
    if isinstance(found, Quote):
        return _moved_quote(found, ahead_s)
    if isinstance(found, Waiting):
        return _moved_waiting(found, ahead_s)
    return [_moved_forecast(each, ahead_s) for each in found]


def _moved_forecast(found: JobForecast, by_s: float) -> JobForecast:
    return replace(
        found,
        start=moved_time(found.start, by_s),
        end=moved_time(found.end, by_s),
        sizes=tuple((at + by_s, size) for at, size in found.sizes),
    )


def _moved_quote(found: Quote, by_s: float) -> Quote:
    return replace(
        found,
        now=found.now + by_s,
        start=moved_time(found.start, by_s),
        end=moved_time(found.end, by_s),
        sizes=tuple((at + by_s, size) for at, size in found.sizes),
        start_quantiles=_moved_spread(found.start_quantiles, by_s),
        end_quantiles=_moved_spread(found.end_quantiles, by_s),
    )


def _moved_waiting(found: Waiting, by_s: float) -> Waiting:
    return replace(
        found,
        now=found.now + by_s,
        forecast=_moved_forecast(found.forecast, by_s),
        start_quantiles=_moved_spread(found.start_quantiles, by_s),
        changes=[replace(each, start=moved_time(each.start, by_s)) for each in found.changes],
    )


def _moved_spread(found: Spread | None, by_s: float) -> Spread | None:
    if found is None:
        return None
    return Spread(*(moved_time(at, by_s) for at in (found.p10, found.p50, found.p90)))
