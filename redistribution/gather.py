"""The in-node move: a target process reads its share out of the source arrays themselves.

Where processes map one another's memory, a move needs no message: every target process copies
what it will own, once, from where it lies. Needs no MPI.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from redistribution.packing import copy, of_array
from redistribution.plan import Plan

Sources: TypeAlias = Mapping[int, NDArray[Any]] | Callable[[int], NDArray[Any]]


def gather(plan: Plan, process: int, sources: Sources, b: NDArray[Any]) -> None:
    """Fill ``b`` with the part of target ``process``, straight from the source arrays.

    The caller sees to it that the source arrays are complete before (a barrier of all source
    processes) and stay as they are until all have read them (a barrier of all target processes).

    Parameters
    ----------
    plan : its ranks only tell which copy of a replicated source is near.
    process : of ``plan.target``.
    sources : local array of each source process, shape ``plan.source.local_shape(p)``, any
        strides; a mapping, or a function that is called once for each source process of which
        something is needed. Not changed.
    b : shape ``plan.target.local_shape(process)``, dtype of the sources, any strides. Must not
        overlap any of them.

    Raises
    ------
    ValueError : no such process; an array has a wrong shape or another dtype than ``b``, holds
        Python objects, or overlaps ``b``; or ``b`` is read-only.

    Notes
    -----
    Extra memory: none that grows with the arrays. Each element is copied once, from where it lies:
    putting slices together in cache first was slower with all cores at work.

    Examples
    --------
    >>> import numpy as np
    >>> plan = Plan(Cuts.even((6,), 2), Cuts.even((6,), 3))
    >>> b = np.zeros(2, int)
    >>> plan.gather(1, [np.array([0, 1, 2]), np.array([3, 4, 5])].__getitem__, b)
    >>> b
    array([2, 3])
    """
    expected = plan.target.local_shape(process)
    if b.shape != expected:
        raise ValueError(
            f"target process {process}: expected an array of shape {expected}, got {b.shape}"
        )
    if b.dtype.hasobject:
        raise ValueError(f"target process {process}: dtype {b.dtype} holds objects")
    if not b.flags.writeable:
        raise ValueError(f"target process {process}: the target array is read-only")
    find = sources if callable(sources) else sources.__getitem__
    target = of_array(b, "target")
    for transfer in plan.incoming(plan.target_ranks[process]):
        source = plan.source_process[transfer.peer]
        a = find(source)
        _check_source(plan, source, a, b)
        if b.dtype.itemsize:
            copy(transfer, b.dtype.itemsize, of_array(a, "source"), target)


def _check_source(plan: Plan, process: int, a: NDArray[Any], b: NDArray[Any]) -> None:
    """Raise ValueError if ``a`` cannot be the local array of a source process."""
    expected = plan.source.local_shape(process)
    if a.shape != expected:
        raise ValueError(
            f"source process {process}: expected an array of shape {expected}, got {a.shape}"
        )
    if a.dtype != b.dtype:
        raise ValueError(
            f"source process {process} has dtype {a.dtype}, the target array has dtype {b.dtype}"
        )
    if np.may_share_memory(a, b):
        raise ValueError(f"source process {process}: its array overlaps the target array")
