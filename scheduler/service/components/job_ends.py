"""From ends of groups to ends of jobs (PRIO 2: the monitor sends a job error or a job end).

A job ends when all its groups are gone. Whatever takes a group down that was not to go takes the
others down too: they would wait for it for ever. If that happened within a resize, the restart
point stands, and the job is started again from there instead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from reshape.wire import messages as m
from scheduler.model.events import Event, JobEnded, JobStarted, ResizeFailed
from scheduler.model.job import RESIZING, Job, JobState
from scheduler.service.components.job_startup import JobStartup
from scheduler.service.components.remap_scheduler import RemapScheduler
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.sites.site import Site

log = logging.getLogger(__name__)

#: The groups of a job that ends well end together; this much apart is a job that hangs.
STRAGGLER_S = 30.0


class JobEnds:
    """Draws the conclusions from what the agents say of a job's groups."""

    def __init__(
        self,
        core: Site,
        monitor: SystemMonitor,
        startup: JobStartup,
        remap: RemapScheduler,
        clock: Callable[[], float],
    ) -> None:
        self._core, self._monitor, self._startup = core, monitor, startup
        self._remap, self._clock = remap, clock
        self._blame: dict[int, m.GroupStatus] = {}
        self._ending: dict[int, float] = {}

    def examine(self, job: Job) -> list[Event]:
        """Compare a job that holds processors with what its agents know; say what happened."""
        statuses = {group: self._status(job, group) for group in job.groups}
        events: list[Event] = []
        if job.state is JobState.STARTING and any(s and s.alive for s in statuses.values()):
            events.append(JobStarted(at=self._clock(), job=job.id))
        gone = {group: s for group, s in statuses.items() if s is not None and not s.alive}
        if not gone:
            return events
        if len(gone) == len(statuses):
            return events + self._all_gone(job, gone)
        return events + self._some_gone(job, gone)

    def _status(self, job: Job, group: int) -> m.GroupStatus | None:
        """What is known of a group; one that ran and is unknown now went with its agent."""
        status = self._startup.status(job, group)
        node = self._startup.node_of(job, group)
        if status is not None:
            return status
        if self._core.machine.nodes[node].up:
            joins = job.resize is not None and job.resize.group == group
            awaited = job.state is JobState.STARTING or (joins and job.state in RESIZING)
            if awaited or node not in self._monitor.agents or self._startup.starts(job, group):
                return None
        why = f"its agent on {node} was lost"
        return m.GroupStatus(job=job.id, group=group, alive=False, signal=9, why=why)

    def _some_gone(self, job: Job, gone: dict[int, m.GroupStatus]) -> list[Event]:
        resize = job.resize
        if job.state is JobState.COMPLETING:
            return []
        if job.state is JobState.CONTRACTING and resize is not None:
            self._remap.transaction(job)
            done = self._remap.left(job)
            if done:
                return done
            committed = self._remap.open[job.id].phase == "committed"
            gone = {
                group: status
                for group, status in gone.items()
                if group not in resize.leaving or not (committed or _ended_well(status))
            }
        if job.state is JobState.EXPANDING and resize is not None and resize.group in gone:
            events = self._remap.joiner_gone(job, gone.pop(resize.group))
            if events or not gone:
                return events
        for status in gone.values():
            if not _ended_well(status):
                self._doom(job, status)
                return []
        if gone:
            self._ends_well(job, gone)
        return []

    def _doom(self, job: Job, status: m.GroupStatus) -> None:
        if job.id not in self._blame:
            self._blame[job.id] = status
            log.warning("group %d of job %d ended: %s", status.group, job.id, _how(status))
        self._startup.kill_all(job, f"group {status.group} ended: {_how(status)}")

    def _ends_well(self, job: Job, gone: dict[int, m.GroupStatus]) -> None:
        """Some groups have ended with success: the others follow, or are helped to."""
        resize = job.resize
        waiting = [group for group in job.groups if group not in gone]
        if resize is not None and waiting == [resize.group]:
            why = "the job ended before this group joined"
            transaction = self._remap.transaction(job)
            if transaction is not None:
                self._remap.dismiss(job, transaction, why)
            node = self._startup.node_of(job, waiting[0])
            self._startup.kill(node, job.id, waiting[0], why, grace_s=0)  # nothing to tidy up
        since = self._ending.setdefault(job.id, time.monotonic())
        if time.monotonic() - since > STRAGGLER_S:
            others = f"groups {waiting} of the job did not end with the others"
            self._blame[job.id] = m.GroupStatus(
                job=job.id, group=waiting[0], alive=False, exit_code=1, why=others
            )
            self._startup.kill_all(job, others)

    def _all_gone(self, job: Job, gone: dict[int, m.GroupStatus]) -> list[Event]:
        now = self._clock()
        joining = job.resize.group if job.resize is not None else None
        own = [status for group, status in gone.items() if group != joining]
        blame = self._blame.get(job.id) or next((s for s in own if not _ended_well(s)), None)
        within_resize = job.state in RESIZING and self._monitor.has_restart_point(job.id)
        if within_resize and job.resize is not None:
            why = _how(blame) if blame else "its processes ended within the resize"
            self._blame.pop(job.id, None)
            self._ending.pop(job.id, None)
            failed = ResizeFailed(
                at=now, job=job.id, serial=job.resize.serial, why=why, restart=True
            )
            return [failed]
        self._blame.pop(job.id, None)
        self._ending.pop(job.id, None)
        if blame is None:
            return [JobEnded(at=now, job=job.id)]
        return [
            JobEnded(
                at=now,
                job=job.id,
                exit_code=blame.exit_code,
                signal=blame.signal,
                why=f"group {blame.group} ended with {_how(blame)}",
            )
        ]


def _ended_well(status: m.GroupStatus) -> bool:
    return status.exit_code == 0 and status.signal == 0


def _how(status: m.GroupStatus) -> str:
    code = f"exit code {status.exit_code}:{status.signal}"
    return f"{code}, {status.why}" if status.why else code
