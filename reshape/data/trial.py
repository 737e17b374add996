"""What the processes of a job check under `reshape try`, and no process does otherwise.

- Memory of before a resize becomes inaccessible. A program that uses it ends by a signal, and its
  file of stacks names the line. That something still refers to it proves nothing: `u = x.local` is
  bound until the next iteration of a correct loop.
- `app.state` has to be equal on all ranks, since a resize spreads that of rank 0. Values are
  compared, because equal sets may be pickled in different orders.
- On SIGUSR2 a process writes its stack.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reshape.data import mapped_files
from reshape.data.segments import Segment
from reshape.errors import ReshapeError

if TYPE_CHECKING:
    from mpi4py import MPI

STACK_SIGNAL = signal.SIGUSR2
#: Begin of a line for the report in the file of a process, which otherwise has its stacks.
NOTE = "note: "
_MOST_SHOWN = 80


class Trial:
    """The checks of this process.

    Parameters
    ----------
    folder : for its file, whose name is the number of the process.
    """

    def __init__(self, folder: Path) -> None:
        self._file = (folder / str(os.getpid())).open("w", buffering=1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.enable(self._file)
        signal.signal(STACK_SIGNAL, signal.SIG_IGN)  # what an interpreter that ends returns to
        faulthandler.register(STACK_SIGNAL, self._file)

    def forbid(self, segment: Segment) -> None:
        """Make a segment that a resize has replaced inaccessible, and remove its file."""
        segment.discard()
        if segment.mapping is not None:
            mapped_files.forbid(segment.mapping)

    def note(self, text: str) -> None:
        """Write a line for the report."""
        self._file.write(f"{NOTE}{text}\n")

    @staticmethod
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


def _are_equal(a: bytes, b: bytes) -> bool:
    """Whether two pickled values are equal; those that cannot be compared are."""
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
    try:
        text = repr(pickle.loads(packed))
    except Exception as error:  # code of the user's classes
        text = f"<{type(error).__name__}>"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
