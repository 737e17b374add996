"""Tree-contiguous: all processors of a group below one switch of a k-ary n-tree, of a low level.

LOC: Pascual and Miguel-Alonso, Effects of job placement on scheduling performance, figure 1. The
switches of the job's level (`Tree.level`) are searched in order. The first one with enough free
processors below it is taken, and of these processors those with the lowest numbers.
"""

from __future__ import annotations

import msgspec

from scheduler.model.network import Tree
from scheduler.model.procset import ProcSet
from scheduler.model.selection import Selection
from scheduler.model.space import Space


class TreeContiguous(Selection, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Select processors below one switch of the job's level; refuse if no switch has enough.

    Parameters
    ----------
    relax : number of levels above the job's level that are searched in turn if there is no place at
        its own (LOC section 5 plans "one level above - just one").

    Raises
    ------
    ValueError : `relax` is below 0.
    """

    topology = "tree"
    relax: int = 0

    def __post_init__(self) -> None:
        """Check the range."""
        if self.relax < 0:
            raise ValueError(f"relax must be >= 0, got {self.relax}")

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose this many free processors below the first switch that has them."""
        interval = self._find(space, processors)
        if interval is None:
            return None
        return space.free.between(*interval).first(processors)

    def fits(self, space: Space, processors: int) -> bool:
        """Whether a switch has this many free processors."""
        return self._find(space, processors) is not None

    def keep(self, then: Space, now: Space, processors: int) -> ProcSet:
        """Processors that must stay free for a job that starts later.

        They lie below the switch that the job will be given, and are as many as the processors that
        will be released below it do not provide. Other jobs may use the rest below that switch.
        """
        interval = self._find(then, processors)
        if interval is None:
            return ProcSet()
        here = now.free.between(*interval)
        back = then.free.between(*interval).count() - here.count()
        return here.last(processors - back)

    def _find(self, space: Space, processors: int) -> tuple[int, int] | None:
        """First and last processor number below the switch; None if no switch has enough."""
        tree = space.network
        assert isinstance(tree, Tree), "the core checked the network"
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
    """Tree-contiguous selection that also accepts a switch one level above the job's own."""

    relax: int = 1
