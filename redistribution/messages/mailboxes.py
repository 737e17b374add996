"""Memory that all ranks of a communicator share, if they are on one host. Importing starts MPI.

Each rank has mailboxes there, in which it puts what it sends, and all ranks combine a word of each.
So a small move takes one meeting of all ranks: they pack, meet, and unpack. Messages make a rank
wait for each of its peers, one after the other; where many ranks share a core, each of these waits
lasts until the peer has had the core.

Nothing has to be removed afterwards: the memory is in no file system, and lives as long as
a process maps it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from functools import cache

import numpy as np
from mpi4py import MPI

from redistribution.copies import kernel
from redistribution.copies.buffers import Bytes
from redistribution.messages.arguments import TAG
from redistribution.messages.waiting import Backoff, all_or, wait
from redistribution.tuning import tuning

# The memory begins with `Meeting` in kernel.c: three words, three counts and a turn.
_HEAD_BYTES = mmap.PAGESIZE
_TURNS = 3

# A rank that waits for a meeting yields its core for `_YIELD_NS` nanoseconds, and then sleeps until
# the meeting ends, at most for `_SLEEP_NS`. After that it lets MPI work on messages under way.
_YIELD_NS = 20_000
_SLEEP_NS = 200_000


class Mailboxes:
    """The shared memory of the ranks of a communicator; made by `CommunicatorUse.settle`.

    Parameters
    ----------
    comm : all its ranks map the memory.
    memory : the whole memory; it stays mapped as long as an array refers to it.

    Attributes
    ----------
    box_bytes : bytes of a box.
    mpi_reads_memory : whether MPI copies messages out of the memory of the sender, which some
        containers forbid.
    half : 0 or 1: each rank has two boxes, which moves use in turn. While a rank packs the next
        move into one of them, other ranks may still unpack the last move from the other one.
    """

    def __init__(
        self, comm: MPI.Intracomm, memory: Bytes, box_bytes: int, mpi_reads_memory: bool
    ) -> None:
        assert kernel.compiled is not None
        self.half = 0
        self.box_bytes, self.mpi_reads_memory = box_bytes, mpi_reads_memory
        self._comm = comm
        self._boxes = memory[_HEAD_BYTES:]
        self._words = memory[: 8 * _TURNS].view(np.uint64)
        self._meeting = memory.ctypes.data
        self._meet, self._await_turn = kernel.compiled.meet, kernel.compiled.await_turn
        # The turn of this rank, and the one that is not over for all ranks.
        self._turn = 0
        self._present_turn = memory[12 * _TURNS :][:4].view(np.uint32)

    def box(self, rank: int, half: int) -> Bytes:
        """One of the two boxes of a rank."""
        first = (2 * rank + half) * self.box_bytes
        return self._boxes[first : first + self.box_bytes]

    def meet(self, word: int) -> int:
        """Collective over the communicator. Bitwise or of the words of all ranks.

        What any rank has put into its boxes before is there for all ranks afterwards.

        Parameters
        ----------
        word : in [0, 2**64).
        """
        turn = self._turn
        self._turn = (turn + 1) % _TURNS
        if not self._meet(self._meeting, turn, self._comm.size, word, _YIELD_NS):
            self._wait(turn)
        return int(self._words[turn])

    def _wait(self, turn: int) -> None:
        """Return when a turn has ended. Meanwhile MPI may need calls, as in `waiting.wait`."""
        if self._await_turn(self._meeting, turn, _SLEEP_NS):
            return
        backoff = Backoff()

        def probe(_: list[MPI.Request]) -> bool:
            return self._comm.Iprobe(tag=TAG)  # there is none, so MPI does all its work

        def sleep(seconds: float) -> None:
            self._await_turn(self._meeting, turn, int(1e9 * seconds))

        while self._present_turn[0] == turn:
            backoff.test(probe, [])
            backoff.pause(sleep)
        self._await_turn(self._meeting, turn, 0)  # from here on, what others wrote is visible


class CommunicatorUse:
    """Whether a communicator has mailboxes, found out when it is used for the second time.

    Making them takes as long as some moves by messages, and many communicators move arrays once.

    Attributes
    ----------
    mailboxes : None as long as there are none.
    box_bytes : bytes of a box.
    """

    def __init__(self) -> None:
        self.mailboxes: Mailboxes | None = None
        self.box_bytes = tuning.mailbox_bytes
        self._uses = 0

    @classmethod
    def of(cls, comm: MPI.Intracomm) -> CommunicatorUse:
        """Use of a communicator, which ends when it is freed."""
        use = comm.Get_attr(_key())
        if not isinstance(use, cls):
            use = cls()
            comm.Set_attr(_key(), use)
        return use

    def settle(self, comm: MPI.Intracomm) -> None:
        """Collective over comm. Note a use; at the second one, make mailboxes if possible."""
        self._uses += 1
        if self._uses == 2:
            self.mailboxes = _made(comm, self.box_bytes)


@cache
def _key() -> int:
    """Key of the `CommunicatorUse` among the attributes of a communicator."""
    return MPI.Comm.Create_keyval()


# What ranks tell one another of the memory: it is not mapped, that of others cannot be read.
_IS_MISSING, _IS_UNREADABLE = 1, 2


def _made(comm: MPI.Intracomm, box_bytes: int) -> Mailboxes | None:
    """Collective over comm. Mailboxes; None on all ranks if any of them cannot map the memory."""
    size = _HEAD_BYTES + 2 * comm.size * box_bytes
    # The process, descriptor, number of the memory and address of this array, of rank 0.
    told = np.zeros(4, np.int64)
    descriptor, memory, flags = -1, None, 0
    can_meet = kernel.compiled is not None and hasattr(os, "memfd_create")
    if comm.rank == 0 and can_meet:
        number = int.from_bytes(os.urandom(8)) >> 2
        with contextlib.suppress(OSError):
            descriptor = os.memfd_create(_name(number))
            os.ftruncate(descriptor, size)
            told[:] = os.getpid(), descriptor, number, told.ctypes.data
    wait([comm.Ibcast(told, root=0)])
    try:
        if comm.rank != 0 and can_meet:
            descriptor = _opened(*told[:3].tolist())
        if descriptor >= 0:
            with contextlib.suppress(OSError, ValueError):
                memory = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
        if memory is None:
            flags = _IS_MISSING
        elif not _reads_memory(*told[[0, 3]].tolist()):
            flags = _IS_UNREADABLE
        flags = all_or(comm, flags)  # rank 0 keeps the descriptor and the array until here
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    if memory is None or flags & _IS_MISSING:
        return None
    return Mailboxes(comm, memory, box_bytes, mpi_reads_memory=not flags & _IS_UNREADABLE)


def _reads_memory(process: int, address: int) -> bool:
    """Whether MPI reads the memory of another process of this host, in which the word is readable.

    It does unless its configuration or the system forbids it.
    """
    word = np.empty(1, np.int64)
    assert kernel.compiled is not None
    return os.environ.get("MPIR_CVAR_CH4_CMA_ENABLE", "1") != "0" and bool(
        kernel.compiled.read_word(process, address, word.ctypes.data)
    )


def _name(number: int) -> str:
    return f"redistribution-{number:x}"


def _opened(process: int, descriptor: int, number: int) -> int:
    """Descriptor of the memory of another process; -1 if that is on another host or protected."""
    path = f"/proc/{process}/fd/{descriptor}"
    with contextlib.suppress(OSError):
        if os.readlink(path) == f"/memfd:{_name(number)} (deleted)":
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    return -1
