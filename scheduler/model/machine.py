"""The machine: nodes that come and go, and the pool of free processors.

Processors are numbered once and for all. A node that rejoins under its old name gets its old
numbers; a processor of a lost node does not come back to the pool before its node does, and one
that a job still holds not before the job gave it back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Protocol

import msgspec

from scheduler.model.network import Tree
from scheduler.model.procset import ProcSet
from scheduler.model.resources import Amounts, Pools, checked
from scheduler.model.space import NONE, Space


class Selection(Protocol):
    """Chooses the processors of a group: a class with typed parameters and this method.

    It may also have an attribute `anywhere`, true if it never refuses when there are enough free
    processors, an attribute `needs_network`, true if it works on a machine with a network alone,
    and methods ``keep(then, now, processors) -> ProcSet`` and ``fits(space, processors) -> bool``;
    see the functions of these names.
    """

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose so many of the free processors (there are enough); None: no choice will do.

        Where something is acceptable, something must be so if more processors are free.
        """


def anywhere(selection: Selection) -> bool:
    """Whether a selection never refuses when there are enough free processors."""
    return bool(getattr(selection, "anywhere", False))


def fits(selection: Selection, space: Space, processors: int) -> bool:
    """Whether `select` would find something; a selection may know a cheaper way to tell."""
    cheaper = getattr(selection, "fits", None)
    if cheaper is not None:
        return bool(cheaper(space, processors))
    return selection.select(space, processors) is not None


def keep(selection: Selection, then: Space, now: Space, processors: int) -> ProcSet:
    """Which of the processors free now must stay so for a job that is to start `then`.

    A selection may have an opinion on this; otherwise it is those that it would choose then.

    Parameters
    ----------
    then : what will be free; `select` accepts so many of it.
    """
    opinion = getattr(selection, "keep", None)
    if opinion is not None:
        kept: ProcSet = opinion(then, now, processors)
        return kept
    chosen = selection.select(then, processors)
    return ProcSet() if chosen is None else chosen & now.free


@cache
def some(processors: int) -> ProcSet:
    """Set that stands for so many processors, wherever they are."""
    return ProcSet.span(0, processors)


class Node(msgspec.Struct):
    """A node of the machine.

    Parameters
    ----------
    numbers : every processor number the node ever had, ascending.
    count : how many processors it offers (or offered last): the lowest of its numbers.
    up : whether it is there.
    resources : what else it holds (or held last), by name.
    """

    name: str
    numbers: ProcSet = ProcSet()
    count: int = 0
    up: bool = False
    resources: Mapping[str, int] = {}

    @property
    def processors(self) -> ProcSet:
        """Processors it offers while it is up."""
        return self.numbers.first(self.count)


