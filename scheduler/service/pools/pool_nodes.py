"""The nodes of pools in a service: who serves them, and the events by which they come and go."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import isfinite

from scheduler.config.settings import NodeConfig
from scheduler.model.events import DrainChanged, Event, NodeLost
from scheduler.partition.partition import Partition
from scheduler.pools.pool import PoolAllocation
from scheduler.protocol import messages as m
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.service.pools.live_pool import LivePool


class PoolNodes:
    """Nodes of the allocations of all pools.

    Parameters
    ----------
    partition : the partition that the nodes join.
    monitor, clock : of the service.
    """

    def __init__(
        self, partition: Partition, monitor: SystemMonitor, clock: Callable[[], float]
    ) -> None:
        self._partition, self._monitor, self._clock = partition, monitor, clock

    def serve(self, live: LivePool, allocation: PoolAllocation) -> None:
        """Let the agents of an allocation report; their nodes expire when it ends."""
        processors, now = live.pool.options.processors, self._clock()
        ends_at = live.least_end(allocation)
        # The batch system may have set an end that has passed; an estimated one is not known then.
        is_known = isfinite(allocation.ends_at) or (isfinite(ends_at) and ends_at > now)
        until = ends_at + time.time() - now if is_known else None
        self._monitor.put_nodes(
            NodeConfig(name=name, processors=processors, launcher="none", until=until)
            for name in allocation.nodes
        )

    def expire_later(self, allocation: PoolAllocation, now: float) -> list[Event]:
        """Return the events by which the core learns later when nodes that are up expire."""
        return [
            self._monitor.joined_event(name, now) for name in allocation.nodes if self._is_up(name)
        ]

    def reporting(self, allocation: PoolAllocation) -> int:
        """Count the nodes of an allocation whose agents report."""
        return sum(name in self._monitor.reports.agents for name in allocation.nodes)

    def present(self, allocation: PoolAllocation) -> int:
        """Count the nodes of an allocation that are not lost."""
        return sum(
            name in self._monitor.reports.agents or self._is_up(name) for name in allocation.nodes
        )

    def idle(self, allocation: PoolAllocation) -> int:
        """Count the processors of an allocation that a job may get now."""
        machine = self._partition.machine
        free = machine.by_node(machine.free)
        return sum(len(free.get(name, ())) for name in allocation.nodes)

    def end_agents(self, allocation: PoolAllocation) -> None:
        """Tell the agents of an allocation to end; its batch job ends with them."""
        for name in allocation.nodes:
            self._monitor.send_to(name, m.AgentStop())

    def drain(self, allocation: PoolAllocation, now: float, pool: str, why: str) -> list[Event]:
        """Return the events by which the nodes of an allocation of a pool drain."""
        nodes, by = self._partition.machine.nodes, f"pool {pool}"
        return [
            DrainChanged(now, name, True, f"{by} {why}", by)
            for name in allocation.nodes
            if name in nodes and not nodes[name].drains
        ]

    def withdraw(self, allocation: PoolAllocation, now: float) -> list[Event]:
        """Stop serving the nodes of an allocation that has ended; others may get them."""
        self._monitor.remove_nodes(allocation.nodes)
        nodes = self._partition.machine.nodes
        there = [name for name in allocation.nodes if name in nodes]
        events: list[Event] = [NodeLost(now, name) for name in there if nodes[name].up]
        events += [DrainChanged(now, name, False) for name in there if nodes[name].is_left]
        return events

    def _is_up(self, name: str) -> bool:
        node = self._partition.machine.nodes.get(name)
        return node is not None and node.up
