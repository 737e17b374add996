"""The parts of a service, made for one another; they carry the names of PRIO, section 2.

The performance profiler sits in the decision core.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from reshape.wire import messages as m
from scheduler.config.settings import ServeConfig, reserved
from scheduler.node.directory import ServiceDirectory
from scheduler.service.components.admission import Admission
from scheduler.service.components.application_scheduler import ApplicationScheduler
from scheduler.service.components.job_ends import JobEnds
from scheduler.service.components.job_startup import JobStartup
from scheduler.service.components.remap_scheduler import RemapScheduler
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.service.record.journal import Journal
from scheduler.service.record.policy_errors import PolicyErrors
from scheduler.service.recovery import recover
from scheduler.sites.two_groups import TwoGroupSite


class Clock:
    """Unix seconds that never go back."""

    def __init__(self) -> None:
        self._last = time.time()

    def __call__(self) -> float:
        """Give the time now, or the latest one that was ever given."""
        self._last = max(self._last, time.time())
        return self._last

    def reach(self, at: float) -> None:
        """Give no time before ``at`` from now on."""
        self._last = max(self._last, at)


@dataclass(frozen=True)
class Parts:
    """What a service consists of.

    Attributes
    ----------
    send : of a peer's identity and a message for it: sends at the end of the turn, when all that
        the message may follow from is in the journal.
    """

    config: ServeConfig
    directory: ServiceDirectory
    clock: Clock
    send: Callable[[bytes, m.Message], None]
    journal: Journal
    core: TwoGroupSite
    monitor: SystemMonitor
    startup: JobStartup
    remap: RemapScheduler
    ends: JobEnds
    applications: ApplicationScheduler
    policy_errors: PolicyErrors


def assemble(
    directory: ServiceDirectory, config: ServeConfig, send: Callable[[bytes, m.Message], None]
) -> Parts:
    """Make all parts, with the core as the journal of ``directory`` tells it.

    Raises
    ------
    ReshapeError : see `scheduler.service.recovery.recover`.
    """
    clock = Clock()
    journal = Journal(directory.journal)
    errors = PolicyErrors()
    core, launches = recover(journal, config, errors.report)
    clock.reach(core.now)
    monitor = SystemMonitor(directory, config.nodes, send, reserved(config))
    startup = JobStartup(core, monitor, directory, launches)
    remap = RemapScheduler(core, journal, monitor, startup, config.deadlines, send, clock)
    ends = JobEnds(core, monitor, startup, remap, clock)
    applications = ApplicationScheduler(
        core, journal, startup, remap, launches, clock, Admission(config, errors.report)
    )
    return Parts(
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
        errors,
    )
