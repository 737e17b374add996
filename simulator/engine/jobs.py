"""Single jobs, rigid or resizable, and their columns."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from reshape.speedup import Speedup
from scheduler.model.events import JobSpec
from simulator.traces.trace_jobs import TraceJobs


class ProgramPhase(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a program that requests bounds on the size of its job when it begins.

    Parameters
    ----------
    iteration : number of its first iteration, from 0.
    minimum, maximum : bounds on the number of processors; 0: none.
    """

    iteration: int
    minimum: int = 0
    maximum: int = 0


class SimJob(msgspec.Struct, frozen=True):
    """A single job, rigid or resizable.

    Parameters
    ----------
    at : time of submission, seconds.
    spec : request of the user.
    run_s : run time on the requested size, seconds.
    iterations : number of iterations of equal length; there is a resize point between any two.
    speedup : speedup by size; None: the job takes the same time on any size.
    data_bytes : bytes that move at a resize.
    phases : parts of its program with bounds of their own, in order; resizable jobs only.

    Raises
    ------
    ValueError : a negative time, or no iteration.
    """

    at: float
    spec: JobSpec
    run_s: float
    iterations: int = 1
    speedup: Speedup | None = None
    data_bytes: int = 0
    phases: tuple[ProgramPhase, ...] = ()

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not self.run_s >= 0:
            raise ValueError(f"run_s must be >= 0, got {self.run_s}")
        if self.iterations < 1:
            raise ValueError(f"iterations must be >= 1, got {self.iterations}")
        if self.phases and not self.spec.resizable:
            raise ValueError(
                "phases: the job is rigid; give it max_processors above processors, or"
                " min_processors below"
            )
        for phase in self.phases:
            if not 0 <= phase.iteration < self.iterations:
                raise ValueError(
                    f"phases: iteration must be from 0 to {self.iterations - 1}, "
                    f"got {phase.iteration}"
                )
            if min(phase.minimum, phase.maximum) < 0:
                raise ValueError(
                    f"phases: minimum and maximum must be >= 0, got {phase.minimum} and "
                    f"{phase.maximum}"
                )

    @property
    def iteration_s(self) -> float:
        """Time of an iteration on the requested size, seconds."""
        return self.run_s / self.iterations

    def run_on_s(self, size: int) -> float:
        """Run time on `size` processors, seconds."""
        if self.speedup is None or size == self.spec.processors:
            return self.run_s
        return self.run_s / self.speedup.factor(self.spec.processors, size)


def columns_of(jobs: Sequence[SimJob]) -> TraceJobs:
    """Columns of single jobs, for the results; run times are those on the starting sizes.

    Parameters
    ----------
    jobs : in the order of submission.
    """
    count = len(jobs)
    names = sorted({job.spec.user for job in jobs})
    users = {name: number for number, name in enumerate(names)}
    resources = [job.spec.resources for job in jobs]
    kinds = dict.fromkeys(kind for amounts in resources for kind in amounts)
    partitions = list(dict.fromkeys(job.spec.partition for job in jobs))
    if not any(partitions):
        partitions = []
    return TraceJobs(
        lines=np.arange(count),
        numbers=np.arange(1, count + 1),
        submitted=np.array([job.at for job in jobs], float),
        run=np.array([job.run_s for job in jobs], float),
        estimate=np.array([job.spec.walltime_s for job in jobs], float),
        processors=np.array(
            [job.spec.processors if job.spec.array is None else 0 for job in jobs], np.int64
        ),
        users=np.array([users[job.spec.user] for job in jobs], np.int64),
        priorities=np.array([job.spec.priority for job in jobs], float),
        cut=np.zeros(count, bool),
        resources={
            kind: np.array([amounts.get(kind, 0) for amounts in resources], np.int64)
            for kind in kinds
        },
        partition=np.array(
            [partitions.index(job.spec.partition) for job in jobs if partitions], np.int64
        ),
        partitions=tuple(partitions),
    )
