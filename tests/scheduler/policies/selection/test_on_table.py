"""Selections on the reservation table: the worked examples of GUIM, and slow twins."""

from __future__ import annotations

from math import inf
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.procset import ProcSet
from scheduler.model.sharing import SharedCapacity
from scheduler.policies.selection.on_table import (
    EquiDistribute,
    LeastSlowdown,
    LessConsume,
    LessConsumeThreshold,
    OnTable,
)
from scheduler.state.bitsets import set_of
from scheduler.state.reservation_table import Request, ReservationTable


def used(table: ReservationTable, *uses: tuple[int, float, float]) -> ReservationTable:
    for processor, begin, end in uses:
        table.reserve(ProcSet.of([processor]), begin, end)
    return table


def by_begin(table: ReservationTable, after: float, length_s: float) -> list[int]:
    """Processors by the begins of their first buckets that are long enough."""
    order: dict[int, None] = {}
    for _, bits in table.free(1, length_s, after):
        order |= dict.fromkeys(set_of(bits))
    return list(order)


def figure_6_4() -> ReservationTable:
    """Table of figures 6.4 and 6.5, which are lost: reconstructed from their prose (GUIM 6.2.2).

    Processors 1 to 6 have the buckets b1 to b6, 7 to 9 first b7 to b9, later b10 to b12, and 10 has
    b13. By their begins the buckets are b1, b2, b7, b8, b9, b3 to b6, and b13; t0 is 5, t1 is 30.
    """
    begins = {3: 30.0, 4: 30.0, 5: 30.0, 6: 30.0, 8: 5.0, 9: 10.0, 10: 60.0}
    table = ReservationTable(ProcSet.span(1, 10))
    used(table, *((processor, 0.0, end) for processor, end in begins.items()))
    return used(table, *((processor, 45.0, 50.0) for processor in (7, 8, 9)))


def test_figure_6_4_first_fit() -> None:
    table = figure_6_4()
    order = by_begin(table, 0.0, 30.0)
    assert order == [1, 2, 7, 8, 9, 3, 4, 5, 6, 10]
    request = Request(3, 30.0)
    assert OnTable().place(table, request) == (ProcSet.parse("1-2 7"), 0.0, 1.0)


def test_figure_6_5_a_later_start() -> None:
    """Six processors for 20 s: b1, b2 and b7 to b9 do not suffice; at t1 b1 to b6 do."""
    table = figure_6_4()
    at_t1 = by_begin(table, 30.0, 20.0)
    assert at_t1 == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    found = OnTable().place(table, Request(6, 20.0))
    assert found == (ProcSet.parse("1-6"), 30.0, 1.0)
    assert OnTable().place(table, Request(6, 20.0, latest=29.0)) is None
    assert OnTable().place(table, Request(11, 20.0)) is None


def figure_7_1(b17: float) -> ReservationTable:
    """Table of figures 7.1 to 7.7, which are lost: reconstructed from the prose of GUIM 7.2.

    Nodes have 4 processors, a process of the job demands 60 of 100. b1 to b3 are on node 0, and two
    of these processes are too many for a node; b7 is on node 1, b17 on 2, b4 and b5 on 3, where
    others demand 61, b6, b11 and b12 on 4, and b14 on 5. The other processors demand 1.

    Parameters
    ----------
    b17 : begin of b17.
    """
    table = ReservationTable(ProcSet.span(0, 24), SharedCapacity(4, {"bandwidth": 100}))
    light = (1.0,)
    table.reserve(ProcSet.parse("3 5-7 9-11 19 21-23"), 0.0, inf, light)
    table.reserve(ProcSet.of([14]), 0.0, inf, (61.0,))
    table.reserve(ProcSet.of([15]), 0.0, inf)
    table.reserve(ProcSet.of([4]), 40.0, inf, light)  # b7 ends at 40
    for processors, begin in (("12-13", 10.0), ("16", 30.0), ("17-18", 32.0), ("20", 35.0)):
        table.reserve(ProcSet.parse(processors), 0.0, begin)
    if b17:
        table.reserve(ProcSet.of([8]), 0.0, b17)
    return table


REQUEST_OF_7_2 = Request(3, 20.0, (60.0,))


def test_figures_7_1_to_7_4_less_consume_keeps_the_start_of_first_fit() -> None:
    """b1 to b3 penalise each other, so b3 has no penalty once b7 and b17 replaced b1 and b2."""
    table = figure_7_1(0.0)
    assert by_begin(table, 0.0, 20.0)[:7] == [0, 1, 2, 4, 8, 12, 13]
    first = OnTable().place(table, REQUEST_OF_7_2)
    assert first == (ProcSet.parse("0-2"), 0.0, pytest.approx(1.81))
    assert LessConsume().place(table, REQUEST_OF_7_2) == (ProcSet.parse("2 4 8"), 0.0, 1.0)


