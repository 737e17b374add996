"""Variables of the machine, sampled at equal intervals (GUIM 3.2 and 4.2.1).

The samples are computed from the schedule after the simulation, which they do not slow down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from scheduler.text.formats import grouped
from simulator.results.series import in_use
from simulator.statistics.job_variables import JobValues

Floats: TypeAlias = NDArray[np.float64]
#: Largest number of samples, which bounds their memory.
MOST_SAMPLES: Final = 10_000_000


class Samples:
    """State of the machine at times, and what happened between them.

    The k-th sample is k intervals after the first submission; the last one is at or after the last
    end. Numbers of events count those since the sample before it.

    Parameters
    ----------
    interval_s : time between two samples, s; > 0.
    times : of other samples, to take the same; None: those of these jobs.

    Attributes
    ----------
    times : (m,) float64, s.

    Raises
    ------
    ValueError : the interval is not above 0 and finite.
    ReshapeError : there would be more than `MOST_SAMPLES` samples.
    """

    def __init__(
        self, jobs: JobValues, interval_s: float = 3600.0, times: Floats | None = None
    ) -> None:
        if not 0 < interval_s < np.inf:
            raise ValueError(f"the interval must be > 0 and finite, got {interval_s}")
        self.jobs, self.schedule = jobs, jobs.schedule
        if times is not None:
            self.times: Floats = times
        elif len(jobs):
            begin, end = float(jobs.submitted.min()), float(jobs.ended.max())
            count = max(1, int(np.ceil((end - begin) / interval_s)))
            if count > MOST_SAMPLES:
                raise ReshapeError(
                    f"samples every {interval_s:g} s: there are {grouped(count)} of them, at most"
                    f" {grouped(MOST_SAMPLES)} are possible; give a longer interval"
                )
            self.times = begin + interval_s * np.arange(1.0, count + 1)
        else:
            self.times = np.zeros(0)

    @property
    def available(self) -> list[str]:
        """Names of the variables."""
        return [*SAMPLED]

    def __getitem__(self, name: str) -> Floats:
        """Values of a variable at the times, (m,).

        Raises
        ------
        KeyError : there is no such variable.
        """
        return SAMPLED[name](self)

    def until(self, moments: Floats, weights: Floats | None = None) -> Floats:
        """Number of the moments until each time, or the sum of their weights, (m,)."""
        order = np.argsort(moments, kind="stable")
        before = np.searchsorted(moments[order], self.times, side="right")
        if weights is None:
            return before.astype(np.float64)
        sums: Floats = np.concatenate([[0.0], np.cumsum(weights[order])])
        return sums[before]

    def since_last(self, moments: Floats) -> Floats:
        """Number of the moments after the sample before, until each time, (m,)."""
        return np.diff(self.until(moments), prepend=0.0)

    @property
    def processors_used(self) -> Floats:
        """Processors that running jobs hold, first runs of redirected jobs included."""
        series = in_use(self.schedule)
        before = np.searchsorted(series.times, self.times, side="right")
        values: Floats = np.concatenate([[0.0], series.values])
        return values[before]


def _pending_work(samples: Samples) -> Floats:
    """Requested time times processors, summed over the queued jobs, processor-seconds."""
    jobs, columns = samples.jobs, samples.schedule.jobs
    work = columns.estimate[jobs.ran] * columns.processors[jobs.ran]
    left = samples.until(jobs.submitted, work) - samples.until(jobs.started, work)
    return np.maximum(left, 0.0)


#: Sampled variables: name -> values.
SAMPLED: Final[Mapping[str, Callable[[Samples], Floats]]] = {
    "queued_jobs": lambda s: s.until(s.jobs.submitted) - s.until(s.jobs.started),
    "running_jobs": lambda s: s.until(s.jobs.started) - s.until(s.jobs.ended),
    "submitted_jobs": lambda s: s.since_last(s.jobs.submitted),
    "backfilled_jobs": lambda s: s.since_last(s.jobs.started[s.jobs.backfilled]),
    "killed_jobs": lambda s: s.since_last(s.jobs.ended[s.jobs.killed]),
    "pending_work": _pending_work,
    "processors_used": lambda s: s.processors_used,
    "load": lambda s: s.processors_used / s.schedule.processors,
}
