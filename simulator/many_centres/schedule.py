"""The schedule of a simulation of several centres, and its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, nan
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from simulator.many_centres.centres import Centres
from simulator.many_centres.grid_backfilling import GridBackfilling
from simulator.many_centres.rules import CentreDescription
from simulator.results.schedule import Schedule, Window

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
#: Run times below this bound count as the bound in the bounded slowdown, seconds (GUIM).
TAU_S = 60.0


class CentresSchedule(msgspec.Struct, frozen=True):
    """What became of the jobs, and where.

    Parameters
    ----------
    schedule : of all jobs.
    centres : in their order.
    ran_at : (n,) int64, index of the centre of each job; -1 if it did not start.
    origins : name of the home centre of each job; "" if it has none.
    moved : number of moves of waiting jobs.
    quotes : see `Centres`; None if they were not kept.
    """

    schedule: Schedule
    centres: list[CentreDescription]
    ran_at: NDArray[np.int64]
    origins: Sequence[str]
    moved: int = 0
    quotes: Mapping[int, tuple[float, float]] | None = None

    @classmethod
    def of(
        cls,
        site: Centres | GridBackfilling,
        schedule: Schedule,
        centres: list[CentreDescription],
        origins: Sequence[str],
    ) -> CentresSchedule:
        """What became of the jobs of a schedule at a site."""
        ran_at = np.full(len(schedule.jobs), -1)
        for number, index in site.ran_at.items():
            ran_at[number - 1] = index
        return cls(schedule, centres, ran_at, origins, site.moved, site.quotes)

    @property
    def ran(self) -> Bools:
        """Whether each job ended, (n,) bool."""
        return self.schedule.ran

    @property
    def slowdown(self) -> Floats:
        """(wait + run time) / run time, (n,) float64; run times below 1 s count as 1 s."""
        run_s = self.schedule.run_s
        return (self.schedule.wait + run_s) / np.maximum(run_s, 1.0)

    @property
    def max_costs(self) -> Floats:
        """Cost limit of each job: that of its estimate at its origin; inf without one (8.6.3)."""
        prices = {centre.name: centre.price for centre in self.centres}
        price = np.array([prices.get(name, nan) for name in self.origins])
        jobs = self.schedule.jobs
        costs = jobs.estimate * jobs.processors / 3600.0 * price
        return np.where(np.isnan(price), inf, costs)

    @property
    def cost(self) -> Floats:
        """Cost of each job where it ran (GUIM 8.6.3), (n,) float64."""
        prices = np.array([*(centre.price for centre in self.centres), np.nan])[self.ran_at]
        if self.schedule.sizes is None:
            return prices * self.schedule.jobs.processors * self.schedule.run_s / 3600.0
        return prices * self.schedule.job_held_s / 3600.0

    def numbers(
        self, jobs: Bools | None = None, window: Window | None = None, tau_s: float = TAU_S
    ) -> dict[str, Any]:
        """Compute the numbers of GUIM 8.5.2 and 8.6.7.

        Parameters
        ----------
        jobs : (n,) bool, the jobs to which means and percentiles refer; None: all that ended.
        window : submissions that count; the processors in use are those of its time. None: all.
        tau_s : run times below this bound count as the bound in the bounded slowdown, s.

        Raises
        ------
        ConfigError : see `Window.inside`.
        """
        started, unstarted = self.ran if jobs is None else jobs & self.ran, ~self.ran
        if window is not None:
            inside = window.inside(self.schedule.jobs.submitted)
            started, unstarted = started & inside, unstarted & inside
        numbers: dict[str, Any] = {"jobs": int(started.sum()), "unstarted": int(unstarted.sum())}
        for name, values in (
            ("bounded_slowdown", self.schedule.bounded_slowdown(tau_s)),
            ("slowdown", self.slowdown),
            ("wait_s", self.schedule.wait),
        ):
            numbers |= _spread(name, values[started])
        indices = self.ran_at[started]
        numbers["jobs_by_centre"] = {
            centre.name: int((indices == i).sum()) for i, centre in enumerate(self.centres)
        }
        cost = self.cost[started]
        numbers["cost"] = float(cost.sum())
        numbers["p95_job_cost"] = float(np.percentile(cost, 95)) if len(cost) else None
        limits = self.max_costs[started]
        limited = np.isfinite(limits)
        within = cost[limited] <= limits[limited] * (1 + 1e-12)
        numbers["within_cost_limit_pct"] = 100.0 * float(within.mean()) if limited.any() else None
        return numbers | self._use(window)

    def of_origin(self, name: str) -> Bools:
        """Whether each job has this home centre, (n,) bool."""
        return np.array([origin == name for origin in self.origins], dtype=np.bool_)

    def queues(self, every_s: float) -> dict[str, list[int]]:
        """Number of queued jobs of each centre over time, by name.

        Parameters
        ----------
        every_s : seconds between two values; the first is at the first submission.
        """
        submitted = self.schedule.jobs.submitted
        times = np.arange(submitted[0], submitted[-1] + every_s, every_s)
        queues: dict[str, list[int]] = {}
        for i, centre in enumerate(self.centres):
            here = self.ran_at == i
            came = np.sort(submitted[here])
            left = np.sort(self.schedule.started[here])
            waiting = np.searchsorted(came, times, "right") - np.searchsorted(left, times, "right")
            queues[centre.name] = waiting.tolist()
        return queues

    def _use(self, window: Window | None) -> dict[str, float | None]:
        """95th percentile over time of the processors in use, and the utilization."""
        used, submitted = self.schedule.in_use(), self.schedule.jobs.submitted
        times = used.times
        if window is not None:
            times = np.clip(times, *window.limits(submitted))
        if len(times) < 2 or times[0] == times[-1]:
            return {"p95_processors": None, "utilization_pct": None}
        ascending = np.argsort(used.values[:-1], kind="stable")
        passed = np.cumsum(np.diff(times)[ascending])
        p95 = used.values[ascending][np.searchsorted(passed, 0.95 * passed[-1])]
        if window is not None:
            utilization = self.schedule.metrics(TAU_S, window).utilization
        else:
            makespan = self.schedule.metrics(TAU_S).makespan_s
            held_s = float(self.schedule.job_held_s[self.ran].sum())
            utilization = held_s / (self.schedule.processors * makespan)
        return {"p95_processors": float(p95), "utilization_pct": 100.0 * utilization}

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Home centre of each job, the centre at which it ran, and its cost there; (n,) each.

        "" and nan where there is none.
        """
        names = np.array([*(centre.name for centre in self.centres), ""])
        origins = np.array(self.origins, np.str_)
        return {"origin": origins, "centre": names[self.ran_at], "cost": self.cost}


def _spread(name: str, values: Floats) -> dict[str, float | None]:
    """Mean, standard deviation and 95th percentile; None if there are no values."""
    if not len(values):
        return {f"{part}_{name}": None for part in ("mean", "sd", "p95")}
    return {
        f"mean_{name}": float(values.mean()),
        f"sd_{name}": float(values.std()),
        f"p95_{name}": float(np.percentile(values, 95)),
    }
