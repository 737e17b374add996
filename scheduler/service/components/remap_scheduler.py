"""The remap scheduler: jobs at their resize points, and the resizes that follow (PRIO 2).

The core decides on a resize; this component carries it out as a transaction with the application
(:mod:`scheduler.service.components.transactions` lists its phases).

An answer to an application is a function of the state, so that an application which asks again gets
the same instruction again. Each phase has a deadline. A failure before the join leaves the job as
it is (`ResizeFailed`). A failure within the join, while the restart point exists, ends the job's
processes, and the job restarts from there (:mod:`scheduler.service.components.job_ends`).

A job is late if it has no resize point for many times its usual iteration. A long phase is legal,
so nothing is done about such a job. But if a rank has left the loop alone, or waits in a call that
others do not make, the job hangs, and all that its user sees is that it runs. So the agents are
asked where its ranks are, and `info` and `explain` tell that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from reshape.errors import ReshapeError
from reshape.files.job_folder import place_text
from reshape.wire.messages import ResizeTimes
from scheduler.config.settings import Deadlines
from scheduler.core.core import Core
from scheduler.model.events import (
    Event,
    JobStarted,
    ResizeDone,
    ResizeFailed,
    ResizePoint,
    SizesRequested,
)
from scheduler.model.job import FINAL, RESIZING, Job, JobState
from scheduler.model.orders import Resize
from scheduler.model.procset import ProcSet
from scheduler.protocol import messages as m
from scheduler.service.components.job_startup import JobStartup
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.service.components.transactions import KeptJobs, Transaction, Transactions
from scheduler.text.formats import format_time
from scheduler.text.plain import LONGEST_REASON

log = logging.getLogger(__name__)

#: A job is late this many usual iterations after its last resize point, and this many seconds.
LATE_ITERATIONS, LATE_S = 20.0, 30.0
#: Seconds that a job may take to report a join that a stand-in has cancelled.
CANCEL_S = 6.0
#: Seconds that a job may take to report that it refused a group, before the join is cancelled.
REPORT_S = 0.5


@dataclass
class RemapScheduler:
    """Answers applications and carries out their resizes.

    Parameters
    ----------
    send : queues a message for a peer, named by its socket identity.
    clock : the service's clock, Unix seconds.
    kept : what is kept of each job.
    """

    core: Core
    transactions: Transactions
    monitor: SystemMonitor
    startup: JobStartup
    deadlines: Deadlines
    send: Callable[[bytes, m.Message], None]
    clock: Callable[[], float]
    kept: KeptJobs

    # ------------------------------------------------------------------ from the application

    def is_ahead(self, job: Job, serial: int) -> bool:
        """Whether a job has committed a resize that the journal does not have.

        Then an older journal was restored, and the job is ended as soon as its agents report: its
        size and its groups are not those that the core decides on.

        Parameters
        ----------
        serial : number of the resize that the job has committed last.
        """
        if serial <= job.resizes:
            return False
        if job.state not in FINAL and not self.kept[job.id].is_ahead:
            log.warning("job=%d has done resize %d, which the journal lacks", job.id, serial)
            self.kept[job.id].is_ahead = True
        return True

    def on_resize_point(self, job: Job, message: m.AtResizePoint) -> list[Event]:
        """Return the events of a resize point, a commit whose report was lost included.

        While groups that a contraction has released are ending, it is no event of the core.
        """
        now = self.clock()
        if job.state not in FINAL:
            self.kept[job.id].point = message
        events: list[Event] = []
        if job.state is JobState.STARTING:
            events.append(JobStarted(at=now, job=job.id))
        transaction = None if job.resize is None else self.transactions.of(job)
        if transaction is not None:
            self.transactions.set_port(job, transaction, "")  # a job that computes accepts nothing
            if message.epoch >= transaction.serial and transaction.phase != "committed":
                events += self._commit(job, transaction, ResizeTimes())
        if message.requests not in (None, job.bounds):
            events.append(SizesRequested(now, job.id, *message.requests))
        is_committed = transaction is not None and transaction.phase == "committed"
        if is_committed and job.resize is not None and not job.resize.expands:
            return events  # measured on a size that the core has only when the groups have ended
        events.append(
            ResizePoint(
                at=now,
                job=job.id,
                iteration=message.iteration,
                iteration_s=message.iteration_s,
                topology=message.topology,
                data_bytes=message.registered_bytes,
                iterations=message.iterations,
            )
        )
        return events

    def instruction(self, job: Job, message: m.AtResizePoint) -> m.Message:
        """Return what the application has to do now that the core has decided."""
        answer = self._resize_of(job, message)
        if isinstance(answer, m.Proceed) and message.requests is not None:
            answer.answers = True
            resizes = self.core.partition_of(job).resizes
            answer.declined = resizes.request_fault(job, message.requests)
        return answer

    def _resize_of(self, job: Job, message: m.AtResizePoint) -> m.Message:
        """Return what the application has to do for the resize under way, if there is one."""
        resize = job.resize
        if resize is None or message.epoch >= resize.serial:
            return m.Proceed(id=message.id)
        transaction = self.transactions.of(job)
        if resize.expands:
            assert resize.group is not None
            alive = self.startup.alive(job, resize.joining)
            if transaction.phase == "starting" or len(alive) < len(resize.joining):
                return m.Proceed(id=message.id, expands_to=resize.new)
            if transaction.phase == "ready":
                self.transactions.enter(job, transaction, "joining")
            self._watch(job, message)
            size = _joining_size(job, resize)
            return m.Join(id=message.id, serial=resize.serial, group=resize.group, size=size)
        if transaction.phase == "committed":
            return m.Proceed(id=message.id)
        self._watch(job, message)
        return m.Leave(id=message.id, serial=resize.serial, groups=list(resize.leaving))

    def _watch(self, job: Job, message: m.AtResizePoint) -> None:
        """Let the agents end the job if its restart point exists for longer than the deadline.

        The service never ends such a watch: it is harmless once the restart point is removed, the
        next group of the job ends it, and it is what ends a job that hangs while there is no
        service.
        """
        assert job.resize is not None
        rate = self.deadlines.move_bytes_per_s
        watch = m.WatchJoin(
            job=job.id,
            serial=job.resize.serial,
            deadline_s=self.deadlines.join_s + message.registered_bytes / rate,
            bytes_per_s=rate,
        )
        nodes = {node for group in job.groups for node in self.startup.nodes_of(job, group)}
        for node in sorted(nodes):
            self.monitor.send_to(node, watch)

    def on_group_ready(self, job: Job, peer: bytes, message: m.GroupReady) -> m.Message | None:
        """Note that a group, or several as one, waits; None as long as there is no port for it."""
        if self.transactions.assembles(job, message.group):
            return self.transactions.on_assembling_group(job, peer, message)
        resize = job.resize
        if resize is None or resize.group != message.group:
            return m.Abandon(id=message.id, why="the job does not need this group any more")
        started = _joining_size(job, resize)
        if message.size != started:
            why = wrong_size(message.size, job, message.group, started)
            return m.Abandon(id=message.id, why=why)
        transaction = self.transactions.of(job)
        transaction.joiner = peer, message.id
        if transaction.phase == "starting":
            transaction.start_s = time.monotonic() - transaction.begun
            self.transactions.enter(job, transaction, "ready")
        if transaction.phase == "joining" and transaction.port and transaction.cancelled is None:
            return m.Connect(id=message.id, port=transaction.port)
        return None

    def on_port(self, job: Job, message: m.JoinPort) -> None:
        """Send a port to the group that waits for it.

        A group whose agent has not reported since the service started may be alive: the job waits
        for it, until it asks for the port or its agent reports its end.

        Raises
        ------
        ReshapeError : no group will connect; the job rolls back.
        """
        if message.group:
            if self.transactions.assembles(job, message.group):
                self.transactions.on_assembly_port(job, message.group, message.port)
            return
        resize = job.resize
        if resize is None or resize.serial != message.serial:
            raise ReshapeError("the service has given this resize up")
        if not resize.expands:
            raise ReshapeError("no group joins in a contraction")
        for status in self.startup.ended(job, resize.joining):
            raise ReshapeError(_end_of_group(status))
        transaction = self.transactions.of(job)
        self.transactions.set_port(job, transaction, message.port)
        if transaction.joiner is not None:
            peer, request = transaction.joiner
            self.send(peer, m.Connect(id=request, port=message.port))

    def on_report(self, job: Job, report: m.ResizeReport) -> list[Event]:
        """Return the events of a resize that the application reports as committed or rolled back.

        A report of a resize that is not under way any more has none.
        """
        if job.resize is None or job.resize.serial != report.serial:
            return []
        transaction = self.transactions.of(job)
        if report.ok:
            return self._commit(job, transaction, report.times)
        return self._fail(job, transaction, report.why[:LONGEST_REASON])

    def _commit(self, job: Job, transaction: Transaction, times: ResizeTimes) -> list[Event]:
        transaction.times = times
        if transaction.phase != "committed":
            self.transactions.enter(job, transaction, "committed")
        assert job.resize is not None
        if job.resize.expands:
            return [self._done(job, transaction)]
        return self.finished_contraction(job)

    def release_joining_group(self, job: Job, transaction: Transaction, why: str) -> None:
        """Tell new groups that wait to end by themselves; they are killed only if they do not.

        If one of several has ended, the others cannot, as they are one communicator.
        """
        if transaction.joiner is None or job.resize is None:
            return
        joining = job.resize.joining
        if len(joining) == 1 or not self.startup.ended(job, joining):
            peer, request = transaction.joiner
            self.send(peer, m.Abandon(id=request, why=why))
            for group in joining:
                self.startup.let_end(job, group)
        transaction.joiner = None

    def _fail(self, job: Job, transaction: Transaction, why: str) -> list[Event]:
        self.transactions.enter(job, transaction, "rolled back", why)
        self.release_joining_group(job, transaction, why)
        failed = ResizeFailed(at=self.clock(), job=job.id, serial=transaction.serial, why=why)
        return [failed]

    def _done(self, job: Job, transaction: Transaction) -> ResizeDone:
        times = msgspec.structs.replace(
            transaction.times or ResizeTimes(), start_s=transaction.start_s
        )
        return ResizeDone(at=self.clock(), job=job.id, serial=transaction.serial, times=times)

    # ------------------------------------------------------------------ from the node

    def phase_of(self, job: Job) -> str:
        """Return the phase of the resize of a job; "": it is not resized."""
        return "" if job.resize is None else self.transactions.of(job).phase

    def finished_contraction(self, job: Job) -> list[Event]:
        """End a contraction when it is committed and the processes of its groups are gone."""
        transaction = self.transactions.of(job)
        assert job.resize is not None
        gone = self.startup.ended(job, job.resize.leaving)
        if len(gone) < len(job.resize.leaving):
            return []
        if transaction.phase == "committed" or not any(status.has_failed for status in gone):
            return [self._done(job, transaction)]
        return []

    def joining_group_ended(self, job: Job, status: m.GroupStatus) -> list[Event]:
        """React to the end of a new group.

        Before the join the resize fails and the job continues. Within the join the other new groups
        are ended, and the job is released from accepting; if that does not help, it is ended and
        restarts from its restart point.
        """
        transaction = self.transactions.of(job)
        assert job.resize is not None
        why = _end_of_group(status)
        if transaction.in_background:
            return self._fail(job, transaction, why)
        if transaction.phase != "joining":
            return []
        now = time.monotonic()
        transaction.died = transaction.died or now
        living = self.startup.alive(job, job.resize.joining)
        if living:
            others = job.groups.keys() - living
            self.startup.kill_all(job.id, f"group {status.group} has ended", 0, but=others)
        if transaction.cancelled is None and transaction.port:
            if now - transaction.died > REPORT_S and not living:
                self._cancel(job, transaction, now)
            return []
        if now - (transaction.cancelled or transaction.died) <= CANCEL_S:
            return []
        if transaction.port or self.monitor.reports.has_restart_point(job.id):
            # The job hangs: within the join (then it restarts), or after a commit (then it fails).
            self.startup.kill_all(job.id, f"{why} within the join", grace_s=0)
            return []
        # The application has its instruction to join and has not begun; it will get another one.
        return self._fail(job, transaction, why)

    def _cancel(self, job: Job, transaction: Transaction, now: float) -> None:
        """Let a stand-in release the job from accepting."""
        transaction.cancelled = now
        cancel = m.CancelAccept(
            job=job.id,
            serial=transaction.serial,
            port=transaction.port,
            environment=self.startup.environment(job.id),
        )
        self.monitor.send_to(self.startup.node_of(job, next(iter(job.groups))), cancel)

    # ------------------------------------------------------------------ deadlines

    def on_tick(self) -> list[Event]:
        """Return the events of phases that have passed their deadlines; close what is over."""
        events: list[Event] = []
        for number in list(self.transactions.open):
            job = self.core.live.get(number)
            if job is None or job.resize is None:
                del self.transactions.open[number]
            else:
                transaction = self.transactions.of(job)
                events += self._overdue(job, transaction, time.monotonic() - transaction.since)
        return events

    def _overdue(self, job: Job, transaction: Transaction, waited_s: float) -> list[Event]:
        limits = self.deadlines
        if transaction.in_background and self._has_ended(job):
            return []  # the end of the job ends its expansion, too
        if transaction.phase == "starting" and waited_s > limits.start_s:
            assert job.resize is not None
            several = len(job.resize.joining) > 1
            what = "the groups were not together" if several else "no group came up"
            return self._fail(job, transaction, f"{what} within {limits.start_s:g} s")
        point = self.kept[job.id].point
        patience_s = max(limits.ready_s, 0.0 if point is None else 10 * point.iteration_s)
        if transaction.phase == "ready" and waited_s > patience_s:
            why = f"the job reached no resize point within {patience_s:g} s"
            return self._fail(job, transaction, why)
        if transaction.phase == "committed" and waited_s > limits.exit_s:
            assert job.resize is not None
            for group in job.resize.leaving:
                node = self.startup.node_of(job, group)
                self.startup.kill(node, job.id, group, "it left and did not end", grace_s=0)
        return []

    def _has_ended(self, job: Job) -> bool:
        """Whether all groups of a job have ended but those that are to join it."""
        assert job.resize is not None
        own = [group for group in job.groups if group not in job.resize.joining]
        return len(self.startup.ended(job, own)) == len(own)

    # ------------------------------------------------------------------ late jobs

    def locate_if_late(self, job: Job) -> None:
        """Let the agents of a late job report where its ranks are."""
        if self._lateness(job) is None:
            return
        startup, agents = self.startup, self.monitor.reports.agents
        for node in {node for group in job.groups for node in startup.nodes_of(job, group)}:
            if node in agents and job.id not in agents[node].hello.positions:
                self.monitor.send_to(node, m.LocateRanks(job=job.id))

    def late_text(self, job: Job) -> str:
        """Say how late a job is and where its ranks are; "" if it is not late."""
        late = self._lateness(job)
        if late is None:
            return ""
        since_s, usual_s = late
        text = f"no resize point for {format_time(since_s)}, an iteration took {usual_s:.3g} s"
        return "; ".join([text, *self._places(job)])

    def _lateness(self, job: Job) -> tuple[float, float] | None:
        """Time since the last resize point of a job that is late, and of an iteration, seconds."""
        if job.state not in (JobState.RUNNING, *RESIZING) or job.progress is None:
            return None
        reported_at, _, usual_s = job.progress
        since_s = self.clock() - max(reported_at, job.sizes[-1][0])  # the last start or resize
        return (since_s, usual_s) if since_s > max(LATE_ITERATIONS * usual_s, LATE_S) else None

    def _places(self, job: Job) -> list[str]:
        ranks: dict[tuple[int, int, bool], ProcSet] = {}
        idle_s: dict[tuple[int, int, bool], float] = {}
        for agent in self.monitor.reports.agents.values():
            for at in agent.hello.positions.get(job.id, ()):
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


def _joining_size(job: Job, resize: Resize) -> int:
    """Return the number of processes that join in an expansion."""
    return sum(len(job.groups[group]) for group in resize.joining)


def _end_of_group(status: m.GroupStatus) -> str:
    why = f"the new group ended (exit code {status.exit_code}:{status.signal})"
    return f"{why}: {status.why}" if status.why else why


def wrong_size(size: int, job: Job, group: int, started: int) -> str:
    """Describe a group that came up with another number of processes than it was started with."""
    return (
        f"group {group} of job {job.id} was started with {started} processes and "
        f"its communicator has {size}: mpi4py is bound to another MPI than the mpiexec in use; "
        "see 'reshape doctor'"
    )
