"""What forecasts answer: structures that a service sends to its clients.

Clients import them, so nothing else is imported here: neither the core nor NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import msgspec


class JobForecast(msgspec.Struct, frozen=True, gc=False):
    """What a job is expected to do.

    Parameters
    ----------
    job : its number; for a job that is not submitted, the next number.
    start, end : seconds on the clock of the core; None if it does not happen within the horizon.
    processors : the ones on which it starts, such as ``0-3 7``; "" if it does not start.
    sizes : (time in seconds, number of processors) of its start and of each change.
    """

    job: int
    start: float | None
    end: float | None
    processors: str = ""
    sizes: tuple[tuple[float, int], ...] = ()


class Spread(msgspec.Struct, frozen=True):
    """Quantiles of a time over all futures, in seconds; None if it is beyond the horizon.

    Parameters
    ----------
    p10, p50, p90 : so many percent of the futures are not later.
    """

    p10: float | None
    p50: float | None
    p90: float | None

    @classmethod
    def of(cls, times: Iterable[float]) -> Spread:
        """Make it from three times in s; inf: beyond the horizon."""
        return cls(*(None if at == inf else at for at in times))


class Quote(msgspec.Struct, frozen=True):
    """What a request would get if it were submitted now.

    Parameters
    ----------
    now : time of the quote, s.
    start, end : expected times, s; None beyond the horizon.
    wait_s : from now to the start.
    slowdown : time from now to the end divided by the run time.
    processors, sizes : see `JobForecast`.
    start_quantiles, end_quantiles : over futures, calibrated; None if there are none.
    futures : number of futures.
    past_jobs : number of ended jobs whose run times the futures draw from.
    predicted_jobs : number of jobs whose run times they draw from the quantiles of a predictor.
    looked_ahead_s : seconds from now up to which the forecast has come, if the time that it may
        take ended it; None otherwise.
    outcomes : number of past forecasts whose outcomes calibrate the quantiles; 0: not calibrated.
    """

    now: float
    start: float | None
    end: float | None
    wait_s: float | None
    slowdown: float | None
    processors: str
    sizes: tuple[tuple[float, int], ...]
    start_quantiles: Spread | None = None
    end_quantiles: Spread | None = None
    futures: int = 0
    past_jobs: int = 0
    predicted_jobs: int = 0
    looked_ahead_s: float | None = None
    outcomes: int = 0


class OtherRequest(msgspec.Struct, frozen=True):
    """Another request for a queued job, and the start that it would have.

    Parameters
    ----------
    processors, walltime_s : the request.
    start : expected start, s; None beyond the horizon.
    """

    processors: int
    walltime_s: float
    start: float | None


class Waiting(msgspec.Struct, frozen=True):
    """Why a queued job waits, and for how long.

    Parameters
    ----------
    job : its number.
    now : time of the forecast, s.
    reason : what it waits for.
    before : numbers of the first queued jobs before it, in queue order.
    before_count : number of all queued jobs before it; 0 if it is not eligible.
    forecast : what it is expected to do.
    start_quantiles : of its start over futures, calibrated; None if there are none.
    changes : other requests that were tried, with their starts;
        none for one that is not eligible, for an array and for a task that has not come.
    outcomes, looked_ahead_s : see `Quote`.
    untried : number of other requests that were not tried, because that would take too long.
    task : name of the task whose start the forecast has, if the job is an array or a task
        that has not come to the queue; "" otherwise.
    """

    job: int
    now: float
    reason: str
    before: list[int]
    before_count: int
    forecast: JobForecast
    start_quantiles: Spread | None = None
    changes: list[OtherRequest] = []
    outcomes: int = 0
    looked_ahead_s: float | None = None
    untried: int = 0
    task: str = ""


class Starts(msgspec.Struct, frozen=True):
    """When the queued jobs start; an array with the next of its tasks.

    Parameters
    ----------
    jobs : in order of their expected starts.
    looked_ahead_s : see `Quote`; the jobs that start later have no start.
    """

    jobs: list[JobForecast]
    looked_ahead_s: float | None = None
