"""The components of a service and how they are connected; their names are those of PRIO, section 2.

The performance profiler of PRIO is part of the decision core.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from reshape.wire.identity import slurm_job
from scheduler.config.settings import ServeConfig
from scheduler.journal.clock import Clock, noted_anchor
from scheduler.journal.journal import Journal
from scheduler.journal.kept_parts import KeptParts
from scheduler.journal.opening import refusing_damage
from scheduler.journal.recovery import go_on_without, policy_errors, recover
from scheduler.node.directory import ServiceDirectory
from scheduler.node.slurm import Slurm
from scheduler.protocol import messages as m
from scheduler.service.components.admission import Admission
from scheduler.service.components.advance_reservations import AdvanceReservations
from scheduler.service.components.application_scheduler import ApplicationScheduler
from scheduler.service.components.job_changes import JobChanges
from scheduler.service.components.job_ends import JobEnds
from scheduler.service.components.job_startup import JobStartup
from scheduler.service.components.node_states import NodeStates
from scheduler.service.components.remap_scheduler import RemapScheduler
from scheduler.service.components.step_requests import StepRequests
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.service.components.transactions import KeptJob, KeptJobs, Transactions
from scheduler.service.pools.live_pools import LivePools

#: Least time between two commands of Slurm, seconds.
COMMANDS_S = 1.0


class Components:
    """What a service consists of, with the core as the journal of ``directory`` describes it.

    Parameters
    ----------
    send : queues a message for a peer, named by its socket identity. Messages leave at the end of
        the turn, after the journal is written.
    accept_loss : go on with a journal of which acknowledged records are missing.

    Raises
    ------
    ReshapeError : the journal cannot be used (`scheduler.journal.opening.open_journal`), or
        does not go with the configuration (`scheduler.journal.recovery.recover`).
    """

    def __init__(
        self,
        directory: ServiceDirectory,
        config: ServeConfig,
        send: Callable[[bytes, m.Message], None],
        *,
        accept_loss: bool = False,
    ) -> None:
        self.directory, self.config, self.send = directory, config, send
        self.journal = Journal(directory.journal, accept_loss=accept_loss)
        try:
            with refusing_damage(directory.journal):
                self._assemble(accept_loss=accept_loss)
        except BaseException:
            self.journal.discard()
            self.journal.close()
            raise

    def _assemble(self, *, accept_loss: bool) -> None:
        directory, config, journal, send = self.directory, self.config, self.journal, self.send
        errors = policy_errors()
        core, launches = recover(journal, config, errors)
        self.core = core
        if journal.unreadable:
            go_on_without(journal, core, launches, accept_loss=accept_loss)
        self.clock = clock = Clock(noted_anchor(journal), core.now)
        journal.note_clock_anchor(clock.anchor)
        self.monitor = monitor = SystemMonitor(directory, config, send, journal)
        parts = KeptParts(journal, {job: each.submission for job, each in launches.items()})
        kept: KeptJobs = defaultdict(KeptJob)
        self.startup = startup = JobStartup(
            core, monitor, directory, launches, parts, kept, config.binding, config.kill_wait_s
        )
        transactions = Transactions(journal, send, clock, kept)
        self.remap = remap = RemapScheduler(
            core, transactions, monitor, startup, config.deadlines, send, clock, kept
        )
        self.ends = JobEnds(core, monitor, startup, remap, clock, journal.checkpoint_of)
        admission = Admission(config, errors, (directory.path, directory.memory))
        self.applications = ApplicationScheduler(
            core, journal, remap, launches, clock, admission, parts
        )
        self.changes = JobChanges(core, self.applications, clock)
        self.steps = StepRequests(core, journal, self.applications, admission, clock)
        self.nodes = NodeStates(core, monitor, slurm_job())
        self.reservations = AdvanceReservations(core, clock)
        slurm = Slurm(interval_s=COMMANDS_S)
        self.pools = LivePools(
            core, monitor, self.nodes, journal, clock, admission, directory, slurm
        )
