"""The components of a service and how they are connected; their names are those of PRIO, section 2.

The performance profiler of PRIO is part of the decision core.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from reshape.wire.identity import slurm_job
from scheduler.config.settings import ServeConfig
from scheduler.core.core import Core
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


@dataclass(frozen=True)
class Components:
    """What a service consists of.

    Attributes
    ----------
    send : queues a message for a peer, named by its socket identity. Messages leave at the end of
        the turn, after the journal is written.
    """

    config: ServeConfig
    directory: ServiceDirectory
    clock: Clock
    send: Callable[[bytes, m.Message], None]
    journal: Journal
    core: Core
    monitor: SystemMonitor
    startup: JobStartup
    remap: RemapScheduler
    ends: JobEnds
    applications: ApplicationScheduler
    changes: JobChanges
    steps: StepRequests
    nodes: NodeStates
    reservations: AdvanceReservations
    pools: LivePools


def assemble(
    directory: ServiceDirectory,
    config: ServeConfig,
    send: Callable[[bytes, m.Message], None],
    *,
    accept_loss: bool = False,
) -> Components:
    """Create all components, with the core as the journal of ``directory`` describes it.

    Parameters
    ----------
    accept_loss : go on with a journal of which acknowledged records are missing.

    Raises
    ------
    ReshapeError : the journal cannot be used (`scheduler.journal.opening.open_journal`), or
        does not go with the configuration (`scheduler.journal.recovery.recover`).
    """
    journal = Journal(directory.journal, accept_loss=accept_loss)
    try:
        with refusing_damage(directory.journal):
            return _assemble(journal, directory, config, send, accept_loss=accept_loss)
    except BaseException:
        journal.discard()
        journal.close()
        raise


def _assemble(
    journal: Journal,
    directory: ServiceDirectory,
    config: ServeConfig,
    send: Callable[[bytes, m.Message], None],
    *,
    accept_loss: bool,
) -> Components:
    errors = policy_errors()
    core, launches = recover(journal, config, errors)
    if journal.unreadable:
        go_on_without(journal, core, launches, accept_loss=accept_loss)
    clock = Clock(noted_anchor(journal), core.now)
    journal.note_clock_anchor(clock.anchor)
    monitor = SystemMonitor(directory, config, send, journal)
    parts = KeptParts(journal, {job: each.submission for job, each in launches.items()})
    kept: KeptJobs = defaultdict(KeptJob)
    startup = JobStartup(
        core, monitor, directory, launches, parts, kept, config.binding, config.kill_wait_s
    )
    transactions = Transactions(journal, send, clock, kept)
    remap = RemapScheduler(
        core, transactions, monitor, startup, config.deadlines, send, clock, kept
    )
    ends = JobEnds(core, monitor, startup, remap, clock, journal.checkpoint_of)
    admission = Admission(config, errors, (directory.path, directory.memory))
    applications = ApplicationScheduler(core, journal, remap, launches, clock, admission, parts)
    nodes = NodeStates(core, monitor, slurm_job())
    slurm = Slurm(interval_s=COMMANDS_S)
    pools = LivePools(core, monitor, nodes, journal, clock, admission, directory, slurm)
    return Components(
        config,
        directory,
        clock,
        send,
        journal,
        core,
        monitor,
        startup,
        remap,
        ends,
        applications,
        JobChanges(core, applications, clock),
        StepRequests(core, journal, applications, admission, clock),
        nodes,
        AdvanceReservations(core, clock),
        pools,
    )
