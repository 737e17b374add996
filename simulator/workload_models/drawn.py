"""Jobs that models draw, what they demand besides processors, and the rate at which they come.

*Requirements* of K resources follow from one size, as KRES 3.1 draws them. Leinberger, Karypis and
Kumar, "Job scheduling in the presence of multiple resource requirements": "a set of K random
numbers was drawn from a uniform random variable and then scaled with the job size"; "a similar
method was used for the exponential distribution". The paper does not give their means. Both are 1/2
here, so that both laws have the same mean demand: uniform on (0, 1], or exponential of mean 1/2,
cut at the capacity of the machine. The machine has as many units of each resource as processors; a
job requests at least one of each.

*Demands* for a shared resource are drawn for the jobs of a trace (GUIM 6.3.1, 6.3.2). The arrival
*rate* is the one that gives a mean queue length (KRES 3.1, "System Load").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from simulator.results.schedule import Schedule
from simulator.traces.swf import RESOURCE, SHARED, Column, Trace, header_field

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Law: TypeAlias = Literal["uniform", "exponential"]


class DrawnJobs(msgspec.Struct, frozen=True):
    """Jobs in the order of their submission.

    Parameters
    ----------
    processors : (n,) int64, >= 1.
    run : (n,) float64, seconds.
    submitted : (n,) float64, seconds, ascending; None: the model has no arrivals.
    estimate : (n,) float64, seconds; None: the run time.
    executable : (n,) int64, the same for repetitions of a job; None: the model does not repeat.
    resources : further resource -> (n,) int64, demand of each job; the machine has as much of it as
        it has processors.
    """

    processors: Ints
    run: Floats
    submitted: Floats | None = None
    estimate: Floats | None = None
    executable: Ints | None = None
    resources: dict[str, Ints] = {}

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self.processors)

    @property
    def work(self) -> float:
        """Processor-seconds of all jobs."""
        return float((self.processors * self.run).sum())

    def requiring(self, k: int, law: Law, capacity: int, rng: np.random.Generator) -> DrawnJobs:
        """Draw demands of the same jobs for K resources, processors among them.

        Parameters
        ----------
        capacity : units of each resource.
        """
        needs = requirements(self.processors, capacity, factors(len(self), k, law, rng))
        further = {f"r{i + 1}": needs[:, i] for i in range(1, k)}
        return msgspec.structs.replace(self, processors=needs[:, 0], resources=further)

    def trace(self, submitted: Floats, processors: int, header: list[str] | None = None) -> Trace:
        """Trace of these jobs, in whole seconds, run times at least 1 s.

        Parameters
        ----------
        submitted : (n,) float64, times of their submission, seconds.
        processors : of the machine, for the header.
        header : comments before that.
        """
        n = len(self)
        run = np.maximum(np.rint(self.run), 1).astype(np.int64)
        estimate = run if self.estimate is None else np.rint(self.estimate).astype(np.int64)
        columns: dict[str, Column] = {
            "job": np.arange(1, n + 1, dtype=np.int64),
            "submit": np.rint(submitted).astype(np.int64),
            "run": run,
            "processors": self.processors,
            "requested_processors": self.processors,
            "requested_time": np.maximum(estimate, run),
            "status": np.ones(n, dtype=np.int64),
        }
        if self.executable is not None:
            columns["executable"] = self.executable
        lines = [*(header or []), f"; MaxProcs: {processors}", f"; MaxJobs: {n}"]
        if self.resources:
            lines.append(
                "; Resources: " + " ".join(f"{name}={processors}" for name in self.resources)
            )
            columns |= {RESOURCE + name: column for name, column in self.resources.items()}
        return Trace("generated", lines, columns)


def poisson(jobs: int, rng: np.random.Generator, mean_s: float = 1.0) -> Floats:
    """Times of submission of a Poisson process, the first after one pause.

    Returns
    -------
    (jobs,) float64, seconds
    """
    return np.cumsum(rng.exponential(mean_s, jobs))


def factors(jobs: int, k: int, law: Law, rng: np.random.Generator) -> Floats:
    """Random factors of the sizes, (jobs, k) float64."""
    if law == "uniform":
        return 1.0 - rng.random((jobs, k))  # above 0
    return rng.exponential(0.5, (jobs, k))


def requirements(sizes: Ints, capacity: int, drawn: Floats) -> Ints:
    """Demands of jobs for K resources.

    Parameters
    ----------
    sizes : (n,) int64, of the model.
    capacity : units of each resource.
    drawn : (n, K) float64, see `factors`.

    Returns
    -------
    (n, K) int64, from 1 to the capacity; the first is that of processors.
    """
    amounts = np.ceil(sizes[:, np.newaxis] * drawn)
    return np.clip(amounts, 1, capacity).astype(np.int64)


#: Percentages of jobs with a high, a medium and a low demand (GUIM 6.3.1).
MIXES: Final = {"high": (80, 10, 10), "med": (50, 10, 40), "low": (10, 10, 80)}
#: Demands of a process, high, medium and low, and what a node has, MB/s (GUIM 6.3.2).
LEVELS: Final = (2000, 1000, 500)
CAPACITY: Final = 6000
NAME: Final = "memory_bandwidth"


def with_demands(
    trace: Trace,
    mix: Sequence[int],
    seed: int,
    *,
    levels: Sequence[int] = LEVELS,
    capacity: int = CAPACITY,
    name: str = NAME,
) -> Trace:
    """Trace with demands for one shared resource in place of any others for such resources.

    Parameters
    ----------
    mix : percentages of jobs with the first, the second ... of the levels; together 100.
    seed : the same one draws the same demands.
    levels : demand of a process.
    capacity : of a node.
    name : of the resource.

    Raises
    ------
    ValueError : percentages are below 0, not as many as levels, or not 100 together.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.choice(np.array(levels, np.int64), len(trace), p=np.array(mix) / 100)
    kept = {n: column for n, column in trace.columns.items() if not n.startswith(SHARED)}
    ordered = sorted(kept.items(), key=lambda item: item[0].startswith(RESOURCE))
    header = [line for line in trace.header if header_field(line)[0] != "shared"]
    header.append(f"; Shared: {name}={capacity}")
    return Trace(trace.path, header, dict(ordered) | {SHARED + name: drawn}, trace.oddities)


