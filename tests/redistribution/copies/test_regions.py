"""Byte ranges of messages in arrays, compared with packed messages."""

from itertools import pairwise

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from redistribution_cases import draw_case, empty_part

from redistribution import BlockCyclic, Cuts, Plan
from redistribution.copies.copying import Copy, copy
from redistribution.copies.regions import (
    ByteRanges,
    array_region,
    contiguous_message,
    message_region,
)
from redistribution.runs import pieces


def offsets_of(ranges):
    """Offset of every byte of a message from the first byte of the region, in message order."""
    found = [0]
    for families in ranges.axes:
        here = []
        for family in families:
            for k in range(family.repeats):
                start = family.start + k * family.step
                if families is ranges.axes[0]:
                    here += range(start, start + family.length)
                else:
                    assert family.length == 1
                    here += [start + place for place in found]
        found = here
    return [ranges.offset + place for place in found]


@examples(600)
@given(st.data(), st.integers(1, 200))
def test_ranges_are_the_bytes_of_a_message_in_its_order(data, limit):
    case = draw_case(lambda low, high: data.draw(st.integers(low, high)), ranks=5)
    plan, size, order = case.plan, case.dtype.itemsize, case.order
    for rank, process in plan.source_process.items():
        a = empty_part(plan.source, process, case.dtype, case.a_kind)
        region = array_region(a, "source")
        region.memory[...] = np.random.default_rng(1).integers(0, 256, region.memory.size)
        for transfer in plan.outgoing(rank):
            for piece in pieces(transfer, limit, order):
                message = np.zeros(piece.elements * size, np.uint8)
                copy(size, Copy(piece, region, message_region(piece, message, size, order)))
                found = ByteRanges.of(piece, size, region, order)
                where = offsets_of(found)
                np.testing.assert_array_equal(region.memory[where], message)
                assert found.nbytes == message.size
                gaps = sum(one + 1 != other for one, other in pairwise(where))
                assert gaps < found.number
                ready = contiguous_message(piece, size, region, order)
                assert (ready is None) == (found.number > 1)
                if ready is not None:
                    np.testing.assert_array_equal(ready, message)


@pytest.mark.parametrize("n", [4096, 4100])
@pytest.mark.parametrize("block", [8, 100])
def test_rows_that_are_divided_on_one_side_are_whole_on_the_other(n, block):
    """From columns of processes to rows: the receiver has whole columns of blocks."""
    plan = Plan(*(BlockCyclic((n, n), (block, block), grid) for grid in ((1, 2), (2, 1))))
    (sent,) = (t for t in plan.outgoing(0) if t.peer == 1)
    source, target = (
        array_region(np.empty(layout.local_shape(p), order="F"), place)
        for layout, p, place in ((plan.source, 0, "source"), (plan.target, 1, "target"))
    )
    columns = -(-n // block // 2)
    assert ByteRanges.of(sent, 8, target, "F").number <= columns + 1
    assert (
        ByteRanges.of(sent, 8, source, "F").number >= (columns - 1) * plan.source.local_shape(0)[1]
    )


def test_an_axis_with_unchanged_division_is_one_run():
    for n in (4096, 4100):
        plan = Plan(*(BlockCyclic((n, n), (100, 100), grid) for grid in ((2, 2), (2, 3))))
        for rank in range(plan.size):
            for transfer in plan.outgoing(rank):
                along, across = transfer.runs
                assert [(run.length, run.repeats) for run in along] == [(transfer.shape[0], 1)]
                assert len(across) <= 2


def test_a_short_last_run_leaves_the_others_in_one_family():
    plan = Plan(BlockCyclic((1050,), (100,), (2,)), Cuts.even((1050,), 1))
    lengths = [(run.length, run.repeats) for run in plan.outgoing(0)[0].runs[0]]
    assert lengths == [(100, 5), (50, 1)]
