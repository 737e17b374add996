"""Boxes of nodes: the most compact box for a number of nodes, and its rotations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations
from math import prod


@lru_cache(maxsize=4096)
def box(dims: tuple[int, ...], nodes: int) -> tuple[int, ...] | None:
    """Sides of the most compact box with at least this many nodes, longest first.

    The box has the smallest sum of sides, of equals the fewest nodes, then the shortest longest
    side. None if the whole machine has fewer nodes.

    Parameters
    ----------
    dims : nodes along each dimension of the machine.
    """
    limits = sorted(dims, reverse=True)
    best: tuple[int, int, tuple[int, ...]] | None = None
    for sides in _boxes(nodes, limits, limits[0]):
        rank = sum(sides), prod(sides), sides
        if best is None or rank < best:
            best = rank
    return None if best is None else best[2]


def _boxes(nodes: int, limits: list[int], longest: int) -> Iterator[tuple[int, ...]]:
    """Boxes of descending sides, none of which can be shorter with its other sides unchanged."""
    most = min(longest, limits[0])
    if len(limits) == 1:
        if nodes <= most:
            yield (nodes,)
        return
    for side in range(1, most + 1):
        rest = -(-nodes // side)
        if rest <= side ** (len(limits) - 1):
            for others in _boxes(rest, limits[1:], side):
                yield (side, *others)


def wider(dims: tuple[int, ...], sides: tuple[int, ...]) -> tuple[int, ...]:
    """Sides that are one longer each, but not longer than the machine; longest first."""
    limits = sorted(dims, reverse=True)
    return tuple(min(side + 1, most) for side, most in zip(sides, limits, strict=True))


@lru_cache(maxsize=4096)
def rotations(dims: tuple[int, ...], sides: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Rotations of a box that fit into the machine, each once, in ascending order."""
    return sorted(
        turned
        for turned in set(permutations(sides))
        if all(side <= most for side, most in zip(turned, dims, strict=True))
    )
