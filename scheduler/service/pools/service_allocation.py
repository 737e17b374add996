"""The Slurm allocation in which a service runs: changes of its time limit, and its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import msgspec

from scheduler.config.settings import NodeConfig
from scheduler.core.core import Core
from scheduler.model.events import Event
from scheduler.node.slurm import BatchState, BatchStatus, Slurm
from scheduler.service.components.system_monitor import SAME_END_S, SystemMonitor, given_back_at
from scheduler.service.pools.batch_jobs import BatchCalls
from scheduler.text.formats import format_moment

log = logging.getLogger(__name__)

#: Seconds between two look-ups of the allocation.
LOOK_UP_S = 10.0


class ServiceAllocation:
    """Keeps the time at which nodes are given back equal to the end that Slurm reports.

    Parameters
    ----------
    core, monitor : of the service.
    job : id of the Slurm job; empty: the service runs in none.
    make : makes the batch system.
    """

    def __init__(
        self, core: Core, monitor: SystemMonitor, job: str, make: Callable[[], Slurm]
    ) -> None:
        self._core, self._monitor, self._job, self._make = core, monitor, job, make
        self._calls: BatchCalls | None = None
        self._next_at = time.monotonic() + LOOK_UP_S  # the service has looked it up at its start
        self._is_asked = False
        self._status: BatchStatus | None = None  # the answer, until the tick has seen it

    def on_tick(self, now: float) -> list[Event]:
        """Look the allocation up when that is due; return the events of a changed end."""
        if self._calls is not None:
            self._calls.deliver()
        events = [] if self._status is None else self._see(self._status, now)
        self._status = None
        if not self._is_asked and time.monotonic() >= self._next_at and self._nodes():
            if self._calls is None:
                self._calls = BatchCalls(self._make)
            self._calls.call(lambda batch: batch.statuses([self._job]), self._looked_up)
            self._is_asked, self._next_at = True, time.monotonic() + LOOK_UP_S
        return events

    def _looked_up(self, statuses: Mapping[str, BatchStatus] | None, _why: str) -> None:
        self._is_asked = False
        self._status = None if statuses is None else statuses[self._job]

    def has_ended(self, now: float) -> bool:
        """Whether the allocation has ended, and the service has no other nodes."""
        nodes = self._monitor.configured.values()
        ends = [given_back_at(node, now) for node in nodes if node.launcher == "slurm"]
        is_only = bool(self._job) and 0 < len(ends) == len(nodes)
        return is_only and all(end is not None and end <= now for end in ends)

    def close(self) -> None:
        """Make no further calls."""
        if self._calls is not None:
            self._calls.close(0.0)

    def _nodes(self) -> list[str]:
        """Nodes of the allocation that the service has."""
        monitor = self._monitor
        return [n for n in monitor.nodes if self._job and monitor.launcher_of(n) == "slurm"]

    def _see(self, status: BatchStatus, now: float) -> list[Event]:
        """Note the end of the allocation, and return the events of its nodes if it has changed."""
        if status.state is BatchState.ENDED:
            # The nodes expire at the next tick; they have no agents any more.
            log.warning("Slurm allocation %s has ended: %s", self._job, status.word)
            self._monitor.put_nodes(self._nodes_until(time.time()))
            return []
        if status.state is not BatchState.RUNNING:
            return []
        changed = [
            node
            for node in self._nodes_until(status.end)
            if not _is_same(self._monitor.configured[node.name].until, status.end)
        ]
        if not changed:
            return []
        end = "it has no end" if status.end is None else f"it ends at {format_moment(status.end)}"
        log.info("the time limit of Slurm allocation %s has changed: %s", self._job, end)
        self._monitor.put_nodes(changed)
        nodes = self._core.machine.nodes
        up = [node.name for node in changed if node.name in nodes and nodes[node.name].up]
        return [self._monitor.joined_event(name, now) for name in up]

    def _nodes_until(self, end: float | None) -> list[NodeConfig]:
        """Return the nodes of the allocation with another end of it."""
        configured = self._monitor.configured
        return [msgspec.structs.replace(configured[name], until=end) for name in self._nodes()]


def _is_same(end: float | None, other: float | None) -> bool:
    if end is None or other is None:
        return end is other
    return abs(end - other) <= SAME_END_S
