"""Waiting for MPI without occupying a core that other ranks need. Importing this starts MPI.

MPI waits by polling, as if every rank had a core of its own. Where ranks share cores, for example
on a laptop or during an expansion on one node, a polling rank delays the ranks it waits for by
milliseconds.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from mpi4py import MPI

#: Name of the program that starts the ranks of a host for mpiexec.
STARTER = "hydra_pmi_proxy"


@cache
def cpus() -> int:
    """CPUs that the ranks of this program on this host may use together.

    A rank may be bound to some of them, but not the process that has started the ranks.
    """
    process = os.getpid()
    with suppress(OSError):  # no /proc, or the process has ended
        while process > 1:
            name, _, rest = Path(f"/proc/{process}/stat").read_text().rpartition(") ")
            if name.endswith(f"({STARTER}"):
                return len(os.sched_getaffinity(process))
            process = int(rest.split()[1])
    return len(os.sched_getaffinity(0))


def crowding() -> float:
    """How many ranks of this program share a core of this host beyond two; at least 1."""
    told = os.environ.get("MPI_LOCALNRANKS", "")  # mpiexec sets it
    ranks = int(told) if told.isdecimal() else 1
    return max(1.0, ranks / cpus() - 2)


# A rank that has waited this long yields its core, and after some more time it sleeps, in seconds.
# A rank that only yields counts as running, and the scheduler would let the ranks it waits for
# share another core. Between two sleeps the rank tests its requests for AWAKE_S: with ten times as
# much, the move of a resize from 4 to 6 ranks on 2 cores took twice as long. The more ranks share a
# core, the sooner and the longer each of them sleeps: the polling of 32 ranks occupied two cores.
YIELD_AFTER_S = 2e-5
SLEEP_AFTER_S = 2e-4 / crowding()
SLEEP_S = 2e-5 * crowding()
AWAKE_S = 3e-6

# A rank that waits for a small message sleeps for this fraction of the time that it has waited, but
# not longer.
SLEEP_FRACTION = 0.1
LONGEST_SLEEP_S = 5e-4

# A rank that waits for small messages yields its core at once, and sleeps only after this time, in
# seconds. An agreement of 6 or 8 ranks on 2 quiet cores takes half as long again if a rank polls
# for 20 microseconds before it yields.
YIELD_FOR_S = 2e-4

# A test that takes this many times as long as the shortest one did work for a message.
_WORK_FACTOR = 2


_T = TypeVar("_T")


def may_share_cores(comm: MPI.Intracomm) -> bool:
    """Whether there may be more ranks than cores: no if this node has enough for all ranks."""
    return comm.size > cpus()


def wait(requests: list[MPI.Request]) -> None:
    """Return when all requests have completed; yield the core meanwhile, or sleep.

    While a rank waits, MPI may need its calls for large messages; see `Backoff`.
    """
    if _complete_soon(requests):
        return
    backoff = Backoff()
    while not backoff.test(MPI.Request.Testall, requests):
        backoff.pause()


def all_or(comm: MPI.Intracomm, word: int) -> int:
    """Collective over comm. Bitwise or of the words of all ranks, each in [0, 2**63)."""
    own, combined = np.array([word], np.int64), np.empty(1, np.int64)
    if may_share_cores(comm):
        wait([comm.Iallreduce(own, combined, MPI.BOR)])
    else:
        comm.Allreduce(own, combined, MPI.BOR)
    return int(combined[0])


def wait_idle(requests: list[MPI.Request]) -> None:
    """Return when all requests, of small messages, have completed; sleep meanwhile.

    MPI has no work for these, which would require frequent calls: a rank that waits for tens of
    milliseconds takes a few hundredths of a core.
    """
    if _complete_soon(requests):
        return
    began = time.perf_counter() - YIELD_FOR_S
    while not MPI.Request.Testall(requests):
        waited = time.perf_counter() - began
        time.sleep(min(SLEEP_FRACTION * waited, LONGEST_SLEEP_S))


def _complete_soon(requests: list[MPI.Request]) -> bool:
    """Yield the core until all requests have completed; False if this takes long."""
    began = time.perf_counter()
    while not MPI.Request.Testall(requests):
        if time.perf_counter() - began > YIELD_FOR_S:
            return False
        os.sched_yield()
    return True


class Backoff:
    """How long a rank has been idle, and the pauses that follow from it.

    Large messages may need work on both ends again and again: where a process may not read the
    memory of another one, MPI transfers them in small portions, within calls that test requests.
    MPI gives no notification of such work; only the duration of the call shows it.
    """

    def __init__(self) -> None:
        self._idle_since = time.perf_counter()
        self._shortest = math.inf

    def test(self, test: Callable[[list[MPI.Request]], _T], requests: list[MPI.Request]) -> _T:
        """Result of ``test(requests)``; the rank is not idle if the call took long."""
        began = time.perf_counter()
        completed = test(requests)
        ended = time.perf_counter()
        spent = ended - began
        self._shortest = min(self._shortest, spent)
        if spent > _WORK_FACTOR * self._shortest:
            self._idle_since = ended
        return completed

    def reset(self) -> None:
        """Note that the rank has done something."""
        self._idle_since = time.perf_counter()

    def pause(self, sleep: Callable[[float], object] | None = None) -> None:
        """Return at once, yield the core or sleep, depending on how long the rank has been idle.

        Parameters
        ----------
        sleep : sleeps for some seconds, or until what the rank waits for has happened. None: as
            `time.sleep` does.
        """
        idle = time.perf_counter() - self._idle_since
        if idle > SLEEP_AFTER_S:
            (sleep or time.sleep)(SLEEP_S)
            self._idle_since = time.perf_counter() - SLEEP_AFTER_S + AWAKE_S
        elif idle > YIELD_AFTER_S:
            os.sched_yield()
