"""Several partitions as one core: which one an event concerns, and their machines together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from scheduler.model.events import (
    ClockSet,
    DepthChanged,
    DrainChanged,
    Event,
    JobEvent,
    JobSubmitted,
    JobUpdated,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    ReservationCancelled,
    ReservationRequested,
    SilenceChanged,
    Wakeup,
)
from scheduler.model.job import Job
from scheduler.model.machine import Machine, Node
from scheduler.partition.partition import Partition


class Router:
    """Leads events to partitions.

    Jobs and nodes name their partitions. A name that no partition has stands for the first one, so
    that a scenario without partitions can be tried with the events of one that has some.

    Parameters
    ----------
    partitions : the first one takes the jobs and nodes that name none.
    jobs : job number -> job, of all partitions.
    """

    def __init__(self, partitions: Sequence[Partition], jobs: dict[int, Job]) -> None:
        self._partitions, self._jobs, self._first = partitions, jobs, partitions[0]
        self._by_name = {partition.name: partition for partition in partitions}

    def named(self, name: str) -> Partition:
        """Partition of a name."""
        return self._by_name.get(name, self._first)

    def with_reservation(self, name: str) -> Partition | None:
        """Partition with an advance reservation of this name; None if there is none."""
        for partition in self._partitions:
            if partition.state.exclusions.get(name) is not None:
                return partition
        return None

    def of_job(self, event: JobEvent) -> Partition:
        """Partition that an event of a job concerns."""
        job = self._jobs.get(event.job)
        if job is None and isinstance(event, JobUpdated) and event.spec.task_of is not None:
            job = self._jobs.get(event.spec.task_of.array)  # of a task that is no job yet
        if job is not None:
            return self.named(job.partition)
        return self.named(event.spec.partition if isinstance(event, JobSubmitted) else "")

    def parts(self, event: Event) -> list[tuple[Partition, Event]]:
        """Partitions that an event concerns, each with its part of the event."""
        partitions: Sequence[Partition]
        if isinstance(event, JobEvent):
            partitions = [self.of_job(event)]
        elif isinstance(event, NodeJoined):
            return self._parts_of_node(event)
        elif isinstance(event, NodeLost | NodeRemoved | DrainChanged | SilenceChanged):
            partitions = [part for part in self._partitions if event.node in part.machine.nodes]
        elif isinstance(event, ReservationRequested | ReservationCancelled):
            partitions = [self._to_reserve(event)]
        elif isinstance(event, Wakeup):
            partitions = [part for part in self._partitions if part.alarms.due_from <= part.now]
        else:
            assert isinstance(event, ClockSet | DepthChanged)
            partitions = self._partitions
        return [(partition, event) for partition in partitions]

    def _to_reserve(self, event: ReservationRequested | ReservationCancelled) -> Partition:
        """Partition that has an advance reservation, or is to get it."""
        owner = self.with_reservation(event.name)
        if owner is not None or isinstance(event, ReservationCancelled):
            return owner or self._first
        if event.nodes and not event.partition:
            for partition in self._partitions:
                if all(node in partition.machine.nodes for node in event.nodes):
                    return partition
        return self.named(event.partition)

    def _parts_of_node(self, event: NodeJoined) -> list[tuple[Partition, Event]]:
        """Divide a node that joins; a partition to which it belonged before loses it."""
        divided = divided_node(event, list(self._by_name))
        parts: list[tuple[Partition, Event]] = []
        for partition in self._partitions:
            node = partition.machine.nodes.get(event.node)
            if partition.name in divided:
                parts.append((partition, divided[partition.name]))
            elif node is not None and not node.removed:
                parts.append((partition, NodeLost(event.at, event.node)))
                parts.append((partition, NodeRemoved(event.at, event.node)))
        return parts


def divided_node(event: NodeJoined, names: Sequence[str]) -> dict[str, NodeJoined]:
    """Divide a node that joins among partitions.

    Parameters
    ----------
    names : of the partitions; the first one has the processors that are no other's share.

    Returns
    -------
    name of each partition with processors of the node -> event by which they join it
    """
    first, *others = names
    counts = {name: event.shares[name] for name in others if event.shares.get(name)}
    parts: dict[str, NodeJoined] = {}
    left, resources = event.processors, dict(event.resources)
    for name, count in counts.items():
        amounts = event.resources.items()
        share = {resource: amount * count // event.processors for resource, amount in amounts}
        parts[name] = _part(event, count, share)
        left -= count
        resources = {resource: amount - share[resource] for resource, amount in resources.items()}
    return ({first: _part(event, left, resources)} if left > 0 else {}) | parts


def _part(event: NodeJoined, processors: int, resources: dict[str, int]) -> NodeJoined:
    return msgspec.structs.replace(event, processors=processors, shares={}, resources=resources)


class JointMachine:
    """Nodes and processors of several machines that share a numbering, for reading."""

    def __init__(self, parts: Sequence[Machine]) -> None:
        self._parts = parts
        self.by_node = parts[0].numbering.by_node

    @property
    def nodes(self) -> dict[str, Node]:
        """Nodes by name, each with its processors and resources in all partitions."""
        parts: dict[str, list[Node]] = {}
        for machine in self._parts:
            for name, node in machine.nodes.items():
                parts.setdefault(name, []).append(node)
        return {name: _joint(nodes) for name, nodes in parts.items()}

    @property
    def free_count(self) -> int:
        """Number of processors that no job holds."""
        return sum(part.free_count for part in self._parts)

    @property
    def installed(self) -> int:
        """Number of processors of all known nodes, up or not."""
        return sum(part.installed for part in self._parts)

    @property
    def processors(self) -> int:
        """Number of processors of the nodes that are up."""
        return sum(part.processors for part in self._parts)

    @property
    def resources(self) -> dict[str, tuple[int, int]]:
        """Further resources of the nodes that are up, by name: (amount, free amount)."""
        amounts: dict[str, tuple[int, int]] = {}
        for part in self._parts:
            for name, (total, free) in part.resources.items():
                before = amounts.get(name, (0, 0))
                amounts[name] = before[0] + total, before[1] + free
        return amounts


def _joint(parts: list[Node]) -> Node:
    """Node that consists of its parts in several partitions.

    A part that was removed or is down counts only if no other part is there or up.
    """
    if len(parts) == 1:
        return parts[0]
    parts = [node for node in parts if not node.removed] or parts
    up = [node for node in parts if node.up] or parts
    numbers = parts[0].numbers
    for node in parts[1:]:
        numbers |= node.numbers
    return Node(
        parts[0].name,
        numbers,
        sum(node.count for node in up),
        any(node.up for node in parts),
        sum((Counter(node.resources) for node in up), Counter()),
        any(node.drains for node in parts),
        next((node.why for node in parts if node.why), ""),
        parts[0].removed,
        parts[0].features,
        next((node.drained_by for node in parts if node.drained_by), ""),
    )
