"""Where the ranks of jobs on this host are, for jobs that the service asks about."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from reshape.files.positions import Position, read_positions
from scheduler.model.procset import ProcSet
from scheduler.protocol import messages as m

#: Seconds for which reports name the positions of a job after the service has asked for them.
ASKED_S = 60.0
#: Places of a job in a report, and intervals of ranks at each.
MOST_PLACES, MOST_INTERVALS = 8, 32


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
