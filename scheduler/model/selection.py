"""Processor selections: what one can do, and what it does unless its class says otherwise."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.model.groups import leaving_groups
from scheduler.model.network import Network
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE, Space


class Selection:
    """Chooses the processors of a group: the base of a class with typed parameters and `select`.

    Its members say what a selection can do. A subclass redefines those in which it differs::

        class Highest(Selection, msgspec.Struct, frozen=True):
            anywhere = True

            def select(self, space: Space, processors: int) -> ProcSet | None:
                return space.free.last(processors)

    Attributes
    ----------
    anywhere : whether it accepts any free processors, if there are enough.
    topology : the kind of network that it needs, "tree" or "mesh"; empty: none.
    searches_table : whether it has a method `place` that finds processors and a start on the
        reservation table (`scheduler.state.reservation_table.TableSelection`).
    """

    __slots__ = ()

    anywhere: bool = False
    topology: str = ""
    searches_table: bool = False

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose this many of the free processors; there are enough. None to refuse.

        If it accepts some processors, it must also accept some when more are free.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method select")

    def fits(self, space: Space, processors: int) -> bool:
        """Whether `select` would accept processors; a subclass may have a cheaper test for it."""
        return self.select(space, processors) is not None

    def keep(self, then: Space, now: Space, processors: int) -> ProcSet:
        """Processors free now that must stay free for a job that is to start later.

        By default they are those that the selection would choose then.

        Parameters
        ----------
        then : what will be free when the job starts; `select` accepts this many of it.
        """
        place = self.select(then, processors)
        return ProcSet() if place is None else place & now.free

    def leaving(
        self, space: Space, groups: Mapping[int, ProcSet], processors: int, others: ProcSet = NONE
    ) -> tuple[int, ...] | None:
        """Groups of a job that leave when it contracts; by default the newest of several choices.

        Parameters
        ----------
        groups : groups that may leave, oldest first.
        processors : how many processors are to leave.
        others : processors of the job's other groups.

        Returns
        -------
        groups of exactly this many processors; None if there are none.
        """
        return leaving_groups(groups, processors)

    def held(self, processors: int, per_node: int, network: Network | None) -> int:
        """Processors that a job of this many gets on an exclusive machine; by default whole nodes.

        Parameters
        ----------
        per_node : processors of a node.
        """
        return -(-processors // per_node) * per_node