def test_figures_7_5_to_7_7_a_later_start_is_that_of_a_threshold() -> None:
    """LessConsume improves first fit without a deeper search (7.6.1); b3, b6 and b14 start at 35.

    b4 and b5 are as bad as b2, and b11 and b12 share the node of b6, "none of the jobs of the
    process can be allocated to the same node with a penalty one" (7.2).
    """
    table = figure_7_1(60.0)
    assert by_begin(table, 0.0, 20.0) == [0, 1, 2, 4, 12, 13, 16, 17, 18, 20, 8]
    less = LessConsume().place(table, REQUEST_OF_7_2)
    assert less == (ProcSet.parse("1-2 4"), 0.0, pytest.approx(1.21))
    later = LessConsumeThreshold(1.0).place(table, REQUEST_OF_7_2)
    assert later == (ProcSet.parse("2 16 20"), 35.0, 1.0)


def test_processes_of_one_job_are_neighbours_of_each_other() -> None:
    """Three processes of 40 are too many for a node of 100; two on each of two nodes are not."""
    table = ReservationTable(ProcSet.span(0, 8), SharedCapacity(4, {"bandwidth": 100}))
    request = Request(4, 10.0, (40.0,))
    assert OnTable().place(table, request) == (ProcSet.span(0, 4), 0.0, pytest.approx(1.6))
    assert EquiDistribute().place(table, request) == (ProcSet.parse("0-1 4-5"), 0.0, 1.0)
    assert LessConsume().place(table, request) == (ProcSet.parse("2-5"), 0.0, 1.0)
    assert LeastSlowdown().place(table, request) == (ProcSet.parse("2-5"), 0.0, 1.0)
    crowded = request._replace(processors=6)
    assert LessConsumeThreshold().place(table, crowded) == (
        ProcSet.parse("1-6"), 0.0, pytest.approx(1.2),
    )  # fmt: skip


def saturated(until: float) -> ReservationTable:
    """One node of four processors, two of which use all until a time."""
    table = ReservationTable(ProcSet.span(0, 4), SharedCapacity(4, {"bandwidth": 100}))
    table.reserve(ProcSet.span(0, 2), 0.0, until, (50.0,))
    return table


def test_thresholds() -> None:
    """A process of 40 has a penalty of 0.4 beside the others, by share of the time with them."""
    request = Request(1, 100.0, (40.0,))
    table = saturated(100.0)
    table.reserve(ProcSet.of([3]), 0.0, 25.0)
    table.reserve(ProcSet.of([2]), 0.0, 50.0)
    first = LessConsumeThreshold(1.5).place(table, request)
    assert first == (ProcSet.of([3]), 25.0, pytest.approx(1.3))
    assert LessConsumeThreshold(1.25).place(table, request) == (
        ProcSet.of([2]), 50.0, pytest.approx(1.2),
    )  # fmt: skip
    assert LessConsumeThreshold(1.0).place(table, request) == (ProcSet.of([0]), 100.0, 1.0)
    now = request._replace(latest=25.0)
    assert LessConsumeThreshold(1.0).place(table, now) is None
    assert LessConsume().place(table, request) == first  # at the start of first fit


def test_a_process_that_is_too_much_alone_starts_at_once() -> None:
    table = saturated(10.0)
    found = LessConsumeThreshold(1.0).place(table, Request(1, 100.0, (150.0,)))
    assert found is not None
    assert found == (ProcSet.of([0]), 10.0, pytest.approx(1.5))


def test_least_slowdown_weighs_waiting_against_the_penalty() -> None:
    short, long = Request(1, 20.0, (40.0,)), Request(1, 1000.0, (40.0,))
    rua = LeastSlowdown()
    assert rua.place(saturated(100.0), short) == (ProcSet.of([2]), 0.0, pytest.approx(1.4))
    assert rua.place(saturated(990.0), long) == (ProcSet.of([2]), 0.0, pytest.approx(1.396))
    # 0.4 for 5 of 20 s costs 2 s, waiting for less 5 s; beside a demand of 120 it costs 6 s.
    assert rua.place(saturated(5.0), short) == (ProcSet.of([2]), 0.0, pytest.approx(1.1))
    heavy = short._replace(demand=(120.0,))
    assert rua.place(saturated(5.0), heavy) == (ProcSet.of([0]), 5.0, pytest.approx(1.2))
    assert rua.place(saturated(5.0), heavy._replace(latest=0.0)) is None


