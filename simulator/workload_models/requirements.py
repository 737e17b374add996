"""Demands for K resources from one size, as KRES 3.1 draws them.

Leinberger, Karypis and Kumar, "Job scheduling in the presence of multiple resource requirements":
"a set of K random numbers was drawn from a uniform random variable and then scaled with the job
size"; "a similar method was used for the exponential distribution". The paper does not give their
means. Both are 1/2 here, so that both laws have the same mean demand: uniform on (0, 1], or
exponential of mean 1/2, cut at the capacity of the machine. The machine has as many units of each
resource as processors; a job requests at least one of each.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from simulator.workload_models.drawn import Floats, Ints

Law: TypeAlias = Literal["uniform", "exponential"]


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
