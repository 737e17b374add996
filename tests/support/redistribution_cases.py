"""Random moves, drawn by Hypothesis or by a seeded generator under mpiexec."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from redistribution import BlockCyclic, Blocks, Cuts, Dealt, Layout, Plan, Replicated

Integer = Callable[[int, int], int]
"""Draws an integer between two bounds, both included."""

DTYPES = [
    np.dtype(np.float64),
    np.dtype(np.int32),
    np.dtype(np.complex128),
    np.dtype(np.uint8),
    # 24 bytes with padding, and 13 bytes without.
    np.dtype([("key", np.int32), ("value", np.float64), ("flag", np.uint8)], align=True),
    np.dtype([("key", np.int32), ("value", np.float64), ("flag", np.uint8)]),
]


class Case(NamedTuple):
    """One move, with dtype, message order and the memory layouts of both local arrays."""

    plan: Plan
    dtype: np.dtype
    order: str
    a_kind: str
    b_kind: str


def draw_case(integer: Integer, ranks: int, largest: int = 24) -> Case:
    """A move between any two layouts on any subsets of ``ranks`` ranks."""
    ndim = integer(1, 4)
    shape = tuple(integer(0 if largest < 30 else 1, largest // ndim) for _ in range(ndim))
    source = draw_layout(integer, shape, ranks)
    target = draw_layout(integer, shape, ranks)
    return Case(
        plan=Plan(
            source,
            target,
            draw_ranks(integer, source.nprocs, ranks),
            draw_ranks(integer, target.nprocs, ranks),
        ),
        dtype=DTYPES[integer(0, len(DTYPES) - 1)],
        order="CF"[integer(0, 1)],
        a_kind="CFsr"[integer(0, 3)],
        b_kind="CFsr"[integer(0, 3)],
    )


def draw_layout(integer: Integer, shape: tuple[int, ...], ranks: int) -> Layout:
    """Any layout of ``shape`` on at most ``ranks`` processes."""
    kind = integer(0, 13)
    nprocs = integer(1, ranks)
    if kind == 0:
        return Replicated(shape, nprocs)
    if kind == 13:
        offsets = draw_offsets(integer, shape[0], integer(1, 3 * nprocs))
        owners = tuple(integer(0, nprocs - 1) for _ in offsets[1:])
        return Dealt(shape, offsets, owners, nprocs)
    if kind <= 3:
        axis = integer(0, len(shape) - 1)
        if kind == 1:
            return Cuts.even(shape, nprocs, axis)
        return Cuts(shape, draw_offsets(integer, shape[axis], nprocs), axis)
    cut = draw_cut(integer, len(shape)) if integer(0, 1) else tuple(range(len(shape)))
    grid, left = [], ranks
    for _ in cut:
        grid.append(integer(1, left))
        left //= grid[-1]
    turn = integer(0, len(cut) - 1)
    turned = tuple(grid[turn:] + grid[:turn])
    if kind == 9:
        return Blocks(shape, turned, cut)
    if kind >= 10:
        parts = {axis: count for axis, count in zip(cut, turned, strict=True) if axis is not None}
        offsets = [
            draw_offsets(integer, extent, parts.get(axis, 1)) if integer(0, 1) else None
            for axis, extent in enumerate(shape)
        ]
        return Blocks(shape, turned, cut, tuple(offsets))
    blocks = tuple(integer(1, 1 + extent // integer(1, 3)) for extent in shape)
    return BlockCyclic(shape, blocks, turned, cut)


def draw_cut(integer: Integer, ndim: int) -> tuple[int | None, ...]:
    """Some axes in any order, and dimensions along which there are copies."""
    choices: list[int | None] = [*range(ndim), None, None]
    return tuple(choices.pop(integer(0, len(choices) - 1)) for _ in range(integer(1, ndim + 1)))


def draw_offsets(integer: Integer, extent: int, parts: int) -> tuple[int, ...]:
    """Cuts of an axis, some of its parts empty."""
    return (0, *sorted(integer(0, extent) for _ in range(parts - 1)), extent)


def draw_ranks(integer: Integer, nprocs: int, ranks: int) -> tuple[int, ...]:
    """Distinct ranks in any order, one for each process."""
    free = list(range(ranks))
    return tuple(free.pop(integer(0, len(free) - 1)) for _ in range(nprocs))


def on_hosts(plan: Plan, hosts: tuple[int, ...]) -> Plan:
    """The same plan for ranks on these hosts."""
    ranks = plan.source_ranks, plan.target_ranks
    return Plan(plan.source, plan.target, *ranks, hosts=hosts)


def index_valued(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Global array of global linear indices plus 1, as far as the dtype can hold them."""
    linear = np.arange(np.prod(shape, dtype=int)).reshape(shape) + 1
    if dtype == np.uint8:
        return (linear * 151 % 251).astype(dtype)
    array = np.zeros(shape, dtype)
    if dtype.names is None:
        array[...] = linear
    else:
        for name in dtype.names:
            array[name] = linear % 251 if dtype[name] == np.uint8 else linear
    return array


def local_part(layout: Layout, process: int, array: np.ndarray, kind: str) -> np.ndarray:
    """Part of a process in C or Fortran order, strided ("s"), or reversed in memory ("r")."""
    part = array[np.ix_(*layout.global_indices(process))]
    if kind == "s":
        room = np.zeros([2 * extent + 1 for extent in part.shape], part.dtype)
        view = room[tuple(slice(1, None, 2) for _ in part.shape)]
    elif kind == "r":
        view = np.zeros_like(part, order="C")[(slice(None, None, -1),) * part.ndim]
    else:
        view = np.zeros_like(part, order=kind)
    view[...] = part
    return view


def empty_part(layout: Layout, process: int, dtype: np.dtype, kind: str) -> np.ndarray:
    """Array for the part of a process, filled with a value that the global array does not have."""
    nothing = np.full(layout.shape, np.array(255, np.uint8) if dtype == np.uint8 else 0, dtype)
    return local_part(layout, process, nothing, kind)
