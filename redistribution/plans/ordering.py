"""In which turn the messages of a plan go: steps in which no rank sends twice or receives twice.

An ordering gives every pair of ranks a step; each step is a partial matching of senders and
receivers, so ranks that keep step never wait for one another. Runs do not wait between steps:
the ordering is the order in which each rank begins its messages.

rotation
    Step d takes every rank r to r + d. Right for any plan; up to as many steps as ranks.
circulant
    With equal blocks, source coordinate i and target coordinate j of an axis share elements only
    if i and j agree modulo g, the greatest common divisor of both numbers of coordinates. So the
    processes form groups, each of some a senders and b receivers that all exchange with all.
    Rotating within the groups takes max(a, b) steps, the fewest possible. These are the circulant
    schedules of Park, Prasanna, Raghavendra (IEEE TPDS 1999) in one dimension, and of Sudarsan
    and Ribbens (ISPA 2007) in two, but that senders and receivers are numbered through all axes:
    axis by axis, a grid that grows on one and shrinks on another would take more steps than it
    must. With g = 1 they hold for blocks of any lengths.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from redistribution.plans.runs import JointAxis

if TYPE_CHECKING:
    from redistribution.layout import Layout
    from redistribution.plan import Plan


def rotation(plan: Plan) -> Callable[[int, int], int]:
    """Step of (sending rank, receiving rank): their distance on the ring of all ranks."""

    def turn(sender: int, receiver: int) -> int:
        return (receiver - sender) % plan.size if sender != receiver else -1

    return turn


def circulant(plan: Plan) -> Callable[[int, int], int]:
    """Step of (sending rank, receiving rank): rotate within groups that exchange all with all."""
    groups = [_groups(axis) for axis in plan.joint]
    givers = [parts // g for parts, g in zip(plan.source.parts, groups, strict=True)]
    takers = [parts // g for parts, g in zip(plan.target.parts, groups, strict=True)]
    senders, receivers = math.prod(givers), math.prod(takers)
    copy_turns = _copy_turns(plan)

    def number(layout: Layout, process: int, extents: list[int]) -> int:
        """Place of a process in its group, row-major."""
        place = 0
        axes = zip(layout.coordinates(process), groups, extents, strict=True)
        for coordinate, g, extent in axes:
            place = place * extent + coordinate // g
        return place

    def turn(sender: int, receiver: int) -> int:
        if sender == receiver:
            return -1
        target = plan.target_process[receiver]
        giver = number(plan.source, plan.source_process[sender], givers)
        taker = number(plan.target, target, takers)
        # The smaller side all takes part in every step, the larger one in its turn.
        apart = (taker - giver) % receivers if senders <= receivers else (giver - taker) % senders
        return copy_turns[target] * max(senders, receivers) + apart

    return turn


def steps(plan: Plan) -> list[list[tuple[int, int]]]:
    """The whole schedule: for each step the pairs (sending rank, receiving rank), for inspection.

    Steps in which nothing is sent are left out, as is what stays on its rank.
    """
    found: dict[int, list[tuple[int, int]]] = {}
    for sender in plan.source_ranks:
        for transfer in plan.outgoing(sender):
            if transfer.peer != sender:
                turn = plan.turn(sender, transfer.peer)
                found.setdefault(turn, []).append((sender, transfer.peer))
    return [found[turn] for turn in sorted(found)]


def _groups(axis: JointAxis) -> int:
    """Largest g such that coordinates share elements only if they agree modulo g."""
    i, j = axis.elements.nonzero()
    return math.gcd(*axis.elements.shape, *set((i - j).tolist()))


def _copy_turns(plan: Plan) -> list[int]:
    """For each target process, how many with its coordinates the same source copy feeds before."""
    grid = math.prod(plan.target.parts)
    fed: Counter[tuple[int, int]] = Counter()
    turns = []
    for target, copy in enumerate(plan.feeding_copy):
        turns.append(fed[target % grid, copy])
        fed[target % grid, copy] += 1
    return turns
