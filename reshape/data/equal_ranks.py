"""What has to be the same on all ranks: registrations, loops, work items, values with copies.

A difference would be lost at the first resize, or let the ranks wait for one another, without an
error. Registrations and items are compared in each run, before the first iteration. `app.state` and
the copies of arrays are compared under `reshape try` only, before each resize.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np
from mpi4py import MPI

from redistribution import Replicated, checksum
from reshape.data.arrays import Array
from reshape.data.job_context import JobContext
from reshape.data.ragged import Items
from reshape.errors import ReshapeError
from reshape.ranks.agree import all_values

_MOST_SHOWN = 80


def check_ranks(job: JobContext, total: int | None) -> None:
    """Collective over job.comm. Name the first difference in registrations or loops of ranks.

    Raises
    ------
    ReshapeError : on every rank, if there is one.
    """
    program = job.program._replace(loop=0, total=total)
    lists = [share for share in job.ragged.values() if isinstance(share, Items)]
    digest = crc32(repr(program).encode())
    for item in (item for share in lists for item in share.given):
        digest = crc32(item, digest)
    digests = all_values(job.comm, digest)
    different = [rank for rank, each in enumerate(digests) if each != digests[0]]
    for rank in different:
        ours, theirs = (job.comm.bcast(program, root) for root in (0, rank))
        if why := ours.difference(theirs, ("rank 0", f"rank {rank}")):
            raise ReshapeError(why)
    for share in lists:
        if different:
            _compare_items(job.comm, share)
        share.given = []


def _compare_items(comm: MPI.Intracomm, share: Items) -> None:
    """Collective over comm. Compare the items that each rank has given with those of rank 0.

    Raises
    ------
    ReshapeError : on every rank, if some differ.
    """
    ours, theirs, rank, why = comm.bcast(share.given, 0), share.given, comm.rank, ""
    pairs = enumerate(zip(ours, theirs, strict=False))
    different = (k for k, (a, b) in pairs if a != b and not _are_equal(a, b))
    if len(ours) != len(theirs):
        why = f"{len(ours)} on rank 0, {len(theirs)} on rank {rank}"
    elif (k := next(different, None)) is not None:
        why = f"number {k} is {_short(ours[k])} on rank 0, {_short(theirs[k])} on rank {rank}"
    why = next(filter(None, all_values(comm, why)), "")
    if why:
        raise ReshapeError(
            f"items {share.name!r} differ between ranks: {why}; give all items on every rank, of "
            "which each takes its share, in the same order; a set has another order in each process"
        )


def check_copies(comm: MPI.Intracomm, arrays: Mapping[str, Array]) -> None:
    """Collective over comm. Check that all copies of the same elements are equal.

    Raises
    ------
    ReshapeError : on every rank, with the array and two ranks.
    """
    present = {name: array for name, array in arrays.items() if array.segment is not None}
    copied = {name: array for name, array in present.items() if array.layout.copies > 1}
    own = [checksum(Replicated(x.local.shape, 1), 0, x.local) for x in copied.values()]
    every = all_values(comm, own)
    for k, (name, array) in enumerate(copied.items()):
        for first, *others in zip(*array.layout.holders, strict=True):
            for rank in others:
                if every[rank][k] != every[first][k]:
                    raise ReshapeError(
                        f"array {name!r} differs between ranks {first} and {rank}, which have "
                        "copies of the same elements; after a resize both may have either: set "
                        "them equally, or register what belongs to each rank as items or particles"
                    )


def check_state(comm: MPI.Intracomm, state: Mapping[str, Any]) -> None:
    """Collective over comm. Check that all ranks have equal values in `app.state`.

    Values that cannot be pickled are left to the resize, which names them.

    Raises
    ------
    ReshapeError : on every rank, with the key and two of the values.
    """
    packed: dict[str, bytes] | None
    try:
        packed = {key: pickle.dumps(value) for key, value in state.items()}
    except Exception:  # pickling runs code of the user's classes
        packed = None
    gathered = comm.gather(packed, root=0)
    states = [each for each in gathered or () if each is not None]
    why = _difference(states) if len(states) == comm.size else ""
    why = comm.bcast(why, root=0)
    if why:
        raise ReshapeError(why)


def _difference(states: list[dict[str, bytes]]) -> str:
    """Describe the first difference between rank 0 and another rank; empty if there is none."""
    first, unset = states[0], "not set"
    for rank, other in enumerate(states[1:], start=1):
        for key in [*first, *(key for key in other if key not in first)]:
            if first.get(key) == other.get(key):
                continue
            texts = [_short(each[key]) if key in each else unset for each in (first, other)]
            if unset not in texts and _are_equal(first[key], other[key]):
                continue
            return (
                f"app.state[{key!r}] differs between ranks: {texts[0]} on rank 0, {texts[1]} on "
                f"rank {rank}; after a resize all ranks may have that of rank 0: set it equally on "
                "all ranks, or register what belongs to a part of the data"
            )
    return ""


# ---------------------------------------------------------------- pickled values


def _are_equal(a: bytes, b: bytes) -> bool:
    """Whether two pickled values are equal; those that cannot be compared are.

    Equal values may have different pickles, as sets whose elements are in different orders.
    """
    try:
        return _equal(pickle.loads(a), pickle.loads(b))
    except Exception:  # code of the user's classes, or a value that contains itself
        return True


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, np.ndarray | np.generic) or isinstance(b, np.ndarray | np.generic):
        x, y = np.asarray(a), np.asarray(b)
        is_number = x.dtype.kind in "fc" and y.dtype.kind in "fc"
        return bool(np.array_equal(x, y, equal_nan=is_number))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    has_own_comparison = type(a).__eq__ is not object.__eq__  # type: ignore[comparison-overlap]
    if type(a) is not type(b) or has_own_comparison:
        return bool(a == b)
    return _equal(a.__reduce_ex__(4), b.__reduce_ex__(4))


def _short(packed: bytes) -> str:
    """Show a pickled value in a few words."""
    try:
        text = repr(pickle.loads(packed))
    except Exception as error:  # code of the user's classes
        text = f"<{type(error).__name__}>"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
