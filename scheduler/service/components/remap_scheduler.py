"""The remap scheduler: a job at its resize point, and the resize that may follow (PRIO 2).

The core decides; this part carries the decision out as a transaction with the application:

    expand      starting  the new group comes up while the job computes
                ready     it waits for the job's next resize point
                joining   the job accepts it, and the data moves
                committed
    contract    leaving   the data moves off the groups that leave
                committed their processes end

Answers are a function of the state: an application that asks again is told again. A phase has a
deadline; what ends badly before the join costs the job nothing (`ResizeFailed`), what ends badly
within it ends the job's processes, and the job restarts from its restart point
(:mod:`scheduler.service.components.job_ends`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from reshape.wire import messages as m
from scheduler.config.settings import Deadlines
from scheduler.model.events import Event, JobStarted, ResizeDone, ResizeFailed, ResizePoint
from scheduler.model.events import ResizeTimes as Times
from scheduler.model.job import RESIZING, Job, JobState
from scheduler.service.components.job_startup import JobStartup
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.service.record.journal import Journal
from scheduler.sites.site import Site

log = logging.getLogger(__name__)

#: A newcomer died and a "cancel" was said in its place: how long the job may take to report it.
CANCEL_S = 6.0
#: A newcomer that was turned away ends, too: give the job a moment to say so.
REPORT_S = 0.5


@dataclass
class Transaction:
    """The carrying out of one resize. Times are monotonic seconds."""

    serial: int
    phase: str
    since: float
    begun: float
    joiner: bytes | None = None
    joiner_request: int = 0
    port: str = ""
    start_s: float = 0.0
    registered_bytes: int = 0
    times: m.PhaseTimes | None = None
    died: float | None = None
    cancelled: float | None = None


@dataclass
class Progress:
    """What the application said last at a resize point."""

    iteration: int = 0
    iteration_s: float = 0.0


@dataclass
class RemapScheduler:
    """Answers applications and drives their resizes.

    Parameters
    ----------
    send : sends a message to a peer by its socket identity.
    clock : the service's clock, Unix seconds that never go back.
    """

    core: Site
    journal: Journal
    monitor: SystemMonitor
    startup: JobStartup
    deadlines: Deadlines
    send: Callable[[bytes, m.Message], None]
    clock: Callable[[], float]
    open: dict[int, Transaction] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)

    # ------------------------------------------------------------------ transactions

    def transaction(self, job: Job) -> Transaction | None:
        """Give the transaction of the resize under way, opening it when the core has begun one."""
        resize = job.resize
        if resize is None or job.state not in RESIZING:
            if self.open.pop(job.id, None) is not None:
                self.monitor.tell_all(m.WatchJoin(job=job.id, serial=0, deadline_s=0))
            return None
        found = self.open.get(job.id)
        if found is None or found.serial != resize.serial:
            now = time.monotonic()
            phase = "starting" if resize.expands else "leaving"
            found = self.open[job.id] = Transaction(resize.serial, phase, now, now)
            done = [p.phase for p in self.journal.phases_of(job.id) if p.serial == resize.serial]
            if not done:
                self.journal.add_phase(job.id, resize.serial, self.clock(), phase)
            elif done[-1] in ("joining", "committed"):
                found.phase = done[-1]  # a service that came back takes up where it stood
        return found

    def _enter(self, job: Job, transaction: Transaction, phase: str, detail: str = "") -> None:
        transaction.phase, transaction.since = phase, time.monotonic()
        self.journal.add_phase(job.id, transaction.serial, self.clock(), phase, detail)
        log.info("resize job=%d serial=%d %s", job.id, transaction.serial, phase)

    # ------------------------------------------------------------------ from the application

    def on_resize_point(self, job: Job, message: m.AtResizePoint) -> list[Event]:
        """Report an iteration to the core; a commit whose report got lost is noticed here."""
        now = self.clock()
        self.progress[job.id] = Progress(message.iteration, message.iteration_s)
        events: list[Event] = []
        if job.state is JobState.STARTING:
            events.append(JobStarted(at=now, job=job.id))
        transaction = self.transaction(job)
        if transaction is not None:
            transaction.registered_bytes = message.registered_bytes
            if message.epoch >= transaction.serial and transaction.phase != "committed":
                events += self._commit(job, transaction, m.PhaseTimes())
        events.append(
            ResizePoint(
                at=now,
                job=job.id,
                iteration=message.iteration,
                iteration_s=message.iteration_s,
                topology=message.topology,
                data_bytes=message.registered_bytes,
            )
        )
        return events

    def instruction(self, job: Job, message: m.AtResizePoint) -> m.Message:
        """Say what the application shall do now, after the core has decided."""
        transaction = self.transaction(job)
        resize = job.resize
        if transaction is None or resize is None or message.epoch >= resize.serial:
            return m.Proceed(id=message.id)
        transaction.registered_bytes = message.registered_bytes
        if resize.expands:
            assert resize.group is not None
            status = self.startup.status(job, resize.group)
            if transaction.phase == "starting" or status is None or not status.alive:
                return m.Proceed(id=message.id)
            if transaction.phase == "ready":
                self._enter(job, transaction, "joining")
            transaction.port = ""  # the application opens a new one at every attempt
            self._watch(job, transaction)
            size = len(job.groups[resize.group])
            return m.Join(id=message.id, serial=resize.serial, group=resize.group, size=size)
        if transaction.phase == "committed":
            return m.Proceed(id=message.id)
        self._watch(job, transaction)
        return m.Leave(id=message.id, serial=resize.serial, groups=list(resize.leaving))

    def _watch(self, job: Job, transaction: Transaction) -> None:
        limits = self.deadlines
        allowed = limits.join_s + transaction.registered_bytes / limits.move_bytes_per_s
        watch = m.WatchJoin(job=job.id, serial=transaction.serial, deadline_s=allowed)
        for node in {self.startup.node_of(job, group) for group in job.groups}:
            self.monitor.tell(node, watch)

    def on_group_ready(self, job: Job, identity: bytes, message: m.GroupReady) -> m.Message | None:
        """Note that a new group waits; None as long as there is no port for it."""
        transaction, resize = self.transaction(job), job.resize
        if transaction is None or resize is None or resize.group != message.group:
            return m.Abandon(id=message.id, why="the job does not need this group any more")
        if message.size != len(job.groups[message.group]):
            return m.Abandon(id=message.id, why=wrong_size(message.size, job, message.group))
        transaction.joiner, transaction.joiner_request = identity, message.id
        if transaction.phase == "starting":
            transaction.start_s = time.monotonic() - transaction.begun
            self._enter(job, transaction, "ready")
        if transaction.phase == "joining" and transaction.port and transaction.cancelled is None:
            return m.Connect(id=message.id, port=transaction.port)
        return None

    def on_port(self, job: Job, message: m.JoinPort) -> None:
        """Hand the job's port to the newcomer that waits for it, if it is still alive."""
        transaction, resize = self.transaction(job), job.resize
        if transaction is None or resize is None or resize.serial != message.serial:
            # The resize was given up meanwhile; the application must not wait for a newcomer.
            self._say_cancel(job, message.serial, message.port)
            return
        transaction.port = message.port
        assert resize.group is not None
        status = self.startup.status(job, resize.group)
        if status is None or not status.alive:
            self._cancel(job, transaction)
        elif transaction.joiner is not None:
            connect = m.Connect(id=transaction.joiner_request, port=message.port)
            self.send(transaction.joiner, connect)

    def on_report(self, job: Job, report: m.ResizeReport) -> list[Event]:
        """Take the application's word that a resize is committed or rolled back."""
        transaction = self.transaction(job)
        if transaction is None or transaction.serial != report.serial:
            return []
        if report.ok:
            return self._commit(job, transaction, report.times)
        return self._fail(job, transaction, report.why)

    def _commit(self, job: Job, transaction: Transaction, times: m.PhaseTimes) -> list[Event]:
        transaction.times = times
        if transaction.phase != "committed":
            self._enter(job, transaction, "committed")
        assert job.resize is not None
        return [self.done(job)] if job.resize.expands else self.left(job)

    def dismiss(self, job: Job, transaction: Transaction, why: str) -> None:
        """Tell a newcomer that waits to end by itself; it is killed only if it does not."""
        if transaction.joiner is not None and job.resize is not None:
            self.send(transaction.joiner, m.Abandon(id=transaction.joiner_request, why=why))
            assert job.resize.group is not None
            self.startup.let_end(job, job.resize.group)
            transaction.joiner = None

    def _fail(self, job: Job, transaction: Transaction, why: str) -> list[Event]:
        self._enter(job, transaction, "rolled back", why)
        self.dismiss(job, transaction, why)
        failed = ResizeFailed(at=self.clock(), job=job.id, serial=transaction.serial, why=why)
        return [failed]

    def done(self, job: Job) -> ResizeDone:
        """Make the event that ends a resize well."""
        transaction = self.open[job.id]
        times = transaction.times or m.PhaseTimes()
        return ResizeDone(
            at=self.clock(),
            job=job.id,
            serial=transaction.serial,
            times=Times(
                start_s=transaction.start_s,
                join_s=times.join_s,
                plan_s=times.plan_s,
                move_s=times.move_s,
                resume_s=times.resume_s,
                moved_bytes=times.moved_bytes,
            ),
        )

    # ------------------------------------------------------------------ from the node

    def left(self, job: Job) -> list[Event]:
        """End a contraction when it is committed and the processes of its groups are gone."""
        assert job.resize is not None
        statuses = [self.startup.status(job, group) for group in job.resize.leaving]
        gone = [status for status in statuses if status is not None and not status.alive]
        if len(gone) < len(statuses):
            return []
        committed = self.open[job.id].phase == "committed"
        if committed or all(s.exit_code == 0 and s.signal == 0 for s in gone):
            return [self.done(job)]
        return []

    def joiner_gone(self, job: Job, status: m.GroupStatus) -> list[Event]:
        """React to the death of a newcomer: nothing lost before the join, else cancel or kill."""
        transaction = self.transaction(job)
        assert transaction is not None
        why = f"the new group ended (exit code {status.exit_code}:{status.signal})"
        why = f"{why}: {status.why}" if status.why else why
        if transaction.phase in ("starting", "ready"):
            return self._fail(job, transaction, why)
        if transaction.phase != "joining":
            return []
        now = time.monotonic()
        transaction.died = transaction.died or now
        if not transaction.port:
            # The application was told to join and is not there yet; let it not come in vain.
            return self._fail(job, transaction, why) if now - transaction.died > CANCEL_S else []
        if transaction.cancelled is None:
            if now - transaction.died > REPORT_S:
                self._cancel(job, transaction)
        elif now - transaction.cancelled > CANCEL_S:
            # It hangs: within the join (then it restarts), or just after a commit (then it fails).
            self.startup.kill_all(job, f"{why} within the join")
        return []

    def _cancel(self, job: Job, transaction: Transaction) -> None:
        transaction.cancelled = time.monotonic()
        self._say_cancel(job, transaction.serial, transaction.port)

    def _say_cancel(self, job: Job, serial: int, port: str) -> None:
        first = next(iter(job.groups), None)
        if first is not None:
            environment = self.startup.environment(job.id)
            cancel = m.CancelAccept(job=job.id, serial=serial, port=port, environment=environment)
            self.monitor.tell(self.startup.node_of(job, first), cancel)

    # ------------------------------------------------------------------ deadlines

    def on_tick(self) -> list[Event]:
        """Find phases that take too long."""
        events: list[Event] = []
        for number in list(self.open):
            job = self.core.jobs.get(number)
            transaction = self.transaction(job) if job is not None else None
            if job is None or transaction is None or job.resize is None:
                self.open.pop(number, None)
                continue
            events += self._overdue(job, transaction, time.monotonic() - transaction.since)
        return events

    def _overdue(self, job: Job, transaction: Transaction, waited: float) -> list[Event]:
        limits = self.deadlines
        if transaction.phase == "starting" and waited > limits.start_s:
            return self._fail(job, transaction, f"no group came up within {limits.start_s:g} s")
        patience = max(limits.ready_s, 10 * self.progress.get(job.id, Progress()).iteration_s)
        if transaction.phase == "ready" and waited > patience:
            why = f"the job reached no resize point within {patience:g} s"
            return self._fail(job, transaction, why)
        if transaction.phase == "committed" and waited > limits.exit_s:
            assert job.resize is not None
            for group in job.resize.leaving:
                node = self.startup.node_of(job, group)
                self.startup.kill(node, job.id, group, "it left and did not end")
        return []


def wrong_size(size: int, job: Job, group: int) -> str:
    """Say that a group came up with another number of processes than it was started with."""
    return (
        f"group {group} of job {job.id} was started with {len(job.groups[group])} processes and "
        f"its communicator has {size}: mpi4py is bound to another MPI than the mpiexec in use; "
        "see 'reshape doctor'"
    )
