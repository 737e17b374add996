"""Where messages lie in arrays, against the order in which packing takes the elements."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redistribution_cases import draw_case, empty_part

from redistribution import BlockCyclic, Cuts, Plan
from redistribution.copies.copying import Copy, copy, of_array, of_message
from redistribution.copies.stretches import Stretches, in_place
from redistribution.plan import pieces


def places(stretches):
    """Every byte of a message in its turn, as an offset from the first byte of the region."""
    found = [0]
    for rows in stretches.axes:
        here = []
        for row in rows:
            for k in range(row.repeats):
                start = row.start + k * row.step
                if rows is stretches.axes[0]:
                    here += range(start, start + row.length)
                else:
                    assert row.length == 1
                    here += [start + place for place in found]
        found = here
    return [stretches.offset + place for place in found]


@settings(max_examples=600, deadline=None)
@given(st.data(), st.integers(1, 200))
def test_stretches_hold_the_bytes_of_a_message_in_its_order(data, limit):
    case = draw_case(lambda low, high: data.draw(st.integers(low, high)), ranks=5)
    plan, size, order = case.plan, case.dtype.itemsize, case.order
    for rank, process in plan.source_process.items():
        a = empty_part(plan.source, process, case.dtype, case.a_kind)
        region = of_array(a, "source")
        region.memory[...] = np.random.default_rng(1).integers(0, 256, region.memory.size)
        for transfer in plan.outgoing(rank):
            for piece in pieces(transfer, limit, order):
                message = np.zeros(piece.elements * size, np.uint8)
                copy(size, Copy(piece, region, of_message(piece, message, size, order)))
                found = Stretches.of(piece, size, region, order)
                where = places(found)
                np.testing.assert_array_equal(region.memory[where], message)
                assert found.nbytes == message.size
                gaps = sum(one + 1 != other for one, other in pairwise(where))
                assert gaps < found.number
                ready = in_place(piece, size, region, order)
                assert (ready is None) == (found.number > 1)
                if ready is not None:
                    np.testing.assert_array_equal(ready, message)


@pytest.mark.parametrize("n", [4096, 4100])
@pytest.mark.parametrize("block", [8, 100])
def test_rows_that_were_dealt_out_are_whole_on_the_other_side(n, block):
    """By columns of processes before, by rows after: the receiver has whole columns of blocks."""
    plan = Plan(*(BlockCyclic((n, n), (block, block), grid) for grid in ((1, 2), (2, 1))))
    (sent,) = (t for t in plan.outgoing(0) if t.peer == 1)
    source, target = (
        of_array(np.empty(layout.local_shape(p), order="F"), place)
        for layout, p, place in ((plan.source, 0, "source"), (plan.target, 1, "target"))
    )
    columns = -(-n // block // 2)
    assert Stretches.of(sent, 8, target, "F").number <= columns + 1
    assert (
        Stretches.of(sent, 8, source, "F").number >= (columns - 1) * plan.source.local_shape(0)[1]
    )


def test_an_axis_that_stays_divided_as_it_was_is_one_run():
    for n in (4096, 4100):
        plan = Plan(*(BlockCyclic((n, n), (100, 100), grid) for grid in ((2, 2), (2, 3))))
        for rank in range(plan.size):
            for transfer in plan.outgoing(rank):
                along, across = transfer.runs
                assert [(run.length, run.repeats) for run in along] == [(transfer.shape[0], 1)]
                assert len(across) <= 2


def test_a_run_that_the_end_cuts_off_leaves_the_others_whole():
    plan = Plan(BlockCyclic((1050,), (100,), (2,)), Cuts.even((1050,), 1))
    lengths = [(run.length, run.repeats) for run in plan.outgoing(0)[0].runs[0]]
    assert lengths == [(100, 5), (50, 1)]
