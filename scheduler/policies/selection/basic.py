"""Selections that need no network: first fit, one interval, few nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from scheduler.model.groups import leaving_groups
from scheduler.model.interfaces import Selection
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE, Space

#: Sets of groups that a contraction compares at most.
MOST_SETS = 1000


class FirstFit(Selection, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Select the lowest free processors, contiguous or not (LOC section 3, "Non-contiguous")."""

    anywhere = True

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose this many free processors with the lowest numbers."""
        return space.free.first(processors)


class Contiguous(Selection, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Select the lowest interval of consecutive free processors; refuse if there is none.

    This selection does not use the network.
    """

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose the beginning of the first interval of at least this many free processors."""
        more = processors - 1
        for first, last in space.free.intervals:
            if last - first >= more:
                return ProcSet.span(first, processors)
        return None


class FewNodes(Selection, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Select processors of as few nodes as possible; it accepts any free processors.

    If a node has enough free processors, the one with the fewest of them is taken (best fit).
    Otherwise the nodes with the most free processors are taken entirely, and best fit holds for the
    rest. Of equal nodes the one with the lowest numbers comes first.
    If several choices of groups have the right size for a contraction, those leave after which the
    job has processors on the fewest nodes, of equal choices the newest.
    """

    anywhere = True

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose this many free processors on few nodes."""
        parts = list(space.by_node(space.free).values())
        taken = []
        while processors > 0:
            enough = [part for part in parts if len(part) >= processors]
            part = min(enough, key=len) if enough else max(parts, key=len)
            parts.remove(part)
            taken.append(part.first(min(processors, len(part))))
            processors -= len(taken[-1])
        return ProcSet.union(taken)

    def leaving(
        self, space: Space, groups: Mapping[int, ProcSet], processors: int, others: ProcSet = NONE
    ) -> tuple[int, ...] | None:
        """Choose groups of exactly this many processors that leave; None if there are none.

        Parameters
        ----------
        groups : groups that may leave, oldest first.
        others : processors of the job's other groups.
        """
        newest = leaving_groups(groups, processors)
        if newest is None:
            return None
        fewest, best = _nodes_left(space, groups, newest, others), newest
        for leaving in islice(_subsets(list(groups.items()), processors), MOST_SETS):
            nodes = _nodes_left(space, groups, leaving, others)
            if nodes < fewest:
                fewest, best = nodes, leaving
        return best


def _nodes_left(
    space: Space, groups: Mapping[int, ProcSet], leaving: tuple[int, ...], others: ProcSet
) -> int:
    """Count the nodes on which a job has processors when some of its groups have left."""
    staying = [held for group, held in groups.items() if group not in leaving]
    return len(space.by_node(ProcSet.union([others, *staying])))


def _subsets(groups: list[tuple[int, ProcSet]], processors: int) -> Iterator[tuple[int, ...]]:
    """Sets of groups with exactly this many processors, those with the newest groups first."""
    if processors == 0:
        yield ()
        return
    if processors < 0 or sum(len(held) for _, held in groups) < processors:
        return
    *older, (group, held) = groups
    for rest in _subsets(older, processors - len(held)):
        yield (*rest, group)
    yield from _subsets(older, processors)
