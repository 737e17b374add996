"""Plans: routes between two layouts, and the ways to run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import NDArray

from redistribution.copies.copying import Copy, copy
from redistribution.copies.regions import array_region
from redistribution.layout import MemoryOrder
from redistribution.messages.arguments import (
    DEFAULT_EXTRA_BYTES,
    Arguments,
    check_source,
    check_target,
    is_same_memory,
)
from redistribution.routes import Routes

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

    from redistribution.messages.prepared import PreparedMove

#: Local arrays of source processes, by process.
Sources: TypeAlias = Mapping[int, NDArray[Any]] | Callable[[int], NDArray[Any]]


class Plan(Routes):
    """Move one global array from ``source`` to ``target``; make once, run often.

    Making a plan needs no MPI.

    Parameters
    ----------
    source, target : layouts of the same global shape.
    source_ranks, target_ranks : source process p is on rank ``source_ranks[p]`` of the communicator
        that will run the plan, target process q on ``target_ranks[q]``. Default: process p on rank
        p. The two may overlap partly, fully or not at all.
    hosts : number of the host of each rank of the communicator, if ranks of one host map each
        other's source arrays (parameter ``sources`` of `run`). None: all other ranks get
        messages.

    Raises
    ------
    ValueError : the shapes differ, a rank is negative or occurs twice, the number of ranks is not
        the number of processes, or a rank has no host.

    Examples
    --------
    >>> plan = Plan(Cuts.even((10, 4), 2), Cuts.even((10, 4), 3))
    >>> plan.bytes_moved(itemsize=8)
    128
    """

    def run(
        self,
        comm: Intracomm,
        a: NDArray[Any] | None,
        b: NDArray[Any] | None,
        *,
        order: MemoryOrder = "C",
        max_extra_bytes: int = DEFAULT_EXTRA_BYTES,
        sources: Mapping[int, NDArray[Any]] | None = None,
    ) -> None:
        """Collective over comm. Fill ``b`` with this rank's part of the target layout.

        A rank sends one message to another, or several if it is large, in an order in which all
        ranks send to different ranks. Elements that stay on a rank are copied directly. Parts that
        are contiguous in memory are sent from and received into the arrays themselves.

        If the plan has ``hosts``, messages go only from one host to another. A rank copies what it
        receives from its own host out of ``sources`` while messages are under way. The caller
        ensures, as for `gather`, that these arrays are complete before the call and do not change
        until all ranks of the host have returned.

        Parameters
        ----------
        comm : communicator of at least ``size`` ranks on which no other message with tag
            `redistribution.messages.arguments.TAG` is under way. The plan is the same on each rank.
        a : this rank's local source array, shape ``source.local_shape(process)``, or None if the
            rank has no source process. Any strides; not changed.
        b : this rank's local target array, shape ``target.local_shape(process)``, or None if the
            rank has no target process. Same dtype as ``a``, any strides. It must not overlap ``a``,
            but may be ``a`` itself on a rank that the plan `keeps`: there nothing is copied.
        order : order of the elements in the messages, the same on every rank. Any order is correct
            with any arrays; the memory order of the arrays is the fast one.
        max_extra_bytes : limit of the memory for messages on a rank, the same on every rank. With
            less memory there are more and shorter messages.
        sources : local arrays of the source processes on other ranks of this host that have
            elements of ``b``, by process. Not changed. Not used without ``hosts``.

        Raises
        ------
        ValueError : on every rank, before anything is moved: an array is missing, is not expected,
            has the wrong shape or is read-only; its dtype holds Python objects; the ranks disagree
            on plan, dtype, order or max_extra_bytes; max_extra_bytes < 1; or comm is too small.

        Notes
        -----
        Extra memory: at most ``max_extra_bytes`` (by default 24 MB) of buffers, and at most 1.25
        times the larger of ``a`` and ``b``, or 16 MB if that is more. The buffers are kept for the
        next run. From its second use on, a communicator of one host has two mailboxes a rank, at
        most 16 MB, of which a move uses ``max_extra_bytes``. For small arrays most of the time is
        spent on finding what to copy; `prepare` does that once for arrays that move again.
        """
        move = self.prepare(
            comm, a, b, order=order, max_extra_bytes=max_extra_bytes, sources=sources
        )
        move.run()

    def prepare(
        self,
        comm: Intracomm,
        a: NDArray[Any] | None,
        b: NDArray[Any] | None,
        *,
        order: MemoryOrder = "C",
        max_extra_bytes: int = DEFAULT_EXTRA_BYTES,
        sources: Mapping[int, NDArray[Any]] | None = None,
    ) -> PreparedMove:
        """Collective over comm. Bind the plan to arrays that it will move again and again.

        Parameters and errors are those of `run`. The method ``run()`` of the result moves the
        present contents of ``a`` into ``b``.
        """
        # Importing mpi4py.MPI starts MPI, which making a plan must not.
        from redistribution.messages.prepared import PreparedMove

        return PreparedMove(Arguments(self, comm, a, b, order, max_extra_bytes, sources))

    def gather(self, process: int, sources: Sources, b: NDArray[Any]) -> None:
        """Fill ``b`` with the part of target ``process`` directly from the source arrays.

        The caller ensures that the source arrays are complete before the call (a barrier of all
        source processes) and do not change until all target processes have copied their parts (a
        barrier of all target processes). Ranks matter only for the choice among the copies of a
        replicated source.

        Parameters
        ----------
        process : number of a process of ``target``.
        sources : local array of each source process, shape ``source.local_shape(p)``, any strides:
            a mapping, or a function that is called once for each source process that has elements
            of the part. Not changed.
        b : shape ``target.local_shape(process)``, dtype of the sources, any strides. It must not
            overlap any of them, but may be one of them if the plan `keeps` the rank of the process:
            then nothing is copied.

        Raises
        ------
        ValueError : there is no such process; an array has a wrong shape or another dtype than
            ``b``, holds Python objects, or overlaps ``b``; or ``b`` is read-only.

        Notes
        -----
        Extra memory: none that grows with the arrays.

        Examples
        --------
        >>> import numpy as np
        >>> plan = Plan(Cuts.even((6,), 2), Cuts.even((6,), 3))
        >>> b = np.zeros(2, int)
        >>> plan.gather(1, [np.array([0, 1, 2]), np.array([3, 4, 5])].__getitem__, b)
        >>> b
        array([2, 3])
        """
        check_target(self, process, b)
        find = sources if callable(sources) else sources.__getitem__
        transfers = self.incoming(self.target_ranks[process])
        arrays = [find(self.source_process[transfer.peer]) for transfer in transfers]
        if self.keeps(self.target_ranks[process]) and all(is_same_memory(a, b) for a in arrays):
            return
        copies, target = [], array_region(b, "target")
        for transfer, a in zip(transfers, arrays, strict=True):
            check_source(self, self.source_process[transfer.peer], a, b)
            copies.append(Copy(transfer, array_region(a, "source"), target))
        copy(b.dtype.itemsize, *copies)
