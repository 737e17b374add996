"""From the ends of groups to the ends of jobs (PRIO 2: job end, job error).

A job ends when all its groups are gone. If a group ends that was not to end, the other groups of
the job are ended too, because they would wait for it forever. If that happens within a resize while
the restart point exists, the job is started again from there instead. Otherwise the event says
whether the processes died, so that the core can queue a job again that was submitted for that.

A job of several groups has started when they are together, which its first message says. If a group
ends before, or the others wait for it too long, the start has failed.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from scheduler.core.core import Core
from scheduler.model.events import Event, JobEnded, JobStarted, ResizeFailed
from scheduler.model.job import ACTIVE, FINAL, RESIZING, Job, JobState
from scheduler.node.launching.starter import CANNOT_START
from scheduler.protocol import messages as m
from scheduler.service.components.job_startup import REPEAT_S, JobStartup
from scheduler.service.components.remap_scheduler import RemapScheduler
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.text.job_output import error_line, last_lines

log = logging.getLogger(__name__)

#: Seconds within which all groups of a job that ends well end; after that the job hangs.
STRAGGLER_S = 30.0
#: Seconds within which an agent answers how a group ended.
ANSWER_S = 10.0
NEVER_TOGETHER = (
    "it ended before the groups of the job were one: a job that is submitted with a minimum starts"
    " as several mpiexec worlds, and its program has to use reshape.application()"
)


class JobEnds:
    """Derives events from what the agents report of the groups of a job.

    Parameters
    ----------
    checkpoint_of : iteration of the last checkpoint that a job has reported, 0 if none.
    """

    def __init__(
        self,
        core: Core,
        monitor: SystemMonitor,
        startup: JobStartup,
        remap: RemapScheduler,
        clock: Callable[[], float],
        checkpoint_of: Callable[[int], int],
    ) -> None:
        self._core, self._monitor, self._startup = core, monitor, startup
        self._reports = monitor.reports
        self._remap, self._clock, self._checkpoint_of = remap, clock, checkpoint_of
        self._kept = remap.kept
        # What the agents of jobs in the journal have reported before is not known any more.
        for job in core.live.values():
            monitor.reports.started.setdefault(job.id, set()).update(job.groups)

    def examine(self, job: Job) -> list[Event]:
        """Compare a job that holds processors with its groups; return the events that follow."""
        if self._may_restart(job):
            return []
        self._end_if_newer(job)
        self._end_if_apart(job)
        statuses = {group: self._status(job, group) for group in job.groups}
        events: list[Event] = []
        is_up = len(statuses) == 1 and all(s and s.alive for s in statuses.values())
        if job.state is JobState.STARTING and is_up:
            events.append(JobStarted(at=self._clock(), job=job.id))
        gone = {group: s for group, s in statuses.items() if s is not None and not s.alive}
        if not gone:
            return events
        if len(gone) == len(statuses):
            if any(self._is_unknown(step) for step in self._core.steps_of(job.id)):
                return events  # the step may have ended; the end of the job would cancel it
            return events + self._on_all_gone(job, gone)
        return events + self._on_some_gone(job, gone)

    def _is_unknown(self, step: Job) -> bool:
        """Whether the agents of a step that ran have still to say what has become of it."""
        statuses = [self._status(step, group) for group in step.groups]
        is_alive = any(status is not None and status.alive for status in statuses)
        return step.state in ACTIVE and None in statuses and not is_alive

    def _end_if_newer(self, job: Job) -> None:
        """End a job that has a group or a resize which the journal does not have.

        The groups of the job communicate with that group, so they cannot continue without it.
        """
        if job.state is JobState.COMPLETING or self._kept[job.id].culprit is not None:
            return
        is_ahead = self._kept[job.id].is_ahead
        for _, status in self._reports.statuses(job.id):
            if status.group >= job.next_group or (is_ahead and status.alive):
                lacks = "the last resize" if is_ahead else "this group"
                why = f"the journal does not have {lacks}: a part of the journal was lost"
                self._on_failed_group(job, _lost(job, status.group, why))
                return

    def _is_apart(self, job: Job) -> bool:
        """Whether a job starts with several groups that are not together."""
        several = job.state is JobState.STARTING and len(job.groups) > 1
        return several and not self._remap.transactions.has_ports(job)

    def _end_if_apart(self, job: Job) -> None:
        """End a job one of whose groups has waited too long for another one that starts with it."""
        if job.state is not JobState.STARTING or len(job.groups) == 1:
            return
        if self._kept[job.id].culprit is not None:
            return
        limit_s = self._remap.deadlines.start_s
        late = self._remap.transactions.overdue_group(job, limit_s)
        if late is not None:
            why = f"the groups of the job were not together within {limit_s:g} s"
            self._on_failed_group(job, _lost(job, late, why))

    def _may_restart(self, job: Job) -> bool:
        """Whether a resized job was on a lost node whose restart points are not known yet."""
        if job.state not in RESIZING or job.resize is None:
            return False
        groups = [group for group in job.groups if group not in job.resize.joining]
        nodes = {node for group in groups for node in self._startup.nodes_of(job, group)}
        return not all(self._core.machine.nodes[node].up for node in nodes)

    def on_agent_hello(
        self, peer: bytes, hello: m.AgentHello, *, is_remote: bool
    ) -> Sequence[Event]:
        """Note the report of an agent and return the events of its node.

        If the agent has replaced another one with which groups have ended, the node stays down
        until it is known which of their jobs can restart. Nothing is lost with an agent without
        groups, which ends if it has no service for a while.

        Raises
        ------
        ReshapeError : the agent is refused.
        """
        replaced = self._monitor.replaces(peer, hello, is_remote=is_remote)
        loses_groups = replaced and self._startup.has_groups_of(hello.node)
        if loses_groups and (awaited := self._awaited_for(hello)):
            return self._monitor.hold_back(hello, awaited, self._ended_on(hello), self._clock())
        living = (status for status in hello.groups if status.alive)
        return self._monitor.on_report(
            peer,
            hello,
            [status for status in living if not self._is_wanted(status)],
            self._clock(),
            replaced=replaced,
            loses_groups=loses_groups,
            ended=self._ended_on(hello) if loses_groups else (),
        )

    def _ended_on(self, hello: m.AgentHello) -> tuple[int, ...]:
        """Jobs of which all groups on a node have ended, as its agent reports."""
        ended = {(status.job, status.group) for status in hello.groups if not status.alive}
        return tuple(
            number
            for number in sorted({job for job, _ in ended} & self._core.live.keys())
            if all(
                (number, group) in ended
                for group in self._core.live[number].groups
                if hello.node in self._startup.nodes_of(self._core.live[number], group)
            )
        )

    def _is_wanted(self, status: m.GroupStatus) -> bool:
        """Whether the core has a group; a job that is being ended still holds its processors."""
        job = self._core.jobs.get(status.job)
        return job is not None and job.state not in FINAL and status.group in job.groups

    def _awaited_for(self, hello: m.AgentHello) -> list[str]:
        """Nodes whose agents may still report the restart points of jobs with data on a node.

        Their agents have not reported since the service started, and they are not lost yet.
        """
        nodes, agents = self._core.machine.nodes, self._reports.agents
        awaited: set[str] = set()
        if len(agents) == len(self._monitor.nodes):
            return []
        for number in set(hello.folders) - set(hello.restart_points):
            job = self._core.live.get(number)
            if job is None or job.state not in RESIZING or self._reports.has_restart_point(number):
                continue
            holders = {node for group in job.groups for node in self._startup.nodes_of(job, group)}
            awaited |= {node for node in holders if nodes[node].up and node not in agents}
        return sorted(awaited - {hello.node})

    def _status(self, job: Job, group: int) -> m.GroupStatus | None:
        """Return the status of a group; one that ran and is not reported ended with its agent.

        None: it is not known, as while a silent agent may still read the order to start it.
        """
        status = self._startup.status(job, group)
        node = self._startup.node_of(job, group)
        if (status is None or not status.alive) and self._is_unheard(job, group):
            return None
        if status is not None:
            return status
        why = f"its agent on {node} was lost"
        if self._core.machine.nodes[node].up:
            joins = job.resize is not None and group in job.resize.joining
            awaited = job.state is JobState.STARTING or (
                joins and self._remap.phase_of(job) == "starting"
            )
            agent = self._reports.agents.get(node)
            if awaited or agent is None or self._startup.starts(job, group):
                return None
            if agent.served_before and job.state is not JobState.COMPLETING:
                if self._ask_end(job, group):
                    return None
                why = f"its agent on {node} does not say how"
        elif self._monitor.is_held_back(node):
            return None
        return _lost(job, group, why)

    def _is_unheard(self, job: Job, group: int) -> bool:
        """Whether a node of a group does not report it, and may not have read all orders for it."""
        return any(
            self._core.machine.nodes[node].up
            and not self._monitor.has_heard(node, REPEAT_S)
            and self._reports.status(node, job.id, group) is None
            for node in self._startup.nodes_of(job, group)
        )

    def _ask_end(self, job: Job, group: int) -> bool:
        """Ask the agent how a group ended; return whether there is still time for the answer."""
        asked = self._kept[job.id].asked.setdefault(group, time.monotonic())
        self._startup.ask_end(job, group)
        return time.monotonic() - asked < ANSWER_S

    def _on_some_gone(self, job: Job, gone: dict[int, m.GroupStatus]) -> list[Event]:
        resize = job.resize
        if job.state is JobState.COMPLETING:
            return []
        if job.state is JobState.CONTRACTING and resize is not None:
            done = self._remap.finished_contraction(job)
            if done:
                return done
            committed = self._remap.phase_of(job) == "committed"
            gone = {
                group: status
                for group, status in gone.items()
                if group not in resize.leaving or (not committed and status.has_failed)
            }
        if job.state is JobState.EXPANDING and resize is not None:
            joining = {group: gone[group] for group in resize.joining if group in gone}
            own = {group: status for group, status in gone.items() if group not in joining}
            if len(own) == len(job.groups) - len(resize.joining):
                return self._on_end_without_joining(job, gone, own)
            if joining and self._kept[job.id].culprit is None:
                events = self._remap.joining_group_ended(job, next(iter(joining.values())))
                if events:
                    return events
            gone = own
        is_apart = self._is_apart(job)
        for status in gone.values():
            if status.has_failed or is_apart:
                self._on_failed_group(job, _too_early(status) if is_apart else status)
                return []
        if gone:
            self._on_partial_end(job, gone)
        return []

    def _on_failed_group(self, job: Job, status: m.GroupStatus) -> None:
        how = self._how(job, status)
        if self._kept[job.id].culprit is None:
            self._kept[job.id].culprit = status
            log.warning("group failed job=%d group=%d: %s", job.id, status.group, how)
        self._startup.kill_all(job.id, f"group {status.group} ended: {how}")

    def _on_end_without_joining(
        self, job: Job, gone: dict[int, m.GroupStatus], own: dict[int, m.GroupStatus]
    ) -> list[Event]:
        """End the groups that were to join a job whose own groups have ended.

        The expansion has not failed, as it ends with the job. A group whose agent does not answer
        is waited for as long as for one that starts, unless it may have data of the job.
        """
        failed = next((status for status in own.values() if status.has_failed), None)
        transaction = self._remap.transactions.of(job)
        if failed is not None:
            self._on_failed_group(job, failed)
        else:
            why = "the job ended before this group joined"
            self._remap.release_joining_group(job, transaction, why)
            for group in job.groups.keys() - gone.keys():  # it has computed nothing
                node = self._startup.node_of(job, group)
                self._startup.kill(node, job.id, group, why, grace_s=0)
        is_late = self._ending_s(job) > self._remap.deadlines.start_s
        return self._on_all_gone(job, gone) if is_late and transaction.in_background else []

    def _on_partial_end(self, job: Job, gone: dict[int, m.GroupStatus]) -> None:
        """Some groups have ended with success: wait for the others, and end them if they hang."""
        remaining = [group for group in job.groups if group not in gone]
        if self._ending_s(job) > STRAGGLER_S:
            why = f"groups {remaining} of the job did not end with the others"
            self._kept[job.id].culprit = m.GroupStatus(
                job=job.id, group=remaining[0], alive=False, exit_code=1, why=why
            )
            self._startup.kill_all(job.id, why)

    def _ending_s(self, job: Job) -> float:
        """Seconds since the first group of a job that ends well has ended."""
        kept, now = self._kept[job.id], time.monotonic()
        if kept.ending_since is None:
            kept.ending_since = now
        return now - kept.ending_since

    def _on_all_gone(self, job: Job, gone: dict[int, m.GroupStatus]) -> list[Event]:
        joining = job.resize.joining if job.resize is not None else ()
        own = [status for group, status in gone.items() if group not in joining]
        is_apart = self._is_apart(job)
        kept = self._kept[job.id]
        culprit = kept.culprit or next((status for status in own if status.has_failed), None)
        if is_apart and culprit is None:
            culprit = _too_early(own[0])
        kept.culprit, kept.ending_since = None, None
        within_resize = job.state in RESIZING and self._reports.has_restart_point(job.id)
        obstacle = self._obstacle_to_restart(job, own) if within_resize else ""
        if within_resize and job.resize is not None and not obstacle:
            why = self._how(job, culprit) if culprit else "its processes ended within the resize"
            serial = job.resize.serial
            return [
                ResizeFailed(at=self._clock(), job=job.id, serial=serial, why=why, restart=True)
            ]
        if obstacle:
            culprit = culprit or own[0]
            why = "; ".join(filter(None, (culprit.why, f"it cannot restart: {obstacle}")))
            culprit = replace(culprit, signal=signal.SIGKILL, why=why)
        if culprit is None:
            return [JobEnded(at=self._clock(), job=job.id)]
        # Where a proxy is lost with its host, mpiexec ends with a code of its own.
        died = culprit.signal != 0 or job.cause is JobState.NODE_FAIL
        began = self._has_begun(job, [culprit.group] if is_apart else list(job.groups))
        began = began or culprit.fault == "job"
        is_lost = began or job.cause is JobState.NODE_FAIL
        what = "the script" if self._startup.is_script(job) else f"group {culprit.group}"
        why = f"{what} ended with {self._how(job, culprit)}"
        # The output of a step may be that of its job, whose last lines belong to other programs.
        told = last_lines(culprit.output_end) if job.spec.step_of is None else ""
        line = error_line(told)
        said = line.removeprefix("reshape: error: ").removesuffix("...")  # as the program reported
        if job.state is not JobState.COMPLETING and said not in why:  # it was not ended on order
            # A process that a signal has ended could not say why.
            why = f"{why}; its last line: {line}" if culprit.signal else f"{why}: {line}"
        return [
            JobEnded(
                at=self._clock(),
                job=job.id,
                exit_code=culprit.exit_code,
                signal=culprit.signal,
                why=why,
                last_lines=told,
                died=died,
                checkpoint=self._checkpoint_of(job.id) if died and job.spec.requeue else 0,
                began=began,
                at_fault="" if is_lost else self._startup.node_at_fault(job, culprit.group),
            )
        ]

    def _has_begun(self, job: Job, groups: Sequence[int]) -> bool:
        """Whether a program of some groups has begun, or may have, since the job was queued."""
        started = self._reports.started.get(job.id, set()).intersection(groups)
        return job.restarts > 0 or not all(
            self._startup.never_began(job, group) for group in started
        )

    def _how(self, job: Job, status: m.GroupStatus) -> str:
        """Say how a group has ended; a start that failed on another host names the node."""
        code, why = f"exit code {status.exit_code}:{status.signal}", status.why
        if why and status.exit_code == CANNOT_START:
            node = self._startup.node_at_fault(job, status.group)
            if self._monitor.is_remote(node):
                why = f"{node}: {why}"
        return f"{code}, {why}" if why else code

    def _obstacle_to_restart(self, job: Job, groups: Sequence[m.GroupStatus]) -> str:
        """Say why a job cannot restart, of which these groups have the data; empty if it can."""
        nodes = {node for group in groups for node in self._startup.nodes_of(job, group.group)}
        lost = sorted(nodes - set(self._reports.nodes_with_folder(job.id)))
        return f"its data on {', '.join(lost)} is lost" if lost else ""


def _lost(job: Job, group: int, why: str) -> m.GroupStatus:
    return m.GroupStatus(job.id, group, alive=False, signal=signal.SIGKILL, why=why)


def _too_early(status: m.GroupStatus) -> m.GroupStatus:
    """Return the end of a group of a start that is not together; success is a failure then."""
    if status.has_failed:
        return status
    return replace(status, exit_code=1, why=NEVER_TOGETHER)
