"""Which partition of the machine each job of a trace is submitted to."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from scheduler.config.partitions import PartitionLimits
from scheduler.text.formats import counted
from simulator.traces.swf import FIELDS, NAMES, Trace

#: Field of a trace that numbers the partitions.
PartitionField: TypeAlias = Literal["partition", "queue"]


class TracePartitions(msgspec.Struct, frozen=True):
    """Partitions of the jobs of a trace, in the order of its lines.

    Parameters
    ----------
    names : of the partitions.
    index : (n,) int64, index of each job's partition among the names.
    most : (n,) float64, largest number of processors of a job in that partition.
    longest_s, usual_s : (n,) float64, its longest walltime, inf without a limit, and the walltime
        of jobs that request none, -1 if it sets none.
    """

    names: tuple[str, ...]
    index: NDArray[np.int64]
    most: NDArray[np.float64]
    longest_s: NDArray[np.float64]
    usual_s: NDArray[np.float64]

    @classmethod
    def of(cls, trace: Trace, limits: PartitionLimits, field: PartitionField) -> TracePartitions:
        """Read the partitions of the jobs: number n is the nth partition of the machine.

        Jobs whose number is not above 0, such as -1 for unknown, are in the first partition.

        Raises
        ------
        ReshapeError : a job has a larger number than there are partitions.
        """
        names = tuple(limits.partitions)
        unknown = np.full(len(trace), -1)
        numbers = np.maximum(trace.columns.get(field, unknown).astype(np.int64), 1)
        wrong = numbers > len(names)
        if wrong.any():
            line = int(np.argmax(wrong))
            title = NAMES[FIELDS.index(field)]
            raise ReshapeError(
                f"{trace.path}: job {int(trace.columns['job'][line])} has {title}"
                f" {int(numbers[line])}, the machine has {counted(len(names), 'partition')}"
                f" ({', '.join(names)}): name more of them, or choose another partition_field"
            )
        index, own = numbers - 1, limits.partitions.values()
        return cls(
            names,
            index,
            _column((limits.largest(name) for name in names), index),
            _column((partition.max_walltime_s or inf for partition in own), index),
            _column((partition.default_walltime_s or -1 for partition in own), index),
        )


def _column(values: Iterable[float], index: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.array(list(values), dtype=np.float64)[index]
