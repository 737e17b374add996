"""Moves by shared memory, compared with the global array."""

import mmap
import os

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from redistribution_cases import draw_case, empty_part, index_valued, local_part

from redistribution import BlockCyclic, Cuts, Plan, Replicated


@st.composite
def cases(draw):
    return draw_case(lambda low, high: draw(st.integers(low, high)), ranks=9)


@examples(800)
@given(cases())
def test_every_target_part_is_copied_from_the_sources(case):
    plan = case.plan
    array = index_valued(plan.source.shape, case.dtype)
    sources = [local_part(plan.source, p, array, case.a_kind) for p in range(plan.source.nprocs)]
    for a in sources:
        a.flags.writeable = False
    for process in range(plan.target.nprocs):
        b = empty_part(plan.target, process, case.dtype, case.b_kind)
        plan.gather(process, sources.__getitem__, b)
        expected = array[np.ix_(*plan.target.global_indices(process))]
        np.testing.assert_array_equal(b, expected)


def test_only_sources_with_elements_of_the_part_are_asked_for_once():
    plan = Plan(Cuts.even((12,), 4), Cuts.even((12,), 3), [3, 2, 1, 0])
    asked = []

    def source(process):
        asked.append(process)
        return np.arange(3) + 3 * process

    b = np.zeros(4, int)
    plan.gather(1, source, b)
    assert sorted(asked) == [1, 2]
    np.testing.assert_array_equal(b, [4, 5, 6, 7])
    copies = Plan(Replicated((2,), 3), Replicated((2,), 3))
    copies.gather(2, {2: np.array([7, 8])}, b[:2])
    np.testing.assert_array_equal(b, [7, 8, 6, 7])


def test_another_process_copies_from_a_mapped_file(tmp_path):
    """Sources in shared memory, as the arrays of a job are; a child process copies."""
    shape = (50, 40)
    plan = Plan(BlockCyclic(shape, (7, 5), (2, 1)), BlockCyclic(shape, (8, 8), (1, 3)))
    array = index_valued(shape, np.dtype(float))

    def mapped(kind, process, extents):
        with (tmp_path / f"{kind}{process}").open("a+b") as file:
            file.truncate(8 * int(np.prod(extents)))
            return np.ndarray(extents, float, mmap.mmap(file.fileno(), 0))

    for p in range(2):
        mapped("a", p, plan.source.local_shape(p))[...] = local_part(plan.source, p, array, "C")
    for q in range(3):
        child = os.fork()
        if child == 0:
            b = mapped("b", q, plan.target.local_shape(q))
            plan.gather(q, lambda p: mapped("a", p, plan.source.local_shape(p)), b)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        found = mapped("b", q, plan.target.local_shape(q))
        np.testing.assert_array_equal(found, local_part(plan.target, q, array, "C"))


def test_indices_and_offsets_beyond_32_bits_by_a_large_stride(tmp_path):
    """Counts beyond 2^31 without the memory: all rows are the same bytes."""
    n = 2**33 + 7
    row = np.arange(4, dtype=np.uint8)
    endless = as_strided(row, (n, 4), (0, 1), writeable=False)
    layout = Cuts((n, 4), (0, 5, n))
    plan = Plan(Replicated((n, 4), 1), layout, [1], [2, 1])
    head = np.zeros((5, 4), np.uint8)
    plan.gather(0, {0: endless}, head)
    np.testing.assert_array_equal(head, np.tile(row, (5, 1)))

    # Three rows 2^32 bytes apart, in a sparse file.
    with (tmp_path / "far").open("w+b") as file:
        file.truncate(3 * 2**32)
        room = mmap.mmap(file.fileno(), 0)
    far = np.ndarray((3, 2**32), np.uint8, room)
    far[:, 2**32 - 3 :] = np.arange(9).reshape(3, 3) + 1
    wide = Plan(
        Replicated(far.shape, 1), Cuts(far.shape, (0, 2**32 - 2, 2**32), axis=1), [0], [1, 0]
    )
    b = np.zeros((3, 2), np.uint8)
    wide.gather(1, {0: far}, b)
    np.testing.assert_array_equal(b, [[2, 3], [5, 6], [8, 9]])
    del far
    room.close()


def test_one_array_serves_as_the_source_and_the_target_that_a_rank_keeps():
    plan = Plan(Cuts((6,), (0, 2, 6)), Cuts((6,), (0, 2, 4, 6)))
    sources = {0: np.array([0, 1]), 1: np.array([2, 3, 4, 5])}
    plan.gather(0, sources, sources[0])
    plan.gather(0, sources, sources[0][:])
    np.testing.assert_array_equal(sources[0], [0, 1])
    # A part with the same memory, but other elements, and one of the same elements in other places.
    with pytest.raises(ValueError, match="source process 1: its array overlaps"):
        plan.gather(1, sources, sources[1][:2])
    with pytest.raises(ValueError, match="source process 0: its array overlaps"):
        plan.gather(0, sources, sources[0][::-1])


def test_errors_name_bad_arguments():
    plan = Plan(Cuts.even((6,), 2), Cuts.even((6,), 3))
    good = {0: np.zeros(3), 1: np.ones(3)}
    b = np.zeros(2)
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    together = np.zeros(4)
    for sources, target, message in [
        (good, np.zeros(3), r"target process 0: expected .* shape \(2,\), got \(3,\)"),
        (good, frozen, "target process 0: the target array is read-only"),
        (good, np.zeros(2, object), "target process 0: dtype object holds objects"),
        ({0: np.zeros(2)}, b, r"source process 0: expected .* shape \(3,\), got \(2,\)"),
        ({0: np.zeros(3, int)}, b, "source process 0 has dtype int64, .* dtype float64"),
        ({0: together[:3]}, together[2:], "source process 0: its array overlaps"),
    ]:
        with pytest.raises(ValueError, match=message):
            plan.gather(0, sources, target)
    with pytest.raises(ValueError, match=r"process must be in \[0, 3\), got 3"):
        plan.gather(3, good, b)
