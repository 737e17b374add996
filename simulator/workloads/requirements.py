"""Demands for K resources from one size, as KRES 3.1 draws them.

Leinberger, Karypis and Kumar, "Job scheduling in the presence of multiple resource requirements":
"a set of K random numbers was drawn from a uniform random variable and then scaled with the job
size"; "a similar method was used for the exponential distribution". The paper does not give their
means. Both are 1/2 here, so that both laws have the same mean demand: uniform on (0, 1], or
exponential of mean 1/2, cut at the capacity of the machine. The machine has as many units of each
resource as processors; a job requests at least one of each.

What is scaled is also a choice (`Scale`): for every resource the size of the job itself, or the
size of another job of the model, so that the requirements of a job are independent and have the
same laws, or the capacity of the machine, so that they do not depend on the model.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from simulator.workloads.drawn import Floats, Ints

Law: TypeAlias = Literal["uniform", "exponential"]
Scale: TypeAlias = Literal["size", "other sizes", "machine"]


def factors(jobs: int, k: int, law: Law, rng: np.random.Generator) -> Floats:
    """Random factors of the sizes, (jobs, k) float64."""
    if law == "uniform":
        return 1.0 - rng.random((jobs, k))  # above 0
    return rng.exponential(0.5, (jobs, k))


def scales(sizes: Ints, k: int, capacity: int, scale: Scale, rng: np.random.Generator) -> Ints:
    """What the random factors are multiplied with, (jobs, k) int64.

    Parameters
    ----------
    rng : draws the other jobs; it is not used for the other scales.
    """
    if scale == "machine":
        return np.full((len(sizes), k), capacity, dtype=np.int64)
    if scale == "size":
        return np.repeat(sizes[:, np.newaxis], k, axis=1)
    return np.column_stack([sizes, *(rng.permutation(sizes) for _ in range(k - 1))])


def requirements(sizes: Ints, capacity: int, drawn: Floats) -> Ints:
    """Demands of jobs for K resources.

    Parameters
    ----------
    sizes : (n,) or (n, K) int64, of the model, see `scales`.
    capacity : units of each resource.
    drawn : (n, K) float64, see `factors`.

    Returns
    -------
    (n, K) int64, from 1 to the capacity; the first is that of processors.
    """
    amounts = np.ceil((sizes if sizes.ndim == 2 else sizes[:, np.newaxis]) * drawn)
    return np.clip(amounts, 1, capacity).astype(np.int64)
