"""Steps 1 to 6 of LessConsume: improve the allocation of first fit at a start (GUIM 7.2)."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf

from scheduler.state.bitsets import lowest_bits, set_of
from scheduler.state.reservation_table import Allocation, Request, ReservationTable


class Improved:
    """Allocation of a search: its start (s), its penalty factor, and its processors as bits."""

    def __init__(self, begin: float, factor: float, bits: int) -> None:
        self.begin = begin
        self.factor = factor
        self.bits = bits

    def penalised_end(self, length_s: float) -> float:
        """End of a job of this run time with its penalties, s."""
        return self.begin + self.factor * length_s

    def allocation(self) -> Allocation:
        """Make the result of the search."""
        return Allocation(set_of(self.bits), self.begin, self.factor)


class Improvements:
    """Possible starts of a job, and the allocations that LessConsume finds from each.

    Parameters
    ----------
    table, request : see `TableSelection`.

    Attributes
    ----------
    sweep : (time, bits of the processors that are free then for the length of the job), as far as
        the search has come.
    meets_all : whether there is a start without any penalty.
    useful_until : time after which no allocation can be the result, s.
    """

    def __init__(self, table: ReservationTable, request: Request) -> None:
        self._table, self._request = table, request
        self.sweep: list[tuple[float, int]] = []
        self._rest = table.free(1, request.length_s, request.after)
        self._factors: list[dict[int, float]] = []  # by node, for each time of the sweep
        self._is_over = False
        own = 0.0 if table.capacity is None else table.capacity.penalty(request.demand)
        self.useful_until = request.latest if request.latest <= request.after else inf
        self.meets_all = own == 0 and table.is_finite

    def starts(self) -> Iterator[int]:
        """Indices in the sweep of the times at which enough processors are free."""
        i = 0
        while self._reach(i) and self.sweep[i][0] <= self._request.latest:
            if self.sweep[i][1].bit_count() >= self._request.processors:
                yield i
            i += 1

    def improve(self, i: int, accepted: float) -> list[Improved]:
        """Allocations from that of first fit at a start on, each with no higher penalty factor.

        A set that is valid replaces the last one unless its largest penalty is higher: a bucket
        that step 5 (a) adds may have any penalty. The search ends with a factor of at most
        `accepted`, or when all buckets were tried; if the job can only start at once, also with the
        first allocation that starts later, since the next ones do as well.
        """
        begin, free = self.sweep[i]
        chosen = lowest_bits(free, self._request.processors)
        worst = max([self._factor(node, i) for node in self._table.nodes(chosen)])
        found = [Improved(begin, worst, chosen)]
        if worst > accepted:
            Replacement(self, self._table, i, chosen).run(accepted, found)
        return found

    def buckets(self, i: int, chosen: int) -> Iterator[tuple[int, int, float]]:
        """Other buckets than the chosen ones, ascending in begin and number.

        Those of one node that begin together come together.

        Yields
        ------
        (index of their begin in the sweep, bits, penalty factor).
        """
        table, seen = self._table, chosen
        while self._reach(i):
            bits = self.sweep[i][1] & ~seen
            seen |= bits
            while bits:
                node = table.node((bits & -bits).bit_length() - 1)
                here = bits & table.on_node(node)
                bits ^= here
                yield i, here, self._factor(node, i)
            i += 1

    def base(self, i: int, chosen: int) -> list[tuple[float, int, int]]:
        """Entries of a heap for chosen buckets, see `Replacement`."""
        entries: list[tuple[float, int, int]] = []
        for node in self._table.nodes(chosen):
            factor = self._factor(node, i)
            here = chosen & self._table.on_node(node)
            while here:
                bit = here & -here
                here ^= bit
                entries.append((-factor, len(entries), bit))
        heapify(entries)
        return entries

    def length_s(self) -> float:
        """Run time of the job without penalties, s."""
        return self._request.length_s

    def _reach(self, i: int) -> bool:
        """Continue the sweep up to an index; return whether it has it."""
        while i >= len(self.sweep) and not self._is_over:
            reached = next(self._rest, None)
            if reached is None:
                self._is_over = True
            else:
                self.sweep.append(reached)
                self._factors.append({})
        return i < len(self.sweep)

    def _factor(self, node: int, i: int) -> float:
        """Penalty factor on a node from a time of the sweep on."""
        known = self._factors[i]
        found = known.get(node)
        if found is None:
            found = known[node] = self._table.factor(node, self.sweep[i][0], self._request)
        return found


class Replacement:
    """Step 5: the chosen buckets, of which the worst is replaced by each bucket that is better.

    Parameters
    ----------
    search, table : of the job.
    i : index of the start in the sweep.
    chosen : bits of the processors of the first allocation.
    """

    def __init__(self, search: Improvements, table: ReservationTable, i: int, chosen: int) -> None:
        self._search, self._table = search, table
        self._start = i
        self._chosen = self._first = chosen
        self._count = self._needed = chosen.bit_count()
        self._begin = search.sweep[i][0]
        #: (- factor, number in the order of choice, bit), also of buckets that left the chosen ones
        self._entries = search.base(i, chosen)
        self._numbered = len(self._entries)
        self._limited: list[tuple[float, int]] = []  # (end, bit) of buckets before a reservation
        self._note_end(chosen, self._begin)

    def run(self, accepted: float, found: list[Improved]) -> None:
        """Add the allocations to those found until a penalty factor is accepted."""
        worst = -self._entries[0][0]
        for i, bits, factor in self._search.buckets(self._start, self._first):
            while bits and (self._count < self._needed or factor < worst):
                bit = bits & -bits
                bits ^= bit
                if self._count == self._needed:
                    self._drop(self._entries[0][2])
                self._add(bit, factor, self._search.sweep[i][0])
                while not self._entries[0][2] & self._chosen:
                    heappop(self._entries)
                worst = -self._entries[0][0]
                if self._count == self._needed and worst <= found[-1].factor:
                    found.append(Improved(self._begin, worst, self._chosen))
                    if worst <= accepted or self._begin > self._search.useful_until:
                        return

    def _add(self, bit: int, factor: float, begin: float) -> None:
        """Add a bucket; those that share too little time with it leave."""
        heappush(self._entries, (-factor, self._numbered, bit))
        self._numbered += 1
        self._chosen |= bit
        self._count += 1
        if begin > self._begin:
            self._begin = begin
            until = begin + self._search.length_s()
            for end, limited in self._limited:
                if end < until:
                    self._drop(limited)
            self._limited = [each for each in self._limited if each[0] >= until]
        self._note_end(bit, begin)

    def _drop(self, bit: int) -> None:
        if self._chosen & bit:
            self._chosen ^= bit
            self._count -= 1

    def _note_end(self, bits: int, begin: float) -> None:
        """Note the ends of buckets that a reservation limits."""
        bits &= self._table.limited_bits
        while bits:
            bit = bits & -bits
            bits ^= bit
            end = self._table.free_until(bit.bit_length() - 1, begin)
            self._limited.append((end, bit))
