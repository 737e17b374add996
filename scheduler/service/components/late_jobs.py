"""Jobs without a resize point for many times their usual iteration, and where their ranks are.

A long phase is legal, and so nothing is done about such a job. But if a rank has left the loop
alone, or waits in a call that others do not make, the job hangs, and all that its user sees is that
it runs. So the agents are asked where its ranks are, and `info` and `explain` tell that.
"""

from __future__ import annotations

from collections.abc import Callable

from reshape.files.positions import place_text
from scheduler.model.job import RESIZING, Job, JobState
from scheduler.model.procset import ProcSet
from scheduler.protocol import messages as m
from scheduler.service.components.job_startup import JobStartup
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.text.formats import format_time

#: A job is late this many usual iterations after its last resize point, and this many seconds.
MANY, LEAST_S = 20.0, 30.0
_COMPUTING = (JobState.RUNNING, *RESIZING)


class LateJobs:
    """Tells which jobs are late.

    Parameters
    ----------
    clock : time of the service, seconds.
    """

    def __init__(
        self, monitor: SystemMonitor, startup: JobStartup, clock: Callable[[], float]
    ) -> None:
        self._monitor, self._startup, self._clock = monitor, startup, clock

    def examine(self, job: Job) -> None:
        """Let the agents of a late job report where its ranks are."""
        if self._lateness(job) is None:
            return
        startup, agents = self._startup, self._monitor.reports.agents
        for node in {node for group in job.groups for node in startup.nodes_of(job, group)}:
            if node in agents and job.id not in agents[node].positions:
                self._monitor.send_to(node, m.LocateRanks(job=job.id))

    def text(self, job: Job) -> str:
        """Say how late a job is and where its ranks are; "" if it is not late."""
        late = self._lateness(job)
        if late is None:
            return ""
        since_s, usual_s = late
        text = f"no resize point for {format_time(since_s)}, an iteration took {usual_s:.3g} s"
        return "; ".join([text, *self._places(job)])

    def _lateness(self, job: Job) -> tuple[float, float] | None:
        """Time since the last resize point of a job that is late, and of an iteration, seconds."""
        if job.state not in _COMPUTING or job.progress is None:
            return None
        reported_at, _, usual_s = job.progress
        since_s = self._clock() - max(reported_at, job.sizes[-1][0])  # the last start or resize
        return (since_s, usual_s) if since_s > max(MANY * usual_s, LEAST_S) else None

    def _places(self, job: Job) -> list[str]:
        ranks: dict[tuple[int, int, bool], ProcSet] = {}
        idle_s: dict[tuple[int, int, bool], float] = {}
        for agent in self._monitor.reports.agents.values():
            for at in agent.positions.get(job.id, ()):
                spans = [ProcSet.span(first, last - first + 1) for first, last in at.ranks]
                place = at.loop, at.iteration, at.at_point
                ranks[place] = ProcSet.union([ranks.get(place, ProcSet()), *spans])
                idle_s[place] = min(at.idle_s, idle_s.get(place, at.idle_s))
        several = any(loop for loop, _, _ in ranks)
        return [
            f"{'rank' if len(held) == 1 else 'ranks'} {held} {place_text(*place, several)} "
            f"for {format_time(idle_s[place])}"
            for place, held in sorted(ranks.items())
        ]
