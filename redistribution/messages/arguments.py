"""The arguments of a move, and what can be wrong with them on one rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redistribution.layout import MemoryOrder
from redistribution.routes import Routes
from redistribution.runs import Transfer

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Default limit of the memory for messages on a rank, in bytes.
DEFAULT_EXTRA_BYTES = 24 << 20

# All messages of a plan carry this tag. Successive plans on a communicator cannot be confused: MPI
# keeps the order of messages between two ranks.
TAG = 27183


class Arguments(NamedTuple):
    """Arguments of one rank for a move; see `redistribution.Plan.run`."""

    routes: Routes
    comm: Intracomm
    a: NDArray[Any] | None
    b: NDArray[Any] | None
    order: MemoryOrder = "C"
    max_extra_bytes: int = DEFAULT_EXTRA_BYTES
    sources: Mapping[int, NDArray[Any]] | None = None

    @property
    def sends(self) -> list[Transfer]:
        """What this rank sends in messages, in order."""
        routes, rank = self.routes, self.comm.rank
        return [t for t in routes.outgoing(rank) if not routes.is_near(rank, t.peer)]

    @property
    def receives(self) -> list[Transfer]:
        """What this rank receives in messages, in order."""
        routes, rank = self.routes, self.comm.rank
        return [t for t in routes.incoming(rank) if not routes.is_near(rank, t.peer)]

    @property
    def copies(self) -> list[tuple[Transfer, NDArray[Any] | None]]:
        """What this rank copies without messages, and the arrays to copy it from."""
        routes, rank = self.routes, self.comm.rank
        if self.is_kept:
            return []
        return [
            (t, self.a if t.peer == rank else (self.sources or {})[routes.source_process[t.peer]])
            for t in routes.incoming(rank)
            if routes.is_near(rank, t.peer)
        ]

    @property
    def is_kept(self) -> bool:
        """Whether one array is the source part and the target part of this rank."""
        if self.a is None or self.b is None:
            return False
        return is_same_memory(self.a, self.b) and self.routes.keeps(self.comm.rank)

    @property
    def itemsize(self) -> int:
        """Bytes of an element; 0 on a rank without arrays."""
        array = self.a if self.a is not None else self.b
        return 0 if array is None else array.dtype.itemsize

    def check(self) -> None:
        """Raise ValueError for the first error in the arguments of this rank."""
        routes, comm, a, b, order, max_extra_bytes, sources = self
        rank = comm.rank
        if comm.size < routes.size:
            raise ValueError(
                f"the plan needs {routes.size} ranks, the communicator has {comm.size}"
            )
        if order not in ("C", "F"):
            raise ValueError(f"order must be 'C' or 'F', got {order!r}")
        if max_extra_bytes < 1:
            raise ValueError(f"max_extra_bytes must be >= 1, got {max_extra_bytes}")
        for name, array, processes in (
            ("source", a, routes.source_process),
            ("target", b, routes.target_process),
        ):
            if rank not in processes and array is not None:
                raise ValueError(
                    f"rank {rank} holds no {name} part, but was given an array of shape "
                    f"{np.shape(array)}; pass None"
                )
            if rank in processes and not isinstance(array, np.ndarray):
                raise ValueError(
                    f"rank {rank} holds {name} part {processes[rank]}: it must be a NumPy array, "
                    f"got {array!r:.80}"
                )
        if b is not None:
            check_target(routes, routes.target_process[rank], b)
        if a is not None:
            check_source(routes, routes.source_process[rank], a, None if self.is_kept else b)
        for transfer in routes.incoming(rank) if routes.hosts is not None and b is not None else ():
            if transfer.peer != rank and routes.is_near(rank, transfer.peer):
                process = routes.source_process[transfer.peer]
                if sources is None or process not in sources:
                    raise ValueError(f"sources lack the array of source process {process}")
                check_source(routes, process, sources[process], b)


def check_target(routes: Routes, process: int, b: NDArray[Any]) -> None:
    """Raise ValueError if ``b`` cannot be the local array of a target process."""
    routes.target.check_local(process, b, "target process")
    if not b.flags.writeable:
        raise ValueError(f"target process {process}: the target array is read-only")


def is_same_memory(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether each element of ``a`` is the same memory as that of ``b``."""
    same_shape = (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)
    return a is b or (same_shape and a.ctypes.data == b.ctypes.data)


def check_source(routes: Routes, process: int, a: NDArray[Any], b: NDArray[Any] | None) -> None:
    """Raise ValueError if ``a`` cannot be the local array of a source process, beside ``b``."""
    routes.source.check_local(process, a, "source process")
    if b is not None and a.dtype != b.dtype:
        raise ValueError(
            f"source process {process} has dtype {a.dtype}, the target array has dtype {b.dtype}"
        )
    if b is not None and np.may_share_memory(a, b):
        raise ValueError(f"source process {process}: its array overlaps the target array")
