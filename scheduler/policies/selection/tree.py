"""Tree-contiguous: all processors of a group below one switch of a k-ary n-tree, as low as can be.

LOC: Pascual and Miguel-Alonso, Effects of job placement on scheduling performance, figure 1. Groups
of processors below a switch of the job's level (`Tree.level`) are looked through in order; the
first with enough free ones is taken, and in it the free processors of the lowest numbers.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from scheduler.model.procset import ProcSet
from scheduler.model.space import Space


class TreeContiguous(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Take processors below one switch of the job's level; none will do but such.

    Parameters
    ----------
    relax : how many levels above the job's own will do if there is no place at its own (LOC
        section 5 plans "one level above - just one"). The lowest level with a place is taken.

    Raises
    ------
    ValueError : fewer than 0 levels.
    """

    needs_network: ClassVar[bool] = True
    relax: int = 0

    def __post_init__(self) -> None:
        """Check the range."""
        if self.relax < 0:
            raise ValueError(f"relax must be >= 0, got {self.relax}")

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose so many free processors below the first switch that has them."""
        found = self._find(space, processors)
        if found is None:
            return None
        return space.free.between(*found).first(processors)

    def fits(self, space: Space, processors: int) -> bool:
        """Whether there is such a switch."""
        return self._find(space, processors) is not None

    def keep(self, then: Space, now: Space, processors: int) -> ProcSet:
        """Below the switch chosen then, what the processors that come back do not make up for.

        Others than those it will get may come to stand below the switch; it gets what is left.
        """
        found = self._find(then, processors)
        if found is None:
            return ProcSet()
        here = now.free.between(*found)
        back = then.free.between(*found).count() - here.count()
        return here.last(processors - back)

    def _find(self, space: Space, processors: int) -> tuple[int, int] | None:
        """First and last number below the switch."""
        tree = space.network
        assert tree is not None, "the core checked that there is a network"
        level = tree.level(processors)
        if level is None:
            return None
        for higher in range(level, min(level + self.relax, tree.levels) + 1):
            size = tree.below(higher)
            group = space.groups(size).first(processors)
            if group is not None and group * size < tree.processors:
                return group * size, (group + 1) * size - 1
        return None


class TreeRelaxed(TreeContiguous, frozen=True, forbid_unknown_fields=True):
    """Tree-contiguous, or one level above."""

    relax: int = 1
