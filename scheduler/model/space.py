"""What a processor selection sees of a machine: its free processors and their network.

The machine keeps one `Space` up to date. A copy of it can be changed to find out what will be free
when some jobs have ended, or what is left without some processors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias, cast

from scheduler.model.network import Network
from scheduler.model.procset import ProcSet

NONE = ProcSet()

#: Divides a set of processors by node; the keys name the nodes.
Division: TypeAlias = Callable[[ProcSet], Mapping[str, ProcSet]]
#: Groups in a block.
BLOCK_LENGTH: Final = 64


class Groups:
    """Number of free processors in each aligned range of `size` numbers.

    The largest count of each block of groups is kept. A search compares these, and looks through
    one block.

    Parameters
    ----------
    size : processors of a group; group i holds the numbers from ``i * size`` on.
    free : free processors.
    """

    def __init__(self, size: int, free: ProcSet = NONE) -> None:
        self.size = size
        self._counts = [0]
        self._most = [0]  # largest count of each block; -1: it must be computed again
        self.change(free, 1)

    def copy(self) -> Groups:
        """Independent copy."""
        other = Groups(self.size)
        other._counts, other._most = self._counts.copy(), self._most.copy()
        return other

    def first(self, processors: int) -> int | None:
        """First group with this many free processors; None if there is none."""
        counts, most = self._counts, self._most
        for block in range(len(most)):
            group = block * BLOCK_LENGTH
            if most[block] < 0:
                most[block] = max(counts[group : group + BLOCK_LENGTH])
            if most[block] >= processors:
                while counts[group] < processors:
                    group += 1
                return group
        return None

    def change(self, processors: ProcSet, by: int) -> None:
        """Count these processors as free (`by` 1) or taken (-1); they were the opposite before."""
        size, counts, most = self.size, self._counts, self._most
        for first, last in processors.intervals:
            i, j = first // size, last // size
            if j >= len(counts):
                counts += [0] * (j + 1 - len(counts))
                most += [0] * (j // BLOCK_LENGTH + 1 - len(most))
            counts[i] += by * (min(last + 1, (i + 1) * size) - first)
            if i < j:
                for whole in range(i + 1, j):
                    counts[whole] += by * size
                counts[j] += by * (last - j * size + 1)
            for block in range(i // BLOCK_LENGTH, j // BLOCK_LENGTH + 1):
                most[block] = -1


class FreeView(Protocol):
    """What a selection keeps of the free processors, updated with every change."""

    def change(self, processors: ProcSet, by: int) -> None:
        """Count these processors as free (`by` 1) or taken (-1); they were the opposite before."""

    def copy(self) -> FreeView:
        """Independent copy."""


class Space:
    """Free processors and their network.

    Parameters
    ----------
    free : processors that are free.
    network : how the nodes are connected; None: only processor numbers matter.
    by_node : divides a set of processors by node; None: all processors are on one node.
    """

    def __init__(
        self,
        free: ProcSet = NONE,
        network: Network | None = None,
        by_node: Division | None = None,
    ) -> None:
        self.network = network
        self.by_node: Division = _on_one_node if by_node is None else by_node
        self._free = free
        self._back: list[ProcSet] = []  # to be joined to `_free` on the next access
        self._views: dict[int | str, FreeView] = {}
        self._version = 0  # counts the changes
        self._original: Space | None = None
        self._copied = 0  # version of the original
        self._changes: list[tuple[ProcSet, int]] = []  # of a copy

    def copy(self) -> Space:
        """Independent copy; it is cheaper to use while the original does not change."""
        other = Space(self.free, self.network, self.by_node)
        other._original, other._copied = self, self._version
        return other

    @property
    def free(self) -> ProcSet:
        """Processors that are free."""
        if self._back:
            if len(self._back) == 1:
                self._free |= self._back[0]
            else:
                self._free = ProcSet.union([self._free, *self._back])
            self._back.clear()
        return self._free

    def groups(self, size: int) -> Groups:
        """Free processors in aligned groups of this size, kept up to date."""
        return cast("Groups", self.view(size, lambda free: Groups(size, free)))

    def view(self, name: int | str, make: Callable[[ProcSet], FreeView]) -> FreeView:
        """Data structure over the free processors of a selection, kept up to date.

        Parameters
        ----------
        name : of the data structure.
        make : makes it from the free processors.
        """
        view = self._views.get(name)
        if view is None:
            original = self._original
            if original is None or original._version != self._copied:
                view = make(self.free)
            else:
                view = original.view(name, make).copy()
                for processors, by in self._changes:
                    view.change(processors, by)
            self._views[name] = view
        return view

    def put(self, processors: ProcSet) -> None:
        """Count these processors, which are taken, as free."""
        self._back.append(processors)
        self._change(processors, 1)

    def take(self, processors: ProcSet) -> None:
        """Count these processors, which are free, as taken."""
        self._free = self.free - processors
        self._change(processors, -1)

    def _change(self, processors: ProcSet, by: int) -> None:
        self._version += 1
        if self._views:
            for view in self._views.values():
                view.change(processors, by)
        if self._original is not None:
            self._changes.append((processors, by))


def nodes_of_size(size: int) -> Division:
    """Return a function that divides processors by nodes of this many consecutive numbers."""

    def divide(processors: ProcSet) -> Mapping[str, ProcSet]:
        parts: dict[str, ProcSet] = {}
        for first, last in processors.intervals:
            for node in range(first // size, last // size + 1):
                part = processors.between(node * size, (node + 1) * size - 1)
                parts[str(node)] = part
        return parts

    return divide


def _on_one_node(processors: ProcSet) -> Mapping[str, ProcSet]:
    return {"": processors} if processors else {}
