"""The jobs of a simulation as columns, in the order of their submission."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ConfigError
from scheduler.model.events import JobSpec
from simulator.traces.swf import Trace

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]


class TraceJobs(msgspec.Struct, frozen=True):
    """Rigid jobs in the order of their submission; the core numbers them 1, 2, ...

    Parameters
    ----------
    lines : (n,) int64, index of each job in the trace.
    numbers : (n,) int64, its number in the trace, which may repeat; (n,) str of jobs that were read
        from a jobs.csv.
    submitted, run, estimate : (n,) float64, seconds.
    processors : (n,) int64.
    users : (n,) int64, -1 unknown.
    priorities : (n,) float64, larger is more urgent.
    cut : (n,) bool, whether the run was cut at the request.
    resources : further resource -> (n,) int64, amount.
    shared : shared resource -> (n,) int64, demand of each process.
    labels : field of `JobSpec` -> (n,) int64, -1 unknown: those of `LABELS` if asked for, and
        `BOUNDS` if the jobs have any (`simulator.traces.normalise`).
    partition : (n,) int64, index of each job's partition among `partitions`, which may be none.
    reservation : (n,) str, name of the advance reservation to which each job is submitted, "" for
        none; empty without any.
    """

    lines: Ints
    numbers: Ints | NDArray[np.str_]
    submitted: Floats
    run: Floats
    estimate: Floats
    processors: Ints
    users: Ints
    priorities: Floats
    cut: Bools
    resources: dict[str, Ints] = {}
    shared: dict[str, Ints] = {}
    labels: dict[str, Ints] = {}
    partition: Ints = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))
    partitions: tuple[str, ...] = ()
    reservation: NDArray[np.str_] = msgspec.field(default_factory=lambda: np.zeros(0, np.str_))

    @classmethod
    def of(
        cls,
        numbers: Ints | NDArray[np.str_],
        submitted: Floats,
        run: Floats,
        processors: Ints,
    ) -> TraceJobs:
        """Jobs of which only these columns are known; their estimates are nan."""
        count = len(numbers)
        return cls(
            lines=np.arange(count),
            numbers=numbers,
            submitted=submitted,
            run=run,
            estimate=np.full(count, np.nan),
            processors=processors,
            users=np.full(count, -1),
            priorities=np.zeros(count),
            cut=np.zeros(count, np.bool_),
        )

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self.numbers)

    def first(self, count: int) -> TraceJobs:
        """The first `count` jobs."""
        return self.select(slice(count))

    def select(self, chosen: Bools | Ints | slice) -> TraceJobs:
        """Some of the jobs.

        Parameters
        ----------
        chosen : (n,) bool, (m,) int64, indices in any order, or a slice.
        """

        def part(field: Any) -> Any:
            if isinstance(field, dict):
                return {name: column[chosen] for name, column in field.items()}
            is_column = isinstance(field, np.ndarray) and len(field) == len(self)
            return field[chosen] if is_column else field

        fields = msgspec.structs.asdict(self).items()
        return TraceJobs(**{name: part(field) for name, field in fields})

    def specs(self) -> list[JobSpec]:
        """Request of each job, in order; equal requests share one object."""
        columns = [self.processors, self.estimate, self.users, self.priorities]
        columns += [*self.resources.values(), *self.shared.values()]
        made = lru_cache(maxsize=None)(self._request)
        specs = list(map(made, *(column.tolist() for column in columns)))
        if self.partitions:
            own = [self.partitions[index] for index in self.partition.tolist()]
            specs = [
                msgspec.structs.replace(each, partition=name)
                for each, name in zip(specs, own, strict=True)
            ]
        if self.labels:
            rows = zip(*(column.tolist() for column in self.labels.values()), strict=True)
            specs = [
                _labelled(each, self.labels, row) for each, row in zip(specs, rows, strict=True)
            ]
        for index in np.flatnonzero(self.reservation != "").tolist():
            name = str(self.reservation[index])
            specs[index] = msgspec.structs.replace(specs[index], reservation=name)
        return specs

    def _request(
        self, processors: int, estimate: float, user: int, priority: float, *amounts: int
    ) -> JobSpec:
        """Request of a row of columns."""
        further = len(self.resources)
        return JobSpec(
            processors,
            estimate,
            user=str(user) if user >= 0 else "",
            priority=priority,
            resources=_positive(self.resources, amounts[:further]),
            shared=_positive(self.shared, amounts[further:]),
        )


#: Labels that are numbers in a request.
_NUMBERS = frozenset({"memory_kib", "min_processors", "max_processors"})


def _positive(names: Iterable[str], amounts: Sequence[int]) -> dict[str, int]:
    """Amounts by name, without zeros."""
    return {name: amount for name, amount in zip(names, amounts, strict=True) if amount}


def _labelled(spec: JobSpec, names: Iterable[str], values: tuple[int, ...]) -> JobSpec:
    """Request with labels; negative values are unknown."""
    labelled = {name: value for name, value in zip(names, values, strict=True) if value >= 0}
    labels = {n: value if n in _NUMBERS else str(value) for n, value in labelled.items()}
    return msgspec.structs.replace(spec, **labels)


#: Columns of a trace that tell which jobs follow others.
FEEDBACK = ("preceding", "think")


def preceding_jobs(trace: Trace, jobs: TraceJobs) -> list[tuple[int, float]]:
    """Which jobs follow others, of the jobs that rules keep of a trace.

    A preceding job that is not simulated, or is not submitted earlier, counts as none.

    Returns
    -------
    of each job the preceding one, by its place in the order of submission from 1 (0: none), and the
    time from its end to the submission, seconds; 0 where the log does not know it

    Raises
    ------
    ConfigError : no job has a preceding one.
    """
    preceding, think = (trace.numbers(name)[jobs.lines] for name in FEEDBACK)
    positions: dict[int, int] = {}
    after = []
    for position, (number, before) in enumerate(
        zip(jobs.numbers.tolist(), preceding.astype(np.int64).tolist(), strict=True), 1
    ):
        after.append(positions.get(before, 0) if before > 0 else 0)
        positions[number] = position
    if not any(after):
        raise ConfigError(
            f"no job of {trace.path} names a preceding one that is simulated (field 17,"
            " preceding_job); leave it out",
            field="feedback",
        )
    return list(zip(after, np.maximum(think, 0.0).tolist(), strict=True))
