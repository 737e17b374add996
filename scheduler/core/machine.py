"""The machine: nodes that come and go, and the pool of free processors.

Processors are numbered once and for all. A node that rejoins under its old name gets its old
numbers; a processor of a lost node does not come back to the pool before its node does, and one
that a job still holds not before the job gave it back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import cache
from typing import Protocol

import msgspec

from scheduler.core.procset import ProcSet


class Selection(Protocol):
    """Chooses the processors of a group."""

    def select(self, free: ProcSet, processors: int) -> ProcSet | None:
        """Choose so many of the free processors (there are enough); None: no choice will do."""


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
    """

    name: str
    numbers: ProcSet = ProcSet()
    count: int = 0
    up: bool = False

    @property
    def processors(self) -> ProcSet:
        """Processors it offers while it is up."""
        return self.numbers.first(self.count)


class Machine:
    """Nodes and free processors.

    Parameters
    ----------
    nodes : (name, number of processors) of the nodes that are there from the beginning.
    counted : processors are counted, not told apart: a set then says how many, never which. For
        simulations that do not ask; the nodes of such a machine stay.

    Attributes
    ----------
    nodes : name -> node, in order of their first joining.
    free : processors that may be taken now.
    free_count, processors, installed : how many are free, belong to nodes that are up, belong to
        any node known, up or not.
    whole : whether every processor known is offered by its node.
    """

    def __init__(self, nodes: Iterable[tuple[str, int]] = (), *, counted: bool = False) -> None:
        self.counted = counted
        self.nodes: dict[str, Node] = {}
        self.free = ProcSet()
        self.free_count = self.processors = self.installed = 0
        self.whole = True
        self._down = ProcSet()  # numbers that no node offers now
        self._owed = ProcSet()  # of nodes lost at some time: still held by a job
        self._firsts: list[int] = []  # first number of each run given to a node, ascending
        self._owners: list[str] = []
        self._numbered = 0
        for name, processors in nodes:
            self.join(name, processors)

    def join(self, name: str, processors: int) -> None:
        """Let a node offer its processors: for the first time, again, or another number of them.

        Raises
        ------
        ValueError : a node of no processors.
        """
        if processors < 1:
            raise ValueError(f"node {name} must offer at least 1 processor, got {processors}")
        node = self.nodes.setdefault(name, Node(name))
        before = node.processors if node.up else ProcSet()
        more = processors - len(node.numbers)
        if more > 0:
            node.numbers |= ProcSet.span(self._numbered, more)
            self._firsts.append(self._numbered)
            self._owners.append(name)
            self._numbered += more
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
        self._offer(node.processors, ProcSet())
        return node.processors

    def allocate(self, selection: Selection, processors: int) -> ProcSet | None:
        """Take so many processors, of which there are enough, as the selection chooses them.

        None if it finds no acceptable ones.
        """
        if self.counted:
            self.free_count -= processors
            return some(processors)
        chosen = selection.select(self.free, processors)
        if chosen is not None:
            self.free -= chosen
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
        self.free |= processors
        self.free_count += processors.count()

    def returning(self, processors: ProcSet) -> int:
        """How many of these would come into the pool if they were released now."""
        return len(processors - self._down if self._down else processors)

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

    def node_list(self, processors: ProcSet) -> str:
        """Nodes and how many processors on each, as in ``node1:4,node2:2`` (mpiexec's hosts)."""
        return ",".join(f"{name}:{len(part)}" for name, part in self.by_node(processors).items())

    def _offer(self, before: ProcSet, after: ProcSet) -> None:
        """A node that offered `before` now offers `after`."""
        gone, come = before - after, after - before
        self._owed |= gone - self.free
        self._down = (self._down | gone) - come
        self.whole = not self._down
        if self.counted:
            self.free_count += len(come)
        else:
            self.free = (self.free - gone) | (come - self._owed)
            self.free_count = len(self.free)
        self.processors += len(come) - len(gone)
