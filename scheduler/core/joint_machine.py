"""The machines of two partitions together, as a driver of the core sees them."""

from __future__ import annotations

from collections import Counter

from scheduler.model.machine import Machine, Node


class JointMachine:
    """Nodes and processors of the principal and the redirection group together, for reading."""

    def __init__(self, principal: Machine, redirection: Machine) -> None:
        self._parts = principal, redirection
        self.by_node = principal.numbering.by_node

    @property
    def nodes(self) -> dict[str, Node]:
        """Nodes by name, each with its processors and resources in both groups."""
        principal, redirection = self._parts
        nodes = dict(principal.nodes)
        for name, part in redirection.nodes.items():
            other = nodes.get(name, Node(name))
            parts = [node for node in (part, other) if node.up] or [part, other]
            there = sum((Counter(node.resources) for node in parts), Counter())
            nodes[name] = Node(
                name,
                part.numbers | other.numbers,
                sum(node.count for node in parts),
                part.up or other.up,
                there,
                part.drains or other.drains,
                part.why or other.why,
                part.removed or other.removed,
            )
        return nodes

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
        found: dict[str, tuple[int, int]] = {}
        for part in self._parts:
            for name, (there, free) in part.resources.items():
                amounts = found.get(name, (0, 0))
                found[name] = amounts[0] + there, amounts[1] + free
        return found
