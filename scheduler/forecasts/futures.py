"""Futures: forecasts with drawn run times, and the quantiles of their starts and ends.

Run times differ from estimates. Each future draws the ratio of run time to walltime of every job
from the ratios of jobs that completed lately; that of a running job is larger than the share of its
walltime that has passed. Without such jobs, jobs run for their estimates.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf

import msgspec
import numpy as np

from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import JobSpec
from scheduler.model.job import Job

LEVELS = (10, 50, 90)


class Spread(msgspec.Struct, frozen=True):
    """Quantiles of a time over all futures, in seconds; None if it is beyond the horizon."""

    p10: float | None
    p50: float | None
    p90: float | None

    @classmethod
    def of(cls, times: Sequence[float]) -> Spread:
        """Take the quantiles of times, each an observed one."""
        found = np.percentile(times, LEVELS, method="inverted_cdf").tolist()
        return cls(*(None if at == inf else at for at in found))


class Futures:
    """Forecasts of one state with drawn run times.

    Parameters
    ----------
    state : where they begin.
    count, seed : number of forecasts, and the seed of the draws.
    specs, horizon_s : see `forecast`.

    Raises
    ------
    ValueError : a count below 1.
    """

    def __init__(
        self,
        state: RecordedState,
        count: int,
        seed: int = 0,
        specs: Sequence[JobSpec] = (),
        horizon_s: float = inf,
    ) -> None:
        if count < 1:
            raise ValueError(f"count must be >= 1, got {count}")
        self._last = state.last
        self._starts: list[dict[int, float]] = []
        self._ends: list[dict[int, float]] = []
        numbers = [job.id for job in state.jobs]
        numbers += range(state.last + 1, state.last + 1 + len(specs))
        for generator in np.random.default_rng(seed).spawn(count):
            run_s = drawn_run_times(state, specs, generator)
            found = forecast(state, specs, horizon_s=horizon_s, run_s=run_s)
            self._starts.append(found.starts)
            self._ends.append({job: found.end(job) for job in numbers})

    def start(self, job: int) -> Spread:
        """Quantiles of the start of a queued or submitted job."""
        return Spread.of([starts.get(job, inf) for starts in self._starts])

    def end(self, job: int) -> Spread:
        """Quantiles of the end of a job."""
        return Spread.of([ends[job] for ends in self._ends])


def drawn_run_times(
    state: RecordedState, specs: Iterable[JobSpec], rng: np.random.Generator
) -> dict[int, float]:
    """Draw the run times of all jobs of a state, and of jobs that are submitted to it.

    Returns
    -------
    job number -> run time from the start to the end, s. Without past jobs it is empty. A running
    job has no entry if no past job ran for so large a share of its walltime.
    """
    ratios = sorted(state.ratios)
    if not ratios:
        return {}
    submitted = [Job(state.last + i, spec, state.now) for i, spec in enumerate(specs, 1)]
    jobs = [*state.jobs, *submitted]
    drawn: dict[int, float] = {}
    for job, u in zip(jobs, rng.random(len(jobs)).tolist(), strict=True):
        walltime_s, passed = job.spec.walltime_s, 0
        if job.started_at is not None:
            passed = bisect_right(ratios, (state.now - job.started_at) / walltime_s)
        if passed < len(ratios):
            drawn[job.id] = ratios[passed + int(u * (len(ratios) - passed))] * walltime_s
    return drawn
