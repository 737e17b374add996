"""Variables of jobs and of the machine (GUIM 3.2 and 4.2.1).

Those of the machine are sampled at equal intervals, from the schedule after the simulation, which
they do not slow down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from scheduler.text.formats import grouped
from simulator.results.schedule import Schedule, bounded_slowdown
from simulator.results.series import in_use

Floats: TypeAlias = NDArray[np.float64]


class JobValues:
    """Variables of the jobs of a schedule that ran, (n,) each, in the order of submission.

    Parameters
    ----------
    tau : bound of the bounded slowdown, s.
    names : nominal variables ("selection", "centre"): a text for all jobs of the schedule, or one
        for each.
    price : of a processor-hour, for all jobs of the schedule or each; None: there are no costs.
    cost_limits : of each job of the schedule, inf for none; None: the cost of its estimate.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        tau: float = 60.0,
        names: Mapping[str, str | Sequence[str]] | None = None,
        price: float | Floats | None = None,
        cost_limits: Floats | None = None,
    ) -> None:
        ran = schedule.ran
        self.schedule, self.ran = schedule, ran
        self.submitted = schedule.jobs.submitted[ran]
        self.started, self.ended = schedule.started[ran], schedule.ended[ran]
        self.tau, self._price, self._cost_limits = tau, price, cost_limits
        self._names = {
            name: np.broadcast_to(np.array(texts), ran.shape)[ran]
            for name, texts in (names or {}).items()
        }

    def __len__(self) -> int:
        """Count the jobs that ran."""
        return len(self.submitted)

    @property
    def available(self) -> list[str]:
        """Names of the variables."""
        numbers = [n for n in JOB_NUMBERS if self._price is not None or n not in PRICED]
        return [*numbers, *self._names]

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Values of a variable: numbers, or texts of a nominal one.

        Raises
        ------
        KeyError : there is no such variable.
        """
        if name in self._names:
            return self._names[name]
        if name in PRICED and self._price is None:
            raise KeyError(name)
        return JOB_NUMBERS[name](self)

    @property
    def wait_s(self) -> Floats:
        """From submission to start, s."""
        return self.started - self.submitted

    @property
    def run_s(self) -> Floats:
        """From start to end, s."""
        return self.ended - self.started

    @property
    def killed(self) -> NDArray[np.bool_]:
        """Whether the job ended before its run was over."""
        return self.schedule.killed[self.ran]

    @property
    def penalised_s(self) -> Floats:
        """What neighbours on shared nodes added to the run time, s; nan of jobs killed there."""
        return self._of_neighbours(self.schedule.penalised_s)

    @property
    def penalised_pct(self) -> Floats:
        """Percentage of the final run time that neighbours added; nan of jobs killed there."""
        return self._of_neighbours(self.schedule.penalised_pct)

    def _of_neighbours(self, values: Floats) -> Floats:
        """Values of the jobs that ran; 0 if no nodes were shared."""
        return values[self.ran] if self.schedule.shares_nodes else np.zeros(len(self))

    @property
    def backfilled(self) -> NDArray[np.bool_]:
        """Whether the job started while one submitted to its centre before it waited."""
        backfilled = np.zeros(len(self), np.bool_)
        centres = self._names.get("centre", np.zeros(len(self)))
        for centre in np.unique(centres):
            here = np.flatnonzero(centres == centre)
            started = self.started[here]
            latest = np.maximum.accumulate(np.concatenate([[-np.inf], started[:-1]]))
            backfilled[here] = latest > started
        return backfilled

    def cost(self, seconds: Floats) -> Floats:
        """Price of the processors of each job for a time."""
        price = np.broadcast_to(
            np.array(0.0 if self._price is None else self._price), self.ran.shape
        )
        return price[self.ran] * self.schedule.jobs.processors[self.ran] * seconds / 3600

    @property
    def cost_limits(self) -> Floats:
        """Limit of the cost of each job: its own, or the cost of the user's estimate."""
        if self._cost_limits is not None:
            return self._cost_limits[self.ran]
        return self.cost(self.schedule.jobs.estimate[self.ran])


def _slowdown(jobs: JobValues) -> Floats:
    run_s = np.maximum(jobs.run_s, np.finfo(np.float64).tiny)
    return np.where(jobs.run_s > 0, (jobs.wait_s + jobs.run_s) / run_s, np.nan)


def _cost_respected(jobs: JobValues) -> Floats:
    """Whether the cost is at most the limit."""
    return (jobs.cost(jobs.run_s) <= jobs.cost_limits * (1 + 1e-12)).astype(np.float64)


#: Numeric variables: name -> values; flags are 0 or 1, and nan is no value.
JOB_NUMBERS: Final[Mapping[str, Callable[[JobValues], Floats]]] = {
    "wait_s": lambda jobs: jobs.wait_s,
    "slowdown": _slowdown,
    "bounded_slowdown": lambda jobs: bounded_slowdown(jobs.wait_s, jobs.run_s, jobs.tau),
    "run_s": lambda jobs: jobs.run_s,
    "nominal_run_s": lambda jobs: jobs.schedule.jobs.run[jobs.ran],
    "penalised_s": lambda jobs: jobs.penalised_s,
    "penalised_pct": lambda jobs: jobs.penalised_pct,
    "processors": lambda jobs: jobs.schedule.jobs.processors[jobs.ran].astype(np.float64),
    "backfilled": lambda jobs: jobs.backfilled.astype(np.float64),
    "killed": lambda jobs: jobs.killed.astype(np.float64),
    "completed": lambda jobs: (~jobs.killed).astype(np.float64),
    "cost": lambda jobs: jobs.cost(jobs.run_s),
    "cost_respected": _cost_respected,
}
PRICED: Final = ("cost", "cost_respected")


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
