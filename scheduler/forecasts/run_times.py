"""Run times that futures draw: from the quantiles of a predictor, or from those of past jobs.

If the predictor of the core has quantiles for a job, the run time is drawn from them. Otherwise
the ratio of run time to walltime is drawn from past jobs that are like it: users repeat their jobs,
and the jobs that hold most of a machine are not like most jobs. The run time of a running job is
drawn from the part of its distribution beyond the time for which it has run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import frexp
from typing import NamedTuple

import numpy as np

from scheduler.forecasts.recorded_state import PAST_JOBS, RecordedState
from scheduler.model.events import JobSpec
from scheduler.model.job import Job

#: Probabilities of the quantiles of a predictor; between them the distribution is linear.
PROBABILITIES = (0.01, *(step / 20 for step in range(1, 20)), 0.99)
#: Past jobs that are like a job are enough if there are as many as this.
LEAST = 10


class RunTimes(NamedTuple):
    """Distributions of the run times of the jobs of a state.

    Parameters
    ----------
    state : with the jobs.
    ratios : run time divided by walltime of past jobs, ascending, by what they have in common; see
        `_likenesses`.
    quantiles : job number -> run times (s) at `PROBABILITIES`, for jobs for which the predictor has
        them.
    alike : job number -> what `_alike` returns for the jobs that all futures have.
    """

    state: RecordedState
    ratios: Mapping[Hashable, Sequence[float]]
    quantiles: Mapping[int, Sequence[float]]
    alike: dict[int, list[Sequence[float]]]

    @classmethod
    def of(cls, state: RecordedState, specs: Sequence[JobSpec] = ()) -> RunTimes:
        """Ask the predictor of a state about its jobs, and about jobs that are submitted to it."""
        core = state.core()
        quantiles = {}
        for job in _all_jobs(state, specs):
            predictor = core.partition_of(job).predictor
            predicted = None if predictor is None else predictor.quantiles(job, PROBABILITIES)
            if predicted is not None:
                quantiles[job.id] = _ascending(predicted)
        ratios: dict[Hashable, list[float]] = {}
        for job in state.past[-PAST_JOBS:]:
            ratio = run_ratio(job)
            if ratio is not None:
                for likeness in _likenesses(job.spec):
                    ratios.setdefault(likeness, []).append(ratio)
        ascending = {like: sorted(values) for like, values in ratios.items()}
        alike = {job.id: _alike(ascending, job.spec) for job in _all_jobs(state, specs)}
        return cls(state, ascending, quantiles, alike)

    def drawn(self, specs: Iterable[JobSpec], rng: np.random.Generator) -> dict[int, float]:
        """Draw the run times of all jobs of the state, and of jobs that are submitted to it.

        Returns
        -------
        job number -> run time from the start to the end, s. A job has no entry if there is no past
        job and no quantile, or if it has run for longer than all of them.
        """
        if not self.ratios and not self.quantiles:
            return {}
        jobs = _all_jobs(self.state, specs)
        drawn: dict[int, float] = {}
        for job, u in zip(jobs, rng.random(len(jobs)).tolist(), strict=True):
            passed_s = 0.0 if job.started_at is None else self.state.now - job.started_at
            if job.id in self.quantiles:
                run_s = _from_quantiles(self.quantiles[job.id], passed_s, u)
            else:
                alike = self.alike.get(job.id)
                if alike is None:
                    alike = _alike(self.ratios, job.spec)
                run_s = _from_ratios(alike, job.spec.walltime_s, passed_s, u)
            if run_s is not None:
                limit_s = job.spec.walltime_s if self.state.kill_at_walltime else run_s
                drawn[job.id] = min(run_s, limit_s)
        return drawn


#: What all jobs have in common.
ALL: Hashable = ()


def _likenesses(spec: JobSpec) -> tuple[Hashable, ...]:
    """What a job has in common with others, from the most alike to all jobs.

    These are its user, name and walltime; user and walltime; the user; and the walltime up to a
    factor of two.
    """
    user, walltime_s = spec.user, spec.walltime_s
    return (user, spec.name, walltime_s), (user, walltime_s), (user,), frexp(walltime_s)[1], ALL


def _alike(ratios: Mapping[Hashable, Sequence[float]], spec: JobSpec) -> list[Sequence[float]]:
    """Return ratios of past jobs, those of the jobs most like this one first."""
    known = ((like, ratios.get(like, ())) for like in _likenesses(spec))
    return [values for like, values in known if len(values) >= LEAST or like == ALL]


def _from_ratios(
    alike: Iterable[Sequence[float]], walltime_s: float, passed_s: float, u: float
) -> float | None:
    """Draw a ratio above the share of the walltime that has passed."""
    for ratios in alike:
        passed = bisect_right(ratios, passed_s / walltime_s) if passed_s > 0 else 0
        if passed < len(ratios):
            return ratios[passed + int(u * (len(ratios) - passed))] * walltime_s
    return None


def run_ratio(job: Job) -> float | None:
    """Run time of an ended job divided by its walltime; None if it did not run."""
    if job.started_at is None or job.ended_at is None:
        return None
    return (job.ended_at - job.started_at) / job.spec.walltime_s


def _from_quantiles(quantiles: Sequence[float], passed_s: float, u: float) -> float | None:
    """Draw a run time above the one that has passed."""
    if passed_s >= quantiles[-1]:
        return None
    below = 0.0
    if passed_s > quantiles[0]:
        below = float(np.interp(passed_s, quantiles, PROBABILITIES))
    return max(passed_s, float(np.interp(below + u * (1.0 - below), PROBABILITIES, quantiles)))


def _ascending(quantiles: Iterable[float]) -> list[float]:
    """Quantiles of a predictor, which may be a user's own, made ascending."""
    ascending = np.maximum.accumulate(np.fromiter(quantiles, dtype=np.float64))
    return ascending.tolist()  # type: ignore[no-any-return]


def _all_jobs(state: RecordedState, specs: Iterable[JobSpec]) -> list[Job]:
    """Jobs of a state, and those that are submitted to it."""
    submitted = [Job(state.last + i, spec, state.now) for i, spec in enumerate(specs, 1)]
    return [*state.jobs, *submitted]