class Numbering:
    """Gives processors their numbers, each once, and knows whose they are.

    Parameters
    ----------
    places : numbers kept for the processors of nodes, by name; given in the order in which machines
        that share the numbering ask for them.
    behind : others are numbered from here on, or behind the places, as they come.
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
        """Give numbers to so many more processors of a node."""
        kept = self._kept.get(node.name, ProcSet())
        numbers = kept.first(min(more, len(kept)))
        self._kept[node.name] = kept - numbers
        behind = ProcSet.span(self._numbered, more - len(numbers))
        self._numbered += len(behind)
        numbers |= behind
        node.numbers |= numbers
        for first, _ in numbers.intervals:
            run = bisect_right(self._firsts, first)
            self._firsts.insert(run, first)
            self._owners.insert(run, node.name)

    def assign(self, node: str, numbers: ProcSet) -> None:
        """Record that a node has these processor numbers, as an earlier run of a service chose."""
        self._kept[node] = self._kept.get(node, ProcSet()) - numbers
        for first, last in numbers.intervals:
            self._numbered = max(self._numbered, last + 1)
            run = bisect_right(self._firsts, first)
            self._firsts.insert(run, first)
            self._owners.insert(run, node)

    def by_node(self, processors: ProcSet) -> dict[str, ProcSet]:
        """Which of these processors lie on which node, in the order of their numbers."""
        found: dict[str, ProcSet] = {}
        for first, last in processors.intervals:
            run = bisect_right(self._firsts, first) - 1
            while first <= last:
                end = self._firsts[run + 1] if run + 1 < len(self._firsts) else last + 1
                part = ProcSet.span(first, min(last + 1, end) - first)
                name = self._owners[run]
                found[name] = found.get(name, ProcSet()) | part
                first, run = end, run + 1
        return found


class Machine:
    """Nodes and free processors.

    Parameters
    ----------
    nodes : (name, number of processors) of the nodes that are there from the beginning.
    network : how the nodes hang together.
    places : numbers kept for the processors of nodes, by name: where they are in the network.
        Other processors are numbered behind the network, as they come.
    counted : processors are counted, not told apart: a set then says how many, never which. For
        simulations that do not ask; the nodes of such a machine stay.
    numbering : that of another machine, which offers other processors of the same nodes; it knows
        their places already.
    resources : further resources that belong to no node (licences, a shared disk), by name.

    Attributes
    ----------
    nodes : name -> node, in order of their first joining.
    space : processors that may be taken now, by place.
    free_count, processors, installed : how many are free, belong to nodes that are up, belong to
        any node known, up or not.
    whole : whether every processor known is offered by its node.
    pools : the further resources of all nodes together.
    """

    def __init__(
        self,
        nodes: Iterable[tuple[str, int]] = (),
        *,
        network: Tree | None = None,
        places: Mapping[str, ProcSet] | None = None,
        counted: bool = False,
        numbering: Numbering | None = None,
        resources: Mapping[str, int] | None = None,
    ) -> None:
        self.counted = counted
        if numbering is None:
            numbering = Numbering(places, 0 if network is None else network.processors)
        self.numbering = numbering
        self.pools = Pools(resources)
        self.nodes: dict[str, Node] = {}
        self.space = Space(network=network)
        self.free_count = self.processors = self.installed = 0
        self.whole = True
        self._down = ProcSet()  # numbers that no node offers now
        self._owed = ProcSet()  # of nodes lost at some time: still held by a job
        self._placeable: dict[int, bool] = {}
        for name, processors in nodes:
            self.join(name, processors)

    @property
    def free(self) -> ProcSet:
        """Processors that may be taken now."""
        return self.space.free

    def join(self, name: str, processors: int, resources: Mapping[str, int] | None = None) -> None:
        """Let a node offer what it holds: for the first time, again, or another number of it.

        Raises
        ------
        ValueError : a node of no processors; an amount below 0.
        """
        if processors < 1:
            raise ValueError(f"node {name} must offer at least 1 processor, got {processors}")
        checked(resources or {})
        node = self.nodes.setdefault(name, Node(name))
        self._pool(node, resources or {})
        before = node.processors if node.up else ProcSet()
        more = processors - len(node.numbers)
        if more > 0:
            self.numbering.give(node, more)
        self._placeable.clear()
        self.installed += processors - node.count
        node.count, node.up = processors, True
        self._offer(before, node.processors)

    def lose(self, name: str) -> ProcSet:
        """Take a node out, and tell which processors went with it (none if it was not up)."""
        node = self.nodes.get(name)
        if node is None or not node.up:
            return ProcSet()
        if self.counted:
            raise ValueError(f"node {name} cannot leave a machine whose processors are counted")
        node.up = False
        self.pools.offer(node.resources, -1)
        self._offer(node.processors, ProcSet())
        return node.processors

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
            self.installed += node.count
            self.pools.install(node.resources)
            if node.up:
                self.pools.offer(node.resources)
                offered |= node.processors
            self._down |= node.numbers - (node.processors if node.up else ProcSet())
        self._owed = allocated & self._down
        self.whole = not self._down
        self.processors = len(offered)
        self.space.put(offered - allocated)
        self.free_count = len(self.free)
        self._placeable.clear()

    def _pool(self, node: Node, resources: Mapping[str, int]) -> None:
        """A node that joins holds these further resources now."""
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
        return {name: (there, there - held) for name, there, held in columns}

    @property
    def free_amounts(self) -> Amounts:
        """How much of each resource may be taken now."""
        return self.pools.free(self.free_count)

    @property
    def up_amounts(self) -> Amounts:
        """How much of each resource the nodes hold that are up."""
        return Amounts((self.processors, *self.pools.there))

    @property
    def installed_amounts(self) -> Amounts:
        """How much of each resource the nodes hold that are known."""
        return Amounts((self.installed, *self.pools.installed))

    def allocate(
        self, selection: Selection, processors: int, avoiding: ProcSet = NONE
    ) -> ProcSet | None:
        """Take so many processors, of which there are enough, as the selection chooses them.

        None if it finds no acceptable ones, or only with some that are to be avoided.
        """
        if self.counted:
            self.free_count -= processors
            return some(processors)
        space = self.space
        if avoiding:
            space = space.copy()
            space.take(avoiding)
            if space.free.count() < processors:
                return None
        chosen = selection.select(space, processors)
        if chosen is not None:
            self.space.take(chosen)
            self.free_count -= processors
        return chosen

    def release(self, processors: ProcSet) -> None:
        """Put processors back into the pool, those of lost nodes excepted."""
        if self.counted:
            self.free_count += processors.intervals[0][1] + 1  # as `some` makes them
            return
        if self._owed:
            self._owed -= processors
        if self._down:
            processors -= self._down
        self.space.put(processors)
        self.free_count += processors.count()

    def can_place(self, selection: Selection, processors: int) -> bool:
        """Whether so many processors would be acceptable if every node was there and idle."""
        if processors > self.installed:
            return False
        if self.counted or anywhere(selection):
            return True
        placeable = self._placeable.get(processors)
        if placeable is None:
            numbers = ProcSet()
            for node in self.nodes.values():
                numbers |= node.processors
            space = Space(numbers, self.space.network)
            placeable = self._placeable[processors] = (
                selection.select(space, processors) is not None
            )
        return placeable

    def usable(self, processors: ProcSet) -> ProcSet:
        """Which of these would come into the pool if they were released now."""
        return processors - self._down if self._down else processors

    def count_usable(self, processors: ProcSet) -> int:
        """How many of these would come into the pool if they were released now."""
        return len(self.usable(processors))

    def by_node(self, processors: ProcSet) -> dict[str, ProcSet]:
        """Which of these processors lie on which node, in the order of their numbers."""
        return self.numbering.by_node(processors)

    def _offer(self, before: ProcSet, after: ProcSet) -> None:
        """A node that offered `before` now offers `after`."""
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
