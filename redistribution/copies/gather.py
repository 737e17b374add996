"""The in-node move: a target process reads its share out of the source arrays themselves.

Where processes map one another's memory, a move needs no message: every target process copies
what it will own, once, from where it lies. Needs no MPI.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from redistribution.copies.copying import Copy, Held, actions, of_array
from redistribution.plan import Plan

Sources: TypeAlias = Mapping[int, NDArray[Any]] | Callable[[int], NDArray[Any]]


# Of arrays up to this size in all, a plan keeps the last ones and how they are copied.
SMALL_BYTES = 1 << 23


class Gathering(NamedTuple):
    """The copies of a gather, and the arrays they were made for."""

    target: Held
    sources: Held
    copies: list[Callable[[], None]]


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
    Extra memory: none that grows with the arrays; of arrays up to 8 MB in all, the plan keeps the
    last ones and what it has found out about them. Each element is copied once, from where it lies:
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
    last = plan.last_gathers.get(process)
    if last is not None and not last.target.are(b):
        last = None
    if last is None:
        _check_target(plan, process, b)
    find = sources if callable(sources) else sources.__getitem__
    transfers = plan.incoming(plan.target_ranks[process])
    found = [find(plan.source_process[transfer.peer]) for transfer in transfers]
    if last is not None and last.sources.are(*found):
        for copy in last.copies:
            copy()
        return
    held = Gathering(Held(b), Held(*found), [])
    is_small = held.target.nbytes + held.sources.nbytes <= SMALL_BYTES
    target = of_array(b, "target")
    copies = []
    for transfer, a in zip(transfers, found, strict=True):
        _check_source(plan, plan.source_process[transfer.peer], a, b)
        copies.append(Copy(transfer, of_array(a, "source"), target))
    for copy in actions(b.dtype.itemsize, *copies):
        copy()
        if is_small:
            held.copies.append(copy)
    if is_small:
        plan.last_gathers[process] = held
    else:
        plan.last_gathers.pop(process, None)


def _check_target(plan: Plan, process: int, b: NDArray[Any]) -> None:
    """Raise ValueError if ``b`` cannot be the local array of a target process."""
    expected = plan.target.local_shape(process)
    if b.shape != expected:
        raise ValueError(
            f"target process {process}: expected an array of shape {expected}, got {b.shape}"
        )
    if b.dtype.hasobject:
        raise ValueError(f"target process {process}: dtype {b.dtype} holds objects")
    if not b.flags.writeable:
        raise ValueError(f"target process {process}: the target array is read-only")


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
