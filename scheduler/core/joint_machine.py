"""The machines of several partitions together, as a driver of the core sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scheduler.model.machine import Machine, Node


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
            for name, (there, free) in part.resources.items():
                before = amounts.get(name, (0, 0))
                amounts[name] = before[0] + there, before[1] + free
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
