"""The in-node move: a target process reads its share out of the source arrays themselves.

Where processes map one another's memory, a move needs no message: every target process copies
what it will own, once, from where it lies. Needs no MPI.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from redistribution.joint import clipped
from redistribution.packing import Bytes, Region, copy, of_array
from redistribution.plan import Plan, Transfer

# Slices of this size are put together in cache before they go to memory. Measured: 256 kB and
# 2 MB are slower.
STAGE_BYTES = 1 << 20

# Shorter contiguous stretches than this are worth the detour, up to 1.7 times as fast.
LONG_BYTES = 1 << 13

Sources: TypeAlias = Mapping[int, NDArray[Any]] | Callable[[int], NDArray[Any]]

# Buffers between gathers, whose pages are touched once; list.pop and list.append are atomic.
_stages: list[Bytes] = []


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
    Extra memory: `STAGE_BYTES` (1 MB), kept for the next gather.

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
    pieces = []
    for transfer in plan.incoming(plan.target_ranks[process]):
        source = plan.source_process[transfer.peer]
        a = find(source)
        _check_source(plan, source, a, b)
        pieces.append((transfer, of_array(a, "source")))
    if b.nbytes == 0:
        return
    axis = _stageable_axis(b)
    if axis is not None and any(_is_scattered(t, region, b) for t, region in pieces):
        stage = _take_stage()
        _gather_staged(pieces, b, axis, stage)
        _stages.append(stage)
    else:
        for transfer, region in pieces:
            copy(transfer, b.dtype.itemsize, region, of_array(b, "target"))


_Piece: TypeAlias = tuple[Transfer, Region]


def _stageable_axis(b: NDArray[Any]) -> int | None:
    """Outermost axis of ``b`` in memory, if slices across it are contiguous and worth staging."""
    if b.nbytes < 2 * STAGE_BYTES:
        return None
    if b.flags.c_contiguous:
        axis = 0
    elif b.flags.f_contiguous:
        axis = b.ndim - 1
    else:
        return None
    return axis if b.nbytes // b.shape[axis] <= STAGE_BYTES // 4 else None


def _is_scattered(transfer: Transfer, source: Region, b: NDArray[Any]) -> bool:
    """Whether a transfer writes short stretches of memory."""
    stretch = b.dtype.itemsize
    for axis in sorted(range(b.ndim), key=lambda axis: b.strides[axis]):
        runs = transfer.runs[axis]
        if source.strides[axis] != stretch or len(runs) > 1 or runs[0].repeats > 1:
            # Contiguous stretches end with the shortest run along this axis.
            if source.strides[axis] == stretch:
                stretch *= min(run.length for run in runs)
            return stretch < LONG_BYTES
        stretch *= runs[0].length
        if runs[0].length != b.shape[axis]:
            break
    return stretch < LONG_BYTES


def _gather_staged(pieces: Sequence[_Piece], b: NDArray[Any], axis: int, stage: Bytes) -> None:
    """Fill ``b`` slice by slice along ``axis``, each by way of a buffer that stays in cache.

    Scattered writes to memory read every line before they write it; one long copy does not.
    """
    extent = b.shape[axis]
    if b.nbytes > STAGE_BYTES:
        for low, high in ((0, extent // 2), (extent // 2, extent)):
            within = (slice(None),) * axis + (slice(low, high),)
            cut = [(_cut(t, axis, low, high), source) for t, source in pieces]
            _gather_staged([(t, source) for t, source in cut if t], b[within], axis, stage)
        return
    staged = Region(stage, 0, b.strides, "target")
    for transfer, source in pieces:
        copy(transfer, b.dtype.itemsize, source, staged)
    of_array(b, "target").memory[...] = stage[: b.nbytes]


def _cut(transfer: Transfer, axis: int, low: int, high: int) -> Transfer | None:
    """What of ``transfer`` goes to [low, high) of the target along ``axis``, if anything does."""
    runs = clipped(transfer.runs[axis], low, high)
    if not runs:
        return None
    return Transfer.of(transfer.peer, (*transfer.runs[:axis], runs, *transfer.runs[axis + 1 :]))


def _take_stage() -> Bytes:
    try:
        return _stages.pop()
    except IndexError:
        return np.empty(STAGE_BYTES, np.uint8)


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