WIDEST = 64.0  # largest factor between the first guess and the result


def mean_queue(schedule: Schedule) -> float:
    """Mean number of waiting jobs over the time in which jobs are submitted."""
    submitted = schedule.jobs.submitted
    first, last = float(submitted[0]), float(submitted[-1])
    span = last - first
    started = np.where(np.isnan(schedule.started), last, schedule.started)
    waited: Floats = np.minimum(started, last) - np.maximum(submitted, first)
    return float(waited.sum()) / span if span else 0.0


def arrival_for_queue(
    target: float, queue_at: Callable[[float], float], guess_s: float, tolerance: float = 0.04
) -> float:
    """Mean time between submissions at which the mean queue has the wanted length, seconds.

    The queue is the shorter, the longer the time between two submissions. The search first finds
    two times with the target between their queues, then uses Brent's method on logarithms until the
    queue is within the tolerance.

    Parameters
    ----------
    target : mean queue length to reach, > 0.
    queue_at : returns the mean queue of a simulation with this mean time, seconds; it is called
        once for each time.
    tolerance : accepted relative distance from the target.

    Raises
    ------
    ReshapeError : no such time within a factor of `WIDEST` of the guess.
    """
    from scipy.optimize import brentq  # late: it makes commands slow to start

    seen: dict[float, float] = {}

    def distance(log_s: float) -> float:
        if log_s not in seen:
            seen[log_s] = queue_at(exp(log_s))
        apart = log((seen[log_s] + 0.01) / (target + 0.01))
        return 0.0 if abs(apart) <= tolerance else apart

    start = log(guess_s)
    step = 0.15 if distance(start) > 0 else -0.15
    near, far = start, start
    while distance(near) * distance(far) > 0:
        near, far = far, far + step
        step *= 1.5
        if abs(far - start) > log(WIDEST):
            raise ReshapeError(
                f"no rate of arrival gives a mean queue of {target:g}: between"
                f" {exp(min(start, far)):.3g} and {exp(max(start, far)):.3g} s the queue is"
                f" {min(seen.values()):.3g} to {max(seen.values()):.3g}; take more jobs"
            )
    best = near if distance(near) == 0.0 else far
    if distance(best) != 0.0:
        best = float(brentq(distance, near, far, xtol=1e-4, maxiter=30, disp=False))
        distance(best)
    return exp(min(seen, key=lambda log_s: abs(log((seen[log_s] + 0.01) / (target + 0.01)))))
