"""Waiting for MPI without keeping the core from those that are waited for. Importing starts MPI.

MPI itself waits by asking again and again, as if every rank had a core of its own. Where ranks
share cores, as on a laptop or when a node takes in more of them, one that waits so keeps the others
from what it waits for, for milliseconds.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import TypeVar

from mpi4py import MPI

# A rank that has waited for this long gives up its core, in seconds; after some more it sleeps. If
# it only yielded, its core would be counted as busy, and the ranks that are waited for would be
# left to share another one. Between two sleeps it asks MPI some times: for ten times as long, the
# move of a resize from 4 to 6 ranks on 2 cores took twice its time.
_YIELD_AFTER = 2e-5
_SLEEP_AFTER = 2e-4
_SLEEP = 2e-5
_AWAKE = 3e-6

# Small messages are there after fewer questions than this, which are asked without a clock.
_AT_ONCE = 16

# A question to MPI that takes so many times as long as the shortest one was work, not waiting.
_AT_WORK = 2


_T = TypeVar("_T")


def share_cores(comm: MPI.Intracomm) -> bool:
    """Whether there may be more ranks than cores: certainly not if this node alone has enough."""
    return comm.size > len(os.sched_getaffinity(0))


def wait(requests: list[MPI.Request]) -> None:
    """Return when all requests are done; give up the core meanwhile if it takes long."""
    for _ in range(_AT_ONCE):
        if MPI.Request.Testall(requests):
            return
    patience = Patience()
    while not patience.poll(MPI.Request.Testall, requests):
        patience.rest()


class Patience:
    """For how long a rank has waited in vain.

    Large messages may need the ranks on both ends, again and again: where one process may not read
    the memory of another, MPI hands them over bit by bit whenever it is asked whether they came
    through. That a bit was handed over shows only in the time the question took.
    """

    def __init__(self) -> None:
        self.since = time.perf_counter()
        self.shortest = math.inf

    def poll(self, test: Callable[[list[MPI.Request]], _T], requests: list[MPI.Request]) -> _T:
        """What ``test`` says of the requests."""
        began = time.perf_counter()
        found = test(requests)
        ended = time.perf_counter()
        spent = ended - began
        self.shortest = min(self.shortest, spent)
        if spent > _AT_WORK * self.shortest:
            self.since = ended
        return found

    def renew(self) -> None:
        """Something came, or there was something else to do."""
        self.since = time.perf_counter()

    def rest(self) -> None:
        """Let others have the core for a moment if it has been waited for long."""
        waited = time.perf_counter() - self.since
        if waited > _SLEEP_AFTER:
            time.sleep(_SLEEP)
            self.since = time.perf_counter() - _SLEEP_AFTER + _AWAKE
        elif waited > _YIELD_AFTER:
            os.sched_yield()
