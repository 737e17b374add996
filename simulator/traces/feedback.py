"""Feedback: which jobs of a trace are submitted after another one has ended (fields 17 and 18).

In the log a user saw the end of a job, thought, and submitted the next one. In a simulation the
first job may end at another time, and with feedback the next one is submitted as long after that
end as in the log. D. G. Feitelson, "Workload modeling for computer systems performance evaluation",
section 8.4, tells why results depend on it.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ConfigError
from simulator.traces.swf import Trace
from simulator.traces.trace_jobs import TraceJobs

#: Columns of a trace that tell of it.
COLUMNS = ("preceding", "think")


class Feedback(msgspec.Struct, frozen=True):
    """Which jobs follow others.

    Parameters
    ----------
    after : preceding job of each job, by its place in the order of submission from 1; 0: none.
    think_s : time from its end to the submission, seconds; 0 where the log does not know it.
    """

    after: list[int]
    think_s: list[float]

    @classmethod
    def of(cls, trace: Trace, jobs: TraceJobs) -> Feedback:
        """Feedback of the jobs that rules keep of a trace.

        A preceding job that is not simulated, or is not submitted earlier, counts as none.

        Raises
        ------
        ConfigError : no job has a preceding one.
        """
        preceding, think = (_column(trace, name)[jobs.lines] for name in COLUMNS)
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
        return cls(after, np.maximum(think, 0.0).tolist())


def _column(trace: Trace, name: str) -> NDArray[np.float64]:
    """Column as float64; -1 everywhere if there is none."""
    if name not in trace.columns:
        return np.full(len(trace), -1.0)
    return trace.columns[name].astype(np.float64)
