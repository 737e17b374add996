"""Machine files: nodes with their processors and further resources, and the network between them.

docs/machines.md has examples. The node at leaf i has the processors from number
``i * processors_per_node`` on. In a flat machine the nodes are numbered consecutively from 0. The
simulator and the service read the same format.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from reshape.errors import nearest
from scheduler.config.partitions import PartitionConfig, PartitionLimits, shares, with_partitions
from scheduler.config.values import Amount, Count, Names, read_named
from scheduler.model.machine import Machine, Numbering
from scheduler.model.network import Mesh, Network, Tree
from scheduler.model.procset import ProcSet
from scheduler.model.resources import checked
from scheduler.model.sharing import PenaltyRule, SharedCapacity
from scheduler.policies.scenario import Scenario
from scheduler.text.formats import counted
from scheduler.text.located import Located

Launcher: TypeAlias = Literal["local", "ssh", "slurm", "none"]


class NetworkFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The network of a machine file.

    Parameters
    ----------
    topology : "tree", a k-ary n-tree; "mesh", a grid; or "torus", a grid whose ends are linked.
    k, levels : switches of a tree have `k` children each, on so many levels.
    dims : nodes along each dimension of a mesh or a torus.
    not_installed : leaves or positions without a node, such as 240-255, in row-major order.
        Default: those behind the last node.
    """

    topology: Literal["tree", "mesh", "torus"]
    k: int | None = None
    levels: int | None = None
    dims: tuple[int, ...] | None = None
    not_installed: str | int | None = None


