"""What an agent observes of the jobs on its node: their memory, and where their ranks are.

The resident memory of all processes of a job is added up in each sample, as Slurm does by default;
memory that processes share counts for each of them. Between two samples, and in groups that end
before the first one, the kernel still tells the largest memory of any single process.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable
from math import ceil
from pathlib import Path

from reshape.files.positions import Position, read_positions
from scheduler.model.procset import ProcSet
from scheduler.node.groups.processes import ProcessTree
from scheduler.protocol import messages as m

#: Seconds between two samples.
SAMPLE_S = 1.0
#: A new maximum is reported if it is larger by this factor, so that few reports differ.
GROWTH = 1.1
_MIB = 1 << 20
#: Seconds for which reports name the positions of a job after the service has asked for them.
ASKED_S = 60.0
#: Places of a job in a report, and intervals of ranks at each.
MOST_PLACES, MOST_INTERVALS = 8, 32


class MemoryUse:
    """The largest memory of each job on this node.

    Parameters
    ----------
    sample_s : time between two samples, seconds.
    """

    def __init__(self, sample_s: float = SAMPLE_S) -> None:
        self._sample_s = sample_s
        self._sampled = float("-inf")
        self._largest: dict[int, int] = {}  # job -> bytes
        self._reported: dict[int, int] = {}  # job -> bytes

    def sample(self, trees: Iterable[tuple[int, ProcessTree]]) -> None:
        """Add up the memory of each job, if it is time for the next sample.

        Parameters
        ----------
        trees : job and processes of each group.
        """
        now = time.monotonic()
        if now - self._sampled < self._sample_s:
            return
        self._sampled = now
        used: dict[int, int] = {}
        for job, tree in trees:
            used[job] = used.get(job, 0) + tree.resident_bytes()
        for job, amount in used.items():
            self._note(job, amount)
            if self._largest.get(job, 0) > GROWTH * self._reported.get(job, 0):
                self._reported[job] = self._largest[job]

    def ended(self, job: int, largest_process: int) -> None:
        """Note the end of a group and the largest memory of any of its processes, bytes.

        The kernel counts the memory of this process for each process that it starts, so only an
        amount beyond that is taken from it.
        """
        if largest_process > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10:
            self._note(job, largest_process)
        if job in self._largest:
            self._reported[job] = self._largest[job]

    def forget(self, job: int) -> None:
        """Drop a job that has ended."""
        self._largest.pop(job, None)
        self._reported.pop(job, None)

    def report(self) -> dict[int, int]:
        """Return the largest memory of each job, MiB."""
        return {job: ceil(amount / _MIB) for job, amount in self._reported.items()}

    def _note(self, job: int, amount: int) -> None:
        if amount > self._largest.get(job, 0):
            self._largest[job] = amount


class RankPositions:
    """The jobs that the service has asked about recently.

    Parameters
    ----------
    folder_of : gives the shared-memory folder of a job.
    """

    def __init__(self, folder_of: Callable[[int], Path]) -> None:
        self._folder_of = folder_of
        self._until: dict[int, float] = {}

    def ask(self, job: int) -> None:
        """Let the next reports have the positions of a job."""
        self._until[job] = time.monotonic() + ASKED_S

    def report(self, groups: set[tuple[int, int]]) -> dict[int, list[m.RanksAt]]:
        """Return where the ranks are of jobs that the service has asked about.

        Parameters
        ----------
        groups : job and number of each group that runs here.
        """
        if not self._until:
            return {}
        now, running = time.monotonic(), {job for job, _ in groups}
        self._until = {j: until for j, until in self._until.items() if until > now and j in running}
        return {
            job: ranks_at(
                [
                    each
                    for each in read_positions(self._folder_of(job))
                    if (job, each.group) in groups
                ]
            )
            for job in self._until
        }


def ranks_at(positions: list[Position]) -> list[m.RanksAt]:
    """Return the ranks at each place, a bounded number of both: the places of the fewest ranks."""
    places: dict[tuple[int, int, bool], list[Position]] = {}
    for each in positions:
        places.setdefault((each.loop, each.iteration, each.at_point), []).append(each)
    fewest = sorted(places, key=lambda place: (len(places[place]), place))[:MOST_PLACES]
    return [
        m.RanksAt(
            *place,
            ranks=list(ProcSet.of(each.rank for each in places[place]).intervals[:MOST_INTERVALS]),
            idle_s=min(each.idle_s for each in places[place]),
        )
        for place in sorted(fewest)
    ]
