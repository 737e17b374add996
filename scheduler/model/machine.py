"""The machine: nodes that join and are lost, and the free processors.

A processor keeps its number. A node that rejoins under its old name gets its old numbers. A
processor of a lost node becomes free only when the node has rejoined and the job that held the
processor has released it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from reshape.errors import ReshapeError
from scheduler.model.interfaces import Selection
from scheduler.model.intervals import count
from scheduler.model.network import Network
from scheduler.model.procset import ProcSet
from scheduler.model.requests import NodeRequest
from scheduler.model.resources import Amounts, Pools, checked
from scheduler.model.sharing import SharedCapacity
from scheduler.model.space import NONE, Space, nodes_of_size

#: What an allocation violates that is not covered by free processors.
CONSERVED: Final = "an error of ReSHAPE, or of a policy that changes what it may only read"
_SOME: Final[dict[int, ProcSet]] = {}


def some(processors: int) -> ProcSet:
    """Set that stands for any processors of this number."""
    span = _SOME.get(processors)
    if span is None:
        span = _SOME[processors] = ProcSet.span(0, processors)
    return span


class Node(msgspec.Struct):
    """A node of the machine.

    Parameters
    ----------
    numbers : every processor number the node ever had, ascending.
    count : how many processors it has, or had last; they have the lowest of its numbers.
    up : whether the node is up.
    drains : whether its processors are withheld from new groups, for the reason `why`.
    drained_by : who lets it drain (`DrainChanged.by`).
    removed : whether the node was removed from the machine; jobs may still hold its processors.
    resources : amounts of further resources that it has, or had last, by name.
    features : what jobs may request of their nodes, as of its last joining.
    """

    name: str
    numbers: ProcSet = ProcSet()
    count: int = 0
    up: bool = False
    resources: Mapping[str, int] = {}
    drains: bool = False
    why: str = ""
    removed: bool = False
    features: tuple[str, ...] = ()
    drained_by: str = ""

    @property
    def offered(self) -> ProcSet:
        """Processors that groups may get or hold for their whole time."""
        return self.processors if self.up and not self.is_left else ProcSet()

    @property
    def is_left(self) -> bool:
        """Whether groups are to leave the node, and none may start there."""
        return self.drains or self.removed

    @property
    def installed(self) -> int:
        """Number of processors that count as installed."""
        return 0 if self.removed else self.count

    @property
    def processors(self) -> ProcSet:
        """Processors of the node while it is up."""
        return self.numbers.first(self.count)


class Numbering:
    """Numbers processors, each once, and maps numbers to nodes.

    Parameters
    ----------
    places : numbers reserved for the processors of nodes, by name; machines that share the
        numbering take them in the order of their requests.
    behind : other processors are numbered from here on, or from the end of the places.
    """

    def __init__(self, places: Mapping[str, ProcSet] | None = None, behind: int = 0) -> None:
        self._firsts: list[int] = []  # first number of each run given to a node, ascending
        self._owners: list[str] = []
        self.places = {} if places is None else places
        self._kept = dict(self.places)  # what is left of them
        self._numbered = behind
        for numbers in self.places.values():
            self._numbered = max(self._numbered, numbers.intervals[-1][1] + 1)

    def give(self, node: Node, more: int) -> None:
        """Number further processors of a node."""
        kept = self._kept.get(node.name, ProcSet())
        numbers = kept.first(min(more, len(kept)))
        numbers |= ProcSet.span(self._numbered, more - len(numbers))
        node.numbers |= numbers
        self.assign(node.name, numbers)

    def assign(self, node: str, numbers: ProcSet) -> None:
        """Record that a node has these processor numbers."""
        self._kept[node] = self._kept.get(node, ProcSet()) - numbers
        for first, last in numbers.intervals:
            self._numbered = max(self._numbered, last + 1)
            run = bisect_right(self._firsts, first)
            self._firsts.insert(run, first)
            self._owners.insert(run, node)

    def by_node(self, processors: ProcSet) -> dict[str, ProcSet]:
        """Processors by node name, in the order of their numbers."""
        by_name: dict[str, ProcSet] = {}
        for first, last in processors.intervals:
            run = bisect_right(self._firsts, first) - 1
            while first <= last:
                end = self._firsts[run + 1] if run + 1 < len(self._firsts) else last + 1
                part = ProcSet.span(first, min(last + 1, end) - first)
                name = self._owners[run]
                by_name[name] = by_name.get(name, ProcSet()) | part
                first, run = end, run + 1
        return by_name


class Machine:
    """Nodes and free processors.

    Parameters
    ----------
    nodes : (name, number of processors) of the nodes that are up at the beginning.
    network : how the nodes are connected.
    places : numbers reserved for the processors of nodes, by name: their position in the network.
        Other processors are numbered after those of the network.
    counted : processors are counted, not distinguished: a set then tells only how many there are.
        For simulations that need no more; the nodes of such a machine cannot be lost.
    numbering : numbering of another machine with other processors of the same nodes.
    resources : further resources that belong to no node (licences, a shared disk), by name.
    shared : what the processes of a node share; None: nothing that limits them.
    node_size : selections see nodes of this many consecutive numbers, for simulations, where one
        node of this machine stands for all; None: they see the nodes of this machine.

    Attributes
    ----------
    nodes : name -> node, in the order in which they first joined.
    space : free processors and their network.
    free_count, processors, installed : number of processors that are free, of nodes that are up,
        of all known nodes.
    whole : whether no numbered processor is missing.
    draining : processors of the nodes that are up and drain, or were removed.
    pools : the further resources of all nodes together.
    """

    def __init__(
        self,
        nodes: Iterable[tuple[str, int]] = (),
        *,
        network: Network | None = None,
        places: Mapping[str, ProcSet] | None = None,
        counted: bool = False,
        numbering: Numbering | None = None,
        resources: Mapping[str, int] | None = None,
        shared: SharedCapacity | None = None,
        node_size: int | None = None,
    ) -> None:
        self.counted = counted
        self.shared = shared
        if numbering is None:
            numbering = Numbering(places, 0 if network is None else network.processors)
        self.numbering = numbering
        self.pools = Pools(resources)
        self.nodes: dict[str, Node] = {}
        division = numbering.by_node if node_size is None else nodes_of_size(node_size)
        self.space = Space(network=network, by_node=division)
        self.free_count = self.processors = self.installed = 0
        self.whole = True
        self.draining = ProcSet()
        self._down = ProcSet()  # numbers of missing processors
        self._owed = ProcSet()  # of nodes that were lost: still held by a job
        self._placeable: dict[int, bool] = {}
        for name, processors in nodes:
            self.join(name, processors)

    def emptied(self, numbering: Numbering | None = None) -> Machine:
        """Machine without nodes, with the same network, places of nodes and shared resources.

        Parameters
        ----------
        numbering : of this machine, if the two are to have different processors of the same nodes.
        """
        return Machine(
            network=self.space.network,
            places=self.numbering.places,
            counted=self.counted,
            numbering=numbering,
            shared=self.shared,
        )

    @property
    def free(self) -> ProcSet:
        """Free processors."""
        return self.space.free

    @property
    def numbers(self) -> ProcSet:
        """Processors of all known nodes, up or down."""
        return ProcSet.union(node.processors for node in self.nodes.values())

    @property
    def offered(self) -> ProcSet:
        """Processors of the nodes that are up and that no group has to leave."""
        return ProcSet.union(node.offered for node in self.nodes.values())

    def nodes_for(self, request: NodeRequest) -> list[ProcSet]:
        """Processors of each node that a job may get by its request, up or down."""
        return [
            node.processors
            for node in self.nodes.values()
            if not node.removed and request.admits(node.features, node.count)
        ]

    def obtainable(self, request: NodeRequest) -> int:
        """Return the most processors that a job may get by its request, if all nodes are idle."""
        return sum(request.fitting(len(processors)) for processors in self.nodes_for(request))

    def join(
        self,
        name: str,
        processors: int,
        resources: Mapping[str, int] | None = None,
        features: tuple[str, ...] = (),
    ) -> None:
        """Add a node, or change the processors, resources and features of a known one.

        Raises
        ------
        ValueError : fewer than 1 processor; an amount below 0.
        """
        if processors < 1:
            raise ValueError(f"node {name} must offer at least 1 processor, got {processors}")
        checked(resources or {})
        node = self.nodes.setdefault(name, Node(name))
        self._pool(node, resources or {})
        before = node.offered
        more = processors - len(node.numbers)
        if more > 0:
            self.numbering.give(node, more)
        self.installed += processors - node.installed
        node.count, node.up, node.removed = processors, True, False
        node.features = features
        if node.drains:
            self._down |= node.numbers
            self.whole = False
        self._offer_changed(node, before)

    def lose(self, name: str) -> ProcSet:
        """Remove a node and return its processors, none if it was not up."""
        node = self.nodes.get(name)
        if node is None or not node.up:
            return ProcSet()
        if self.counted:
            raise ValueError(f"node {name} cannot leave a machine whose processors are counted")
        before = node.offered
        node.up = False
        self.pools.offer(node.resources, -1)
        self._offer_changed(node, before)
        return node.processors

    def set_drain(self, name: str, drains: bool, why: str = "", by: str = "") -> None:
        """Withhold the processors of a node from new groups, or offer them again.

        Groups that hold them keep them. An unknown node is ignored.

        Parameters
        ----------
        by : who lets it drain.
        """
        node = self.nodes.get(name)
        if node is None:
            return
        before = node.offered
        node.drains, node.why, node.drained_by = drains, why, by if drains else ""
        if node.removed and not drains:
            self._count_removed(node, removed=False)
        self._offer_changed(node, before)

    def remove(self, name: str) -> None:
        """Remove a node from the machine; groups that hold its processors keep them.

        An unknown node is ignored, and so is one that was removed before.
        """
        node = self.nodes.get(name)
        if node is None or node.removed:
            return
        before = node.offered
        self._count_removed(node, removed=True)
        self._offer_changed(node, before)

    def _count_removed(self, node: Node, *, removed: bool) -> None:
        """Set whether a node was removed; count its processors and resources accordingly."""
        sign = -1 if removed else 1
        node.removed = removed
        self.installed += sign * node.count
        self.pools.install(node.resources, sign)

    def _offer_changed(self, node: Node, before: ProcSet) -> None:
        """Update the free processors after a node offered `before`."""
        if before != node.offered:
            self._offer(before, node.offered)
        self._note_change()

    def _note_change(self) -> None:
        """Forget what followed from the former offers of the nodes."""
        self._placeable.clear()
        self.draining = ProcSet.union(
            node.processors for node in self.nodes.values() if node.up and node.is_left
        )

    def restore(self, nodes: Iterable[Node], allocated: ProcSet) -> None:
        """Take over the nodes of an earlier run of a service; this machine must have none yet.

        Parameters
        ----------
        nodes : in the order of their first joining, with their processor numbers.
        allocated : processors that jobs hold.
        """
        offered = ProcSet()
        for node in nodes:
            self.nodes[node.name] = node
            self.numbering.assign(node.name, node.numbers)
            self.installed += node.installed
            if not node.removed:
                self.pools.install(node.resources)
            if node.up:
                self.pools.offer(node.resources)
                offered |= node.offered
            self._down |= node.numbers - node.offered
        self._note_change()
        self._owed = allocated & self._down
        self.whole = not self._down
        self.processors = len(offered)
        self.space.put(offered - allocated)
        self.free_count = len(self.free)

    def _pool(self, node: Node, resources: Mapping[str, int]) -> None:
        """Set the further resources of a node that joins."""
        if not node.removed:
            self.pools.install(node.resources, -1)
        if node.up:
            self.pools.offer(node.resources, -1)
        self.pools.install(resources)
        self.pools.offer(resources)
        node.resources = resources

    @property
    def resources(self) -> dict[str, tuple[int, int]]:
        """Further resources of the nodes that are up, by name: (amount, free amount)."""
        pools = self.pools
        columns = zip(pools.names, pools.there, pools.held, strict=True)
        return {name: (installed, installed - held) for name, installed, held in columns}

    @property
    def free_amounts(self) -> Amounts:
        """Free amount of each resource."""
        return self.pools.free(self.free_count)

    @property
    def up_amounts(self) -> Amounts:
        """Amount of each resource on the nodes that are up."""
        return Amounts((self.processors, *self.pools.there))

    @property
    def installed_amounts(self) -> Amounts:
        """Amount of each resource on all known nodes."""
        return Amounts((self.installed, *self.pools.installed))

    def allocate(
        self, selection: Selection, processors: int, avoiding: ProcSet = NONE
    ) -> ProcSet | None:
        """Take this many processors as the selection chooses them; enough are free.

        None if it refuses without the processors to avoid.
        """
        if self.counted:
            self.free_count -= processors
            if self.free_count < 0:
                raise ReshapeError(
                    f"{processors} processors are to be allocated, and"
                    f" {self.free_count + processors} are free: {CONSERVED}"
                )
            return some(processors)
        space = self.space
        if avoiding.intervals:
            space = space.copy()
            space.take(avoiding)
            if space.free.count() < processors:
                return None
        selected = selection.select(space, processors)
        if selected is not None:
            self.space.take(selected)
            self.free_count -= processors
        return selected

    def divided(self, processors: ProcSet, count: int) -> tuple[ProcSet, ProcSet]:
        """Divide allocated processors into the first `count` ones and the others."""
        if self.counted:
            return some(count), some(processors.count() - count)
        first = processors.first(count)
        return first, processors - first

    def release(self, processors: ProcSet) -> None:
        """Make processors free again, except those of lost nodes."""
        if self.counted:
            self.free_count += processors.intervals[0][1] + 1  # as `some` makes them
            return
        if self._owed.intervals:
            self._owed -= processors
        self.space.put(self.usable(processors))
        self.free_count += self.count_usable(processors)

    def can_place(self, selection: Selection, processors: int) -> bool:
        """Whether the selection would accept this many processors if every node was up and idle."""
        if processors > self.installed:
            return False
        if self.counted or selection.anywhere:
            return True
        placeable = self._placeable.get(processors)
        if placeable is None:
            numbers = ProcSet.union(
                node.processors for node in self.nodes.values() if not node.removed
            )
            space = Space(numbers, self.space.network, self.space.by_node)
            placeable = self._placeable[processors] = (
                selection.select(space, processors) is not None
            )
        return placeable

    def usable(self, processors: ProcSet) -> ProcSet:
        """Those of the processors that would be free if they were released now."""
        return processors if self.whole else processors - self._down

    def count_usable(self, processors: ProcSet) -> int:
        """Number of the processors that would be free if they were released now."""
        return count(self.usable(processors).intervals)

    def by_node(self, processors: ProcSet) -> dict[str, ProcSet]:
        """Processors by node name, in the order of their numbers."""
        return self.numbering.by_node(processors)

    def _offer(self, before: ProcSet, after: ProcSet) -> None:
        """Update the free processors: a node that had `before` now has `after`."""
        gone, come = before - after, after - before
        self._owed |= gone - self.free
        self._down = (self._down | gone) - come
        self.whole = not self._down
        if self.counted:
            self.free_count += len(come)
        else:
            self.space.take(gone & self.free)
            self.space.put(come - self._owed)
            self.free_count = len(self.free)
        self.processors += len(come) - len(gone)
