"""What the simulator runs: jobs that are given one by one, and what it asks of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from reshape.speedup import Speedup
from scheduler.model.events import JobSpec


class SimJob(msgspec.Struct, frozen=True):
    """A job as the simulator runs it.

    Parameters
    ----------
    at : time of submission, seconds.
    spec : what the user asks for.
    iteration_s : time of an iteration on the starting size, seconds.
    iterations : how many; between any two stands a resize point.
    speedup : how the time depends on the size; None: it does not.
    data_bytes : data that moves at a resize.

    Raises
    ------
    ValueError : a negative time, or no iteration.
    """

    at: float
    spec: JobSpec
    iteration_s: float
    iterations: int = 1
    speedup: Speedup | None = None
    data_bytes: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not self.iteration_s >= 0:
            raise ValueError(f"iteration_s must be >= 0, got {self.iteration_s}")
        if self.iterations < 1:
            raise ValueError(f"iterations must be >= 1, got {self.iterations}")

    def time_s(self, size: int) -> float:
        """Time of an iteration on so many processors, seconds."""
        if self.speedup is None or size == self.spec.processors:
            return self.iteration_s
        return self.iteration_s / self.speedup.factor(self.spec.processors, size)


class Submissions(Protocol):
    """What an engine runs: jobs numbered from 1 in the order of their submission."""

    def __len__(self) -> int:
        """Count the jobs."""

    def submit_times(self) -> list[float]:
        """Times of submission in order, seconds."""

    def specs(self) -> list[JobSpec]:
        """What each job asks for, in order."""

    def run_times(self) -> list[float]:
        """Run times of the rigid jobs in order, seconds, without their start and end."""


class Given:
    """Submissions of jobs given one by one, resizable or not."""

    def __init__(self, jobs: Iterable[SimJob]) -> None:
        self.jobs = sorted(jobs, key=lambda job: job.at)

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self.jobs)

    def submit_times(self) -> list[float]:
        """Times of submission in order, seconds."""
        return [job.at for job in self.jobs]

    def specs(self) -> list[JobSpec]:
        """What each job asks for, in order."""
        return [job.spec for job in self.jobs]

    def run_times(self) -> list[float]:
        """Run times in order, seconds."""
        return [job.iterations * job.iteration_s for job in self.jobs]
