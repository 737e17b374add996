"""What a run gave, and the numbers people compare runs by."""

from __future__ import annotations

from itertools import pairwise
from math import nan

import msgspec

from scheduler.model.events import JobSpec
from scheduler.model.job import Job, JobState


class Outcome(msgspec.Struct, frozen=True):
    """What became of one job. Times in seconds; `sizes` are (time, processors), the start first.

    `started_at` is its last start; size 0 stands between two lives.
    """

    job: int
    spec: JobSpec
    state: JobState
    submitted_at: float
    started_at: float
    ended_at: float
    sizes: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, job: Job) -> Outcome:
        """What is kept of an ended job."""
        assert job.started_at is not None
        assert job.ended_at is not None
        return cls(
            job.id,
            job.spec,
            job.state,
            job.submitted_at,
            job.started_at,
            job.ended_at,
            job.sizes,
        )

    @property
    def wait_s(self) -> float:
        """From submission to start."""
        return self.started_at - self.submitted_at

    @property
    def execution_s(self) -> float:
        """From start to end."""
        return self.ended_at - self.started_at

    @property
    def turnaround_s(self) -> float:
        """From submission to end (PRIO's completion time)."""
        return self.ended_at - self.submitted_at

    def bounded_slowdown(self, tau_s: float) -> float:
        """Turnaround over execution, at least 1, executions below `tau_s` taken as that long."""
        return max(1.0, self.turnaround_s / max(self.execution_s, tau_s))

    @property
    def steps(self) -> list[int]:
        """Changes of size, in processors; a redirection is none."""
        sizes = [size for _, size in self.sizes]
        return [new - old for old, new in pairwise(sizes) if old and new]


class Metrics(msgspec.Struct, frozen=True):
    """Numbers of a run. Means are over ended jobs, nan if there is none; times in seconds.

    Parameters
    ----------
    mean_turnaround_s : from submission to end: the paper's completion time.
    mean_bounded_slowdown : with executions of at least `tau_s` seconds.
    utilization : processor-seconds held by jobs over those there were, first submission to last
        end.
    killed, unstarted : jobs ended at their walltime; jobs no machine of this size could run.
    """

    jobs: int
    mean_wait_s: float
    mean_execution_s: float
    mean_turnaround_s: float
    mean_bounded_slowdown: float
    tau_s: float
    utilization: float
    makespan_s: float
    expansions: int
    contractions: int
    killed: int
    unstarted: int


class Result(msgspec.Struct, frozen=True):
    """A run.

    Parameters
    ----------
    outcomes : ended jobs in the order of their ends.
    processors : of the machine.
    busy_s : processor-seconds held by jobs.
    left : numbers of the jobs that could not run.
    """

    outcomes: list[Outcome]
    processors: int
    busy_s: float
    left: list[int]

    def metrics(self, tau_s: float = 60.0) -> Metrics:
        """Sum up the run."""
        outcomes = self.outcomes
        steps = [step for o in outcomes for step in o.steps]
        first = min((o.submitted_at for o in outcomes), default=0.0)
        makespan_s = max((o.ended_at for o in outcomes), default=0.0) - first
        there = self.processors * makespan_s
        return Metrics(
            jobs=len(outcomes),
            mean_wait_s=_mean([o.wait_s for o in outcomes]),
            mean_execution_s=_mean([o.execution_s for o in outcomes]),
            mean_turnaround_s=_mean([o.turnaround_s for o in outcomes]),
            mean_bounded_slowdown=_mean([o.bounded_slowdown(tau_s) for o in outcomes]),
            tau_s=tau_s,
            utilization=self.busy_s / there if there else nan,
            makespan_s=makespan_s,
            expansions=sum(step > 0 for step in steps),
            contractions=sum(step < 0 for step in steps),
            killed=sum(o.state is JobState.TIMEOUT for o in outcomes),
            unstarted=len(self.left),
        )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else nan