def test_least_slowdown_takes_the_first_allocation_that_meets_a_threshold() -> None:
    """From 0 on, factors fall from 1.4 to 1.1 to 1.05; the first start that meets 1 is 300."""
    table = ReservationTable(ProcSet.span(0, 12), SharedCapacity(4, {"bandwidth": 100}))
    for node, demand in enumerate((100.0, 70.0, 65.0)):
        table.run(node, ProcSet.of([4 * node + 1]), 300.0, (demand,))
        table.reserve(ProcSet.of([4 * node]), 250.0, 450.0, (100.0,))
    found = LeastSlowdown().place(table, Request(1, 100.0, (40.0,)))
    assert found == (ProcSet.of([4]), 0.0, pytest.approx(1.1))


def test_equi_distribute_deals_processes_to_nodes() -> None:
    table = ReservationTable(ProcSet.span(0, 12), SharedCapacity(4, {"bandwidth": 100}))
    assert EquiDistribute().place(table, Request(5, 9.0)) == (
        ProcSet.parse("0-1 4-5 8"), 0.0, 1.0,
    )  # fmt: skip


def test_wrong_factors() -> None:
    with pytest.raises(ValueError, match="factor must be >= 1"):
        LessConsumeThreshold(0.5)
    with pytest.raises(ValueError, match="at least one"):
        LeastSlowdown(())


#: (processor, begin, length or end, demand) of each use, s.
Uses: TypeAlias = list[tuple[int, int, int, int]]
USES = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 20), st.integers(1, 12), st.integers(0, 60)),
    max_size=14,
)


def table_of(
    uses: Uses,
) -> tuple[ReservationTable, list[tuple[int, int, int, int]]]:
    """Table and the uses in it: those that overlap an earlier one are left out."""
    table = ReservationTable(ProcSet.span(0, 8), SharedCapacity(4, {"bandwidth": 100}))
    kept: Uses = []
    for processor, begin, length, demand in uses:
        end = begin + length
        if all(p != processor or end <= b or e <= begin for p, b, e, _ in kept):
            kept.append((processor, begin, end, demand))
            table.reserve(ProcSet.of([processor]), float(begin), float(end), (float(demand),))
    return table, kept


@given(USES, st.integers(1, 8), st.integers(1, 9), st.integers(0, 10))
def test_starts_are_those_of_the_slow_twin(
    uses: Uses, needed: int, length: int, after: int
) -> None:
    """The twin looks at each second and each processor."""
    table, kept = table_of(uses)

    def free(at: int) -> list[int]:
        busy = {p for p, b, e, _ in kept if b < at + length and e > at}
        return [p for p in range(8) if p not in busy]

    request = Request(needed, float(length), after=float(after))
    at = next(t for t in range(after, 50) if len(free(t)) >= needed)
    first = OnTable().place(table, request)
    assert first is not None
    assert (list(first.processors), first.begin) == (free(at)[:needed], at)


@given(
    USES, st.integers(0, 1), st.integers(1, 9), st.integers(0, 90), st.integers(0, 20),
    st.integers(1, 4),
)  # fmt: skip
def test_factors_are_those_of_the_slow_twin(
    uses: Uses, number: int, length: int, demand: int, at: int, count: int
) -> None:
    """The twin adds up the penalty of each second."""
    table, kept = table_of(uses)
    node = [(b, e, d) for p, b, e, d in kept if p // 4 == number]
    added = 0.0
    for second in range(at, at + length):
        total = count * demand + sum(d for b, e, d in node if b <= second < e)
        added += max(total, 100) / 100 - 1
    request = Request(1, float(length), (float(demand),))
    found = table.factor(number, float(at), request, count)
    assert found == pytest.approx(1 + added / length)


@given(USES, st.integers(1, 8), st.integers(1, 9), st.integers(0, 90))
def test_less_consume_is_valid_and_no_worse_than_first_fit(
    uses: Uses, needed: int, length: int, demand: int
) -> None:
    table, kept = table_of(uses)
    request = Request(needed, float(length), (float(demand),))
    first, less = OnTable().place(table, request), LessConsume().place(table, request)
    assert first is not None
    assert less is not None
    assert len(less.processors) == needed
    assert less.factor <= first.factor + 1e-9
    assert less.begin == first.begin
    for p, b, e, _ in kept:
        if p in less.processors:
            assert e <= less.begin or b >= less.begin + length
    strict = LessConsumeThreshold(1.0).place(table, request)
    assert strict is not None
    assert strict.factor == 1 or strict.begin < inf
