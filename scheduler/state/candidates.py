"""Which waiting job comes next among those that fit: found by trees, not by walking the queue.

Jobs are kept apart by the processors they ask for. For one size a shelf holds them in order, in
blocks of a few, and over the blocks stands a tree of the smallest estimate below each branch. So a
question costs the number of different sizes that fit (few, whatever the queue) plus, where a shelf
has an answer, the logarithm of its length; a shelf without an answer costs one comparison.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeAlias

from scheduler.model.job import Job

#: So many processors and so long an estimate (s) at most.
Limit: TypeAlias = tuple[int, float]
Place: TypeAlias = Any  #: what jobs are sorted by, a tuple: key of the order, job number

LONGEST_S = sys.float_info.max
MANY = sys.maxsize  # more processors than there are
BLOCK = 32  # jobs of a block at which it is split in two


class Block:
    """Some jobs of a shelf in a row, column by column."""

    def __init__(self, places: list[Place], estimates: list[float], jobs: list[Job]) -> None:
        self.places = places
        self.estimates = estimates  # seconds
        self.jobs = jobs

    def part(self, first: int, last: int) -> Block:
        """Block of those from the one up to the other."""
        return Block(self.places[first:last], self.estimates[first:last], self.jobs[first:last])

    def least(self) -> float:
        """Smallest estimate; inf if it is empty."""
        return min(self.estimates, default=inf)


class Shelf:
    """Jobs in order, which can tell the first one of at most some estimate."""

    def __init__(self) -> None:
        self._blocks = [Block([], [], [])]
        self._lasts: list[Place] = []  # what separates a block from the next
        self._empty = 0  # blocks, left where they are until they are half of all
        self._leaves = 1  # of the tree, a power of two >= the number of blocks
        self._least = [inf, inf]  # the tree: node i has the children 2 i and 2 i + 1

    @property
    def least(self) -> float:
        """Smallest estimate, seconds; inf if nothing is here."""
        return self._least[1]

    def add(self, job: Job) -> None:
        """Put a job where its place says."""
        place = job.place
        i = bisect_left(self._lasts, place) if self._lasts else 0
        block = self._blocks[i]
        self._empty -= not block.jobs
        estimate_s = _finite(job.estimate_s)
        j = bisect_left(block.places, place)
        block.places.insert(j, place)
        block.estimates.insert(j, estimate_s)
        block.jobs.insert(j, job)
        if len(block.jobs) >= BLOCK:
            self._split(i)
        else:
            self._lower(i, estimate_s)

    def remove(self, job: Job) -> None:
        """Take out a job that is here."""
        place = job.place
        i = bisect_left(self._lasts, place) if self._lasts else 0
        block = self._blocks[i]
        j = bisect_left(block.places, place)
        estimate_s = block.estimates.pop(j)
        del block.places[j], block.jobs[j]
        if estimate_s <= self._least[self._leaves + i] and estimate_s not in block.estimates:
            self._settle(i)
        self._empty += not block.jobs
        if self._empty * 2 > len(self._blocks) > 1:
            self._rebuild()

    def first_within(self, estimate_s: float) -> tuple[Place, Job]:
        """First job of at most this estimate; there is one if `least` is not larger."""
        block = self._block(estimate_s)
        for i, each_s in enumerate(block.estimates):
            if each_s <= estimate_s:
                return block.places[i], block.jobs[i]
        raise AssertionError(f"no job of at most {estimate_s} s where one was said to be")

    def _block(self, estimate_s: float) -> Block:
        """First block that holds such a job."""
        tree, node, leaves = self._least, 1, self._leaves
        while node < leaves:
            node *= 2
            if tree[node] > estimate_s:
                node += 1
        return self._blocks[node - leaves]

    def _split(self, i: int) -> None:
        block, last = self._blocks[i], i == len(self._blocks) - 1
        # What comes in order is never followed by something in its middle: leave the first full.
        count = len(block.jobs)
        half = count - 1 if last else count // 2
        self._blocks[i : i + 1] = [block.part(0, half), block.part(half, count)]
        self._lasts.insert(i, block.places[half - 1])
        if i + 2 == len(self._blocks) <= self._leaves:
            self._settle(i)
            self._settle(i + 1)
        else:
            self._rebuild()

    def _rebuild(self) -> None:
        """Drop empty blocks and set up the tree anew."""
        kept = [i for i, block in enumerate(self._blocks) if block.jobs] or [0]
        self._blocks = [self._blocks[i] for i in kept]
        self._lasts = [self._lasts[i] for i in kept[:-1]]
        self._empty = 0 if self._blocks[0].jobs else 1
        leaves = 1
        while leaves < len(kept):
            leaves *= 2
        least = [block.least() for block in self._blocks]
        tree = [inf] * leaves + least + [inf] * (leaves - len(least))
        for node in range(leaves - 1, 0, -1):
            tree[node] = min(tree[2 * node], tree[2 * node + 1])
        self._least, self._leaves = tree, leaves

    def _lower(self, i: int, estimate_s: float) -> None:
        """Tell the tree of one more estimate in a block."""
        node, tree = self._leaves + i, self._least
        while node and estimate_s < tree[node]:
            tree[node] = estimate_s
            node //= 2

    def _settle(self, i: int) -> None:
        """Tell the tree that a block has changed."""
        node, tree = self._leaves + i, self._least
        least = self._blocks[i].least()
        while node and tree[node] != least:
            tree[node] = least
            node //= 2
            least = min(tree[2 * node], tree[2 * node + 1]) if node else inf


def _finite(estimate_s: float) -> float:
    """Estimate of a job, seconds; that of an endless one is finite, too, for inf is nobody's."""
    return estimate_s if estimate_s < inf else LONGEST_S


