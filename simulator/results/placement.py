"""What the places of jobs cost: dispersal, and processors that are idle because of their place.

*Dispersal* is how far the processors of a job are apart in the network. The distance of two
processors is the number of links between their nodes: in a mesh or torus the sum of the distances
along its dimensions, in a tree twice the level of the lowest switch above. Mean pairwise distance:
J. Mache and V. Lo, "Dispersal metrics for non-contiguous processor allocation" (1996).

*Fragmentation*: LOC (Pascual and Miguel-Alonso), section 1, names two kinds after Lo et al. and
gives no formula; the formulas are ours. Both are shares of all processor-seconds from the first
submission to the last end. External: while the head of the queue requests no more processors than
are free, so that it waits only for their places, the processors that it requests are lost.
Internal: processors that a job holds beyond those it requested because it gets whole nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.model.events import Event
from scheduler.model.network import Mesh, Network, Tree
from scheduler.model.orders import Order
from scheduler.model.procset import ProcSet
from scheduler.partition.partition import Partition

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


class ExternalLoss:
    """Counts the external fragmentation; a watch of the event loop.

    Attributes
    ----------
    lost : processor-seconds so far.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._since, self._wanted = 0.0, 0
        self.lost = 0.0

    def __call__(self, now: float, events: Sequence[Event], orders: Sequence[Order]) -> None:
        """Note what the head of the queue requests and does not get."""
        if self._wanted:
            self.lost += self._wanted * (now - self._since)
        partition = self._partition
        self._since, self._wanted = now, 0
        if partition.state.placing and partition.queue.jobs:
            head = partition.state.head
            if head is not None and head.spec.processors <= partition.machine.free_count:
                self._wanted = head.spec.processors


def dispersal(network: Network, processors: ProcSet) -> tuple[float, float]:
    """Mean distance of the processors of a job, links, and their extent."""
    return mean_distance(network, processors), extent(network, processors)


def mean_dispersal(
    network: Network, places: Sequence[tuple[float, ProcSet]], end: float
) -> tuple[float, float]:
    """Dispersal of a job whose processors change: means of both numbers over its time.

    Parameters
    ----------
    places : (time in seconds, processors from then on), ascending; none: the job did not run.
    end : of the job, seconds.

    Returns
    -------
    nan and nan if it did not run
    """
    if not places:
        return np.nan, np.nan
    runs = [bool(held) for _, held in places]
    spans = np.diff(np.array([*(at for at, _ in places), end])) * runs
    pairs = [dispersal(network, held) if held else (0.0, 0.0) for _, held in places]
    weights = spans if spans.sum() > 0 else np.array(runs)
    distance, side = np.average(np.array(pairs), axis=0, weights=weights).tolist()
    return distance, side


def extent(network: Network, processors: ProcSet) -> int:
    """Longest side of the smallest box around the nodes; in a tree the level of their switch."""
    if isinstance(network, Mesh):
        return max(network.sides(processors))
    first, last = processors.intervals[0][0], processors.intervals[-1][1]
    level = 0
    while first // network.below(level) != last // network.below(level):
        level += 1
    return level


def mean_distance(network: Network, processors: ProcSet) -> float:
    """Mean distance of two processors, links; 0 for fewer than two."""
    count = processors.count()
    pairs = count * (count - 1) // 2
    if not pairs:
        return 0.0
    if isinstance(network, Tree):
        return _in_tree(network, processors, pairs) / pairs
    return _in_mesh(network, processors) / pairs


@lru_cache(maxsize=4096)
def compact_distance(network: Network, processors: int) -> float:
    """Mean distance in the most compact place for this many processors, links.

    In a mesh the first processors of the most compact box, in a tree those of the lowest numbers.
    """
    if isinstance(network, Mesh) and (sides := network.box(processors)) is not None:
        network = Mesh(sides, processors_per_node=network.processors_per_node)
    return mean_distance(network, ProcSet.span(0, min(processors, network.processors)))


@lru_cache(maxsize=64)
def network_distance(network: Network) -> float:
    """Mean distance of two processors of the whole network, links."""
    return mean_distance(network, ProcSet.span(0, network.processors))


def _in_tree(tree: Tree, processors: ProcSet, pairs: int) -> int:
    """Sum of the distances: two links for each level at which a pair has different switches."""
    total = 0
    for level in range(tree.levels):
        size = tree.below(level)
        whole, parts = 0, dict[int, int]()
        for first, last in processors.intervals:
            i, j = first // size, last // size
            if i == j:
                parts[i] = parts.get(i, 0) + last - first + 1
                continue
            parts[i] = parts.get(i, 0) + (i + 1) * size - first
            parts[j] = parts.get(j, 0) + last - j * size + 1
            whole += j - i - 1
        together = whole * (size * (size - 1) // 2)
        together += sum(part * (part - 1) // 2 for part in parts.values())
        total += 2 * (pairs - together)
    return total


def _in_mesh(mesh: Mesh, processors: ProcSet) -> int:
    """Sum of the distances, one dimension at a time."""
    parts = [np.arange(first, last + 1) for first, last in processors.intervals]
    nodes = np.concatenate(parts) // mesh.processors_per_node
    total = 0
    for coordinates, size in zip(np.unravel_index(nodes, mesh.dims), mesh.dims, strict=True):
        values = np.sort(coordinates)
        total += _around(values, size) if mesh.wraps else _along(values)
    return total


def _along(values: Ints) -> int:
    """Sum of the differences of all pairs of ascending values."""
    n = len(values)
    return int((values * (2 * np.arange(n) - n + 1)).sum())


def _around(values: Ints, size: int) -> int:
    """Sum of the distances of all pairs of ascending coordinates on a ring.

    The coordinates up to half of the ring ahead of each one are counted, so each pair counts once.
    """
    n = len(values)
    twice = np.concatenate([values, values + size])
    before = np.concatenate([[0], np.cumsum(twice)])
    ends = np.searchsorted(twice, values + (size - 1) // 2, side="right")
    begins = np.arange(1, n + 1)
    total = int((before[ends] - before[begins] - (ends - begins) * values).sum())
    if size % 2 == 0:  # opposite coordinates see each other from both sides
        counts = np.bincount(values, minlength=size)
        total += int((counts[: size // 2] * counts[size // 2 :]).sum()) * (size // 2)
    return total
