"""Selections on the reservation table: first fit and its kin, LessConsume, RUA (GUIM 6.2.2, 7).

GUIM: F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures".

`place` finds processors and a start, now or later; `scheduler.policies.backfill.table_pass` calls
it. Elsewhere (a group that joins a running job) these selections take the lowest free processors.

`AnyOnTable` finds places on the table for selections that only choose among free processors.
"""

from __future__ import annotations

from typing import cast

import msgspec

from reshape.errors import check_ranges
from scheduler.model.interfaces import Selection
from scheduler.model.procset import ProcSet
from scheduler.model.space import Space
from scheduler.policies.selection.table_search import (
    first_fit,
    least_slowdown,
    less_consume,
    spread,
)
from scheduler.state.bitsets import bits_of, lowest_bits, set_of
from scheduler.state.reservation_table import Allocation, Request, ReservationTable, TableSelection


class OnTable(Selection, msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the selections on the table; it is first fit.

    A reservation holds certain processors; with the selection ``first-fit`` it holds a number.
    """

    anywhere = True
    searches_table = True

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose the lowest free processors; a pass over the table leaves only its own choice."""
        return space.free.first(processors)

    def place(self, table: ReservationTable, request: Request) -> Allocation | None:
        """Find processors and a start."""
        return first_fit(table, request)


class EquiDistribute(OnTable, frozen=True, forbid_unknown_fields=True):
    """Earliest start, the processes dealt to the nodes in turn (GUIM 4.7.3)."""

    def place(self, table: ReservationTable, request: Request) -> Allocation | None:
        """Find processors and a start."""
        return spread(table, request)


class LessConsume(OnTable, frozen=True, forbid_unknown_fields=True):
    """Start of first fit, on nodes where the processes are penalised less (GUIM 7.2, 7.6.1)."""

    def place(self, table: ReservationTable, request: Request) -> Allocation | None:
        """Find processors and a start, which is that of first fit."""
        return less_consume(table, request)


class LessConsumeThreshold(OnTable, frozen=True, forbid_unknown_fields=True):
    """LessConsume with later starts until the penalty factor is small enough (GUIM 7.3).

    Parameters
    ----------
    factor : largest accepted penalty factor; 1 accepts no penalty.

    Raises
    ------
    ValueError : the factor is below 1.
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        """Check the range."""
        check_ranges(self, factor=">= 1")

    def place(self, table: ReservationTable, request: Request) -> Allocation | None:
        """Find processors and a start."""
        return less_consume(table, request, self.factor)


class LeastSlowdown(OnTable, frozen=True, forbid_unknown_fields=True):
    """The best of several thresholds: the allocation of the least slowdown (GUIM 7.4).

    The slowdown is (wait + penalised run time) / run time, by the estimate of the job.

    Parameters
    ----------
    thresholds : penalty factors, tried in this order.

    Raises
    ------
    ValueError : no threshold, or one below 1.
    """

    thresholds: tuple[float, ...] = (1.0, 1.15, 1.25, 1.5)

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not self.thresholds or not min(self.thresholds) >= 1:
            raise ValueError(f"thresholds must be >= 1, at least one, got {self.thresholds}")

    def place(self, table: ReservationTable, request: Request) -> Allocation | None:
        """Find processors and a start."""
        return least_slowdown(table, request, self.thresholds)


def table_selection(selection: Selection, space: Space) -> TableSelection:
    """Return the selection if it searches the table itself, else `AnyOnTable` with it."""
    if selection.searches_table:
        return cast("TableSelection", selection)
    return AnyOnTable(selection, space)


class AnyOnTable:
    """Lets a selection choose at the first time at which it accepts processors.

    For a selection that accepts any processors, a start now takes those that an exclusion keeps
    from later jobs before others, and a later start takes those that are used now before those that
    are free. So other jobs have as many processors as possible.

    Parameters
    ----------
    selection : processor selection.
    space : of the machine, with its network and its division by node.
    """

    def __init__(self, selection: Selection, space: Space) -> None:
        self._selection, self._space = selection, space

    def place(self, table: ReservationTable, request: Request) -> Allocation | None:
        """Find processors and a start."""
        needed = request.processors
        times = table.free(needed, request.length_s, request.after, request.latest)
        for begin, free in times:
            if self._selection.anywhere:
                return Allocation(set_of(self._any(table, free, needed)), begin)
            selected = self._select(free, needed)
            if selected:
                return Allocation(set_of(selected), begin)
        return None

    def _any(self, table: ReservationTable, free: int, needed: int) -> int:
        """Choose this many of the free processors, as bits."""
        used = free & ~table.free_bits
        if used:
            return _filled(lowest_bits(used, needed), free, needed)
        limited = lowest_bits(free & table.excluded_bits, needed)
        rest = needed - limited.bit_count()
        return limited | (self._select(free & ~limited, rest) if rest else 0)

    def _select(self, free: int, needed: int) -> int:
        """Processors that the selection chooses, as bits; 0 if it refuses."""
        space = Space(set_of(free), self._space.network, self._space.by_node)
        selected = self._selection.select(space, needed)
        return 0 if selected is None else bits_of(selected) & free


def _filled(bits: int, free: int, needed: int) -> int:
    """Chosen bits and the lowest others, so that there are enough."""
    missing = needed - bits.bit_count()
    return bits | lowest_bits(free & ~bits, missing) if missing else bits