class Candidates:
    """Waiting jobs by processors, on shelves."""

    def __init__(self) -> None:
        self._shelves: dict[int, Shelf] = {}
        self._sizes: list[int] = []  # those of `_shelves`, ascending
        self._count: dict[int, int] = {}

    @property
    def smallest(self) -> int:
        """Fewest processors any job asks for; `MANY` if there is none."""
        return self._sizes[0] if self._sizes else MANY

    def add(self, job: Job) -> None:
        """Put a job where it belongs."""
        size = job.processors
        shelf = self._shelves.get(size)
        if shelf is None:
            shelf = self._shelves[size] = Shelf()
            self._count[size] = 0
            insort(self._sizes, size)
        shelf.add(job)
        self._count[size] += 1

    def remove(self, job: Job) -> None:
        """Take out a job that is here."""
        size = job.processors
        if self._count[size] > 1:
            self._shelves[size].remove(job)
            self._count[size] -= 1
        else:
            del self._shelves[size], self._count[size]
            del self._sizes[bisect_left(self._sizes, size)]

    def next(self, limits: Sequence[Limit]) -> Job | None:
        """First job that keeps one of the limits.

        Parameters
        ----------
        limits : the more processors, the shorter the estimate; in this order.
        """
        best: tuple[Place, Job] | None = None
        i = 0
        for size in self._sizes:
            while i < len(limits) and size > limits[i][0]:
                i += 1
            if i == len(limits):
                break
            shelf, within_s = self._shelves[size], _finite(limits[i][1])
            if shelf.least > within_s:
                continue
            found = shelf.first_within(within_s)
            if best is None or found[0] < best[0]:
                best = found
        return None if best is None else best[1]

    def sizes(self, free: int) -> list[int]:
        """Numbers of processors, at most `free`, that jobs ask for, ascending."""
        return self._sizes[: bisect_right(self._sizes, free)]

    def placeable(
        self,
        free: int,
        within_s: float,
        short: Callable[[int], bool],
        always: Callable[[int], bool],
    ) -> Job | None:
        """First job of at most `free` processors for whose size there is a place.

        Parameters
        ----------
        short, always : tell so of a number of processors, the one for jobs whose estimate is at
            most `within_s`, the other, which is stricter, for all.
        """
        best: tuple[Place, Job] | None = None
        for size in self._sizes:
            if size > free:
                break
            shelf = self._shelves[size]
            in_time = shelf.least <= within_s
            if in_time and not short(size):
                continue
            if always(size):
                found = shelf.first_within(LONGEST_S)
            elif in_time:
                found = shelf.first_within(within_s)
            else:
                continue
            if best is None or found[0] < best[0]:
                best = found
        return None if best is None else best[1]
