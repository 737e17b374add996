"""Jobs drawn from a model, and their trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from simulator.traces.swf import RESOURCE, Column, Oddities, Trace

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


class DrawnJobs(msgspec.Struct, frozen=True):
    """Jobs in the order of their submission.

    Parameters
    ----------
    processors : (n,) int64, >= 1.
    run : (n,) float64, seconds.
    submitted : (n,) float64, seconds, ascending; None: the model has no arrivals.
    estimate : (n,) float64, seconds; None: the run time.
    executable : (n,) int64, the same for repetitions of a job; None: the model does not repeat.
    resources : (n, k) int64, demands for further resources; None: none.
    """

    processors: Ints
    run: Floats
    submitted: Floats | None = None
    estimate: Floats | None = None
    executable: Ints | None = None
    resources: Ints | None = None

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self.processors)

    @property
    def work(self) -> float:
        """Processor-seconds of all jobs."""
        return float((self.processors * self.run).sum())

    def arriving(self, submitted: Floats) -> DrawnJobs:
        """The same jobs submitted at these times."""
        return msgspec.structs.replace(self, submitted=submitted)

    def trace(
        self,
        processors: int,
        header: list[str] | None = None,
        resources: Mapping[str, int] | None = None,
    ) -> Trace:
        """Trace of these jobs, in whole seconds, run times at least 1 s.

        Parameters
        ----------
        processors : of the machine, for the header.
        header : comments before that.
        resources : amounts of the further resources on the machine, in the order of their columns.
        """
        n = len(self)
        assert self.submitted is not None
        run = np.maximum(np.rint(self.run), 1).astype(np.int64)
        estimate = run if self.estimate is None else np.rint(self.estimate).astype(np.int64)
        columns: dict[str, Column] = {
            "job": np.arange(1, n + 1, dtype=np.int64),
            "submit": np.rint(self.submitted).astype(np.int64),
            "run": run,
            "processors": self.processors,
            "requested_processors": self.processors,
            "requested_time": np.maximum(estimate, run),
            "status": np.ones(n, dtype=np.int64),
        }
        if self.executable is not None:
            columns["executable"] = self.executable
        lines = [*(header or []), f"; MaxProcs: {processors}", f"; MaxJobs: {n}"]
        if resources:
            assert self.resources is not None
            lines.append("; Resources: " + " ".join(f"{k}={v}" for k, v in resources.items()))
            columns |= {RESOURCE + k: self.resources[:, i] for i, k in enumerate(resources)}
        return Trace("generated", lines, columns, Oddities())


def poisson(jobs: int, rng: np.random.Generator, mean_s: float = 1.0) -> Floats:
    """Times of submission of a Poisson process, the first after one pause.

    Returns
    -------
    (jobs,) float64, seconds
    """
    return np.cumsum(rng.exponential(mean_s, jobs))
