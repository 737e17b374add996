"""What became of each job of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import msgspec
import numpy as np

from scheduler.model.events import JobSpec
from scheduler.model.job import Job, JobState
from scheduler.model.orders import Refuse, Reserve
from scheduler.model.procset import ProcSet
from simulator.results.metrics import Metrics, metrics_of

#: Processors of a job over time: (time in seconds, processors from then on).
Places: TypeAlias = Sequence[tuple[float, ProcSet]]
#: Sizes of a job over time: (time in seconds, processors from then on).
Sizes: TypeAlias = Sequence[tuple[float, int]]


def steps(sizes: Iterable[tuple[float, int]]) -> list[int]:
    """Changes of size, in processors; a redirection (size 0 in between) is none."""
    numbers = [size for _, size in sizes]
    return [new - old for old, new in pairwise(numbers) if old and new]


class Outcome(msgspec.Struct, frozen=True):
    """What became of one job. Times in seconds.

    Parameters
    ----------
    started_at : its last start.
    sizes : (time, processors) at the start and at each change; 0 processors between two runs.
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
        """Outcome of a job that has ended."""
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


class Result(msgspec.Struct, frozen=True):
    """What a run gave; jobs are numbered from 1 in the order of their submission.

    Parameters
    ----------
    outcomes : jobs that ended, in the order of their ends; empty if the jobs came as columns.
    processors : of the machine.
    held_s : processor-seconds that jobs held, joining groups included; None if they came as
        columns.
    unstarted : numbers of the jobs that could not run.
    started, ended : time of each job in seconds; nan if it did not start or end.
    killed : numbers of the jobs that the core ended for good.
    redirected : (job, start, end) of each run that was ended to start again elsewhere.
    allocated : processors of each rigid job that started, by number, if they were kept.
    places : processors of each single job over time, by number, if they were kept.
    computed : job number -> seconds that it computed: without neighbours, and what they added. For
        single jobs that share nodes.
    first_estimates : estimate of each job at its submission, seconds, nan if it did not start; if
        they were kept.
    answers : to requests for advance reservations.
    """

    outcomes: list[Outcome]
    processors: int
    held_s: float | None
    unstarted: list[int]
    started: list[float] = []
    ended: list[float] = []
    killed: set[int] = set()
    redirected: list[tuple[int, float, float]] = []
    allocated: Mapping[int, ProcSet] | None = None
    places: Mapping[int, Places] | None = None
    computed: Mapping[int, tuple[float, float]] | None = None
    first_estimates: list[float] | None = None
    answers: Sequence[Reserve | Refuse] = ()

    def metrics(self, tau: float = 60.0) -> Metrics:
        """Metrics of the jobs in `outcomes`; `tau` bounds run times in the slowdown, seconds."""
        outcomes = self.outcomes
        return metrics_of(
            np.array([outcome.submitted_at for outcome in outcomes]),
            np.array([outcome.started_at for outcome in outcomes]),
            np.array([outcome.ended_at for outcome in outcomes]),
            processors=self.processors,
            held_s=self.held_s or 0.0,
            tau=tau,
            unstarted=len(self.unstarted),
            killed=sum(outcome.state is JobState.TIMEOUT for outcome in outcomes),
            redirected=len(self.redirected),
            steps=[step for outcome in outcomes for step in steps(outcome.sizes)],
        )