class _NodeFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a machine file says of its nodes.

    Parameters
    ----------
    processors_per_node : number of processors of each node.
    resources_per_node : amounts of other resources of each node, by name.
    shared_per_node : capacity of each node for resources that its processes share, by name.
    shared_penalty : how much longer processes take that demand more than the capacity; see
        docs/sharing.md.
    features : what jobs may request of their nodes, with the names of the nodes that have it.
    exclusive : whether a job of a simulation gets whole nodes.
    launcher : how a service starts the agents of the nodes: "local", "ssh", "slurm", or "none", by
        hand.
    partitions : named partitions of the nodes.
    """

    processors_per_node: Count = 1
    resources_per_node: dict[str, Amount] = {}
    shared_per_node: dict[str, Count] = {}
    shared_penalty: PenaltyRule = "excess"
    features: dict[str, Names] = {}
    exclusive: bool = False
    launcher: Launcher = "local"
    partitions: dict[str, PartitionConfig] = {}


class MachineFields(_NodeFields, frozen=True):
    """A machine file.

    Parameters
    ----------
    nodes : their number, or their names in the order of the leaves of the network.
    network : the network of the nodes; without it the machine is flat.
    """

    nodes: Count | Names
    network: NetworkFields | None = None


class Platform(_NodeFields, frozen=True):
    """A machine as described by a machine file.

    Parameters
    ----------
    leaves : leaves or positions of the network that have a node, in ascending order.
    network : the network of the nodes; None if the machine is flat.
    names : names of the nodes; empty if they have none.
    """

    leaves: ProcSet
    network: Network | None = None
    names: tuple[str, ...] = ()

    def features_of(self, node: str) -> list[str]:
        """Features of a node."""
        return [feature for feature, nodes in self.features.items() if node in nodes]

    @property
    def resources(self) -> dict[str, int]:
        """Amounts of further resources, summed over all nodes, by name."""
        nodes = len(self.leaves)
        return {name: nodes * amount for name, amount in self.resources_per_node.items()}

    @property
    def shared(self) -> SharedCapacity | None:
        """What the processes of a node share; None if the file does not limit it."""
        if not self.shared_per_node:
            return None
        amounts, penalty = self.shared_per_node, self.shared_penalty
        return SharedCapacity(self.processors_per_node, amounts, penalty)

    @property
    def processors(self) -> int:
        """Number of processors of all nodes."""
        return len(self.leaves) * self.processors_per_node

    @property
    def numbers(self) -> ProcSet:
        """Numbers of the processors."""
        per_node = self.processors_per_node
        intervals = self.leaves.intervals
        return ProcSet(tuple((a * per_node, (b + 1) * per_node - 1) for a, b in intervals))

    @property
    def places(self) -> dict[str, ProcSet]:
        """Numbers of the processors of each node, for a machine whose nodes can be lost and return.

        A node without a name is named after its leaf, such as ``node5``.
        """
        per_node = self.processors_per_node
        names = self.names or [f"node{leaf}" for leaf in self.leaves]
        pairs = zip(names, self.leaves, strict=True)
        return {name: ProcSet.span(leaf * per_node, per_node) for name, leaf in pairs}

    @property
    def by_node(self) -> dict[str, int]:
        """Number of processors of each node."""
        return dict.fromkeys(self.places, self.processors_per_node)

    def scenario(self, base: Scenario) -> Scenario:
        """Scenario of a core on this machine: with that of each partition, if there are any.

        Raises
        ------
        ConfigError : the scenario of a partition is invalid.
        """
        if not self.partitions:
            return base
        return with_partitions(base, {n: own.rules(base) for n, own in self.partitions.items()})

    @property
    def limits(self) -> PartitionLimits | None:
        """Limits of the partitions; None if there are none."""
        if not self.partitions:
            return None
        sizes = {name: len(numbers) for name, numbers in self._numbers_by_partition().items()}
        return PartitionLimits(self.partitions, sizes)

    def machines(self, resources: Mapping[str, int], *, counted: bool) -> dict[str, Machine]:
        """Build the machines of the partitions of a simulated core, by name.

        Each is one node that holds all processors. Without partitions there is one, named "".

        Parameters
        ----------
        resources : amounts of further resources, by name; partitions get those of their nodes.
        counted : count processors instead of numbering them.
        """
        places = self._numbers_by_partition() if self.partitions else {"machine": self.numbers}
        behind = 0 if self.network is None or counted else self.network.processors
        numbering = Numbering({} if counted else places, behind)
        machines = {}
        for name, numbers in places.items():
            count = len(numbers)
            machines[name if self.partitions else ""] = Machine(
                [(name, count)],
                network=None if counted else self.network,
                counted=counted,
                numbering=numbering,
                resources={n: a * count // self.processors for n, a in resources.items()},
                shared=None if counted else self.shared,
                node_size=None if counted else self.processors_per_node,
            )
        return machines

    def _numbers_by_partition(self) -> dict[str, ProcSet]:
        """Numbers of the processors of each partition."""
        parts: dict[str, list[ProcSet]] = {name: [] for name in self.partitions}
        places = self.places
        for node, counts in shares(self.partitions, self.by_node).items():
            left = places[node]
            for name, count in counts.items():
                parts[name].append(left.first(count))
                left -= parts[name][-1]
        return {name: ProcSet.union(own) for name, own in parts.items()}


def flat(processors: int) -> Platform:
    """Build a flat machine with a number of processors and nothing else."""
    return Platform(ProcSet.span(0, processors))


def on_network(network: Network, nodes: int) -> Platform:
    """Build a machine of one-processor nodes at the first leaves or positions of a network.

    Raises
    ------
    ValueError : the network has fewer of them than nodes.
    """
    if nodes > network.leaves:
        raise ValueError(f"{nodes} nodes do not fit on a network for {network.leaves}")
    return Platform(ProcSet.span(0, nodes), network=network)


def read(file: Path) -> Platform:
    """Read a machine file.

    Raises
    ------
    ConfigError : the file is invalid; the message names file, line and field.
    """
    return described(Located.read(file))


def described(located: Located) -> Platform:
    """Machine that the contents of a machine file describe.

    Raises
    ------
    ConfigError : see `read`.
    """
    if located.get(("nodes",)) in (0, []):
        located.fail(
            ("nodes",),
            "a machine has at least one node; a service whose nodes are all those of pools needs no"
            " machine file: give it --processors 0",
        )
    read_named(located, "partitions")
    fields = located.convert(MachineFields)
    names = () if isinstance(fields.nodes, int) else tuple(fields.nodes)
    for i, name in enumerate(names):
        if name in names[:i]:
            located.fail(("nodes", i), f"two nodes are named {name!r}; rename one")
    count = fields.nodes if isinstance(fields.nodes, int) else len(names)
    network = fields.network
    try:
        checked(fields.resources_per_node)
    except ValueError as error:
        located.fail(("resources_per_node",), str(error))
    shape: Network | None
    if network is None:
        shape, leaves = None, ProcSet.span(0, count)
    else:
        shape = _shape(located, network, fields.processors_per_node)
        leaves = _leaves(located, network, shape, count)
    of_nodes = {name: getattr(fields, name) for name in _NodeFields.__struct_fields__}
    platform = Platform(leaves, shape, names, **of_nodes)
    for feature, nodes in fields.features.items():
        unknown = next((node for node in nodes if node not in platform.places), None)
        if unknown is not None:
            located.fail(
                ("features", feature),
                f"there is no node {unknown!r}{nearest(unknown, platform.places)}",
            )
    if fields.partitions:
        shares(fields.partitions, platform.by_node, located.fail)
        if fields.exclusive:
            located.fail(
                ("exclusive",), "whole nodes for jobs do not go with partitions: leave one out"
            )
    return platform


def _leaves(located: Located, network: NetworkFields, shape: Network, count: int) -> ProcSet:
    """Leaves or positions of a network that have one of `count` nodes."""
    positions = "leaves" if isinstance(shape, Tree) else "positions"
    leaves = ProcSet.span(0, shape.leaves)
    if network.not_installed is not None:
        field = ("network", "not_installed")
        try:
            missing = ProcSet.parse(str(network.not_installed))
        except ValueError as error:
            located.fail(field, str(error))
        if missing - leaves:
            located.fail(
                field,
                f"{missing - leaves} are not {positions} of this {network.topology}, which has"
                f" 0-{shape.leaves - 1}",
            )
        leaves -= missing
        if len(leaves) != count:
            located.fail(
                field,
                f"it leaves {len(leaves)} of {shape.leaves} {positions} for"
                f" {counted(count, 'node')}; list all {positions} without a node",
            )
    elif count > shape.leaves:
        located.fail(
            ("nodes",),
            f"{count} nodes do not fit on the {shape.leaves} {positions} of a {_described(shape)}",
        )
    return leaves.first(count)


def _shape(located: Located, network: NetworkFields, per_node: int) -> Network:
    """Network of the fields."""
    is_tree = network.topology == "tree"
    for name in ("k", "levels", "dims"):
        needed = is_tree == (name != "dims")
        if needed == (getattr(network, name) is None):
            fields = "k and levels" if is_tree else "dims"
            located.fail(
                ("network",), f"a network of topology {network.topology} is described by {fields}"
            )
    try:
        if network.dims is not None:
            return Mesh(network.dims, network.topology == "torus", per_node)
        assert network.k is not None  # checked above
        assert network.levels is not None
        return Tree(network.k, network.levels, per_node)
    except ValueError as error:
        located.fail(("network",), str(error))


def _described(shape: Network) -> str:
    if isinstance(shape, Tree):
        levels = counted(shape.levels, "level")
        return f"tree with k = {shape.k} and {levels}; add levels"
    return f"mesh of {' x '.join(map(str, shape.dims))}; enlarge dims"
