"""Rows, sparse matrices and items that move between MPI ranks."""

import re
from itertools import accumulate

import numpy as np
import pytest
from collective import divided
from scipy import sparse

from redistribution import Cuts, Plan
from redistribution.rows import deal, move_csr, move_rows

CASES = 12


def of_all_sizes(test):
    """Run a test on communicators of 1 to 4 ranks."""
    divisions = pytest.mark.parametrize(
        "comm", [(4,), (3, 1), (2, 2)], ids=lambda sizes: "+".join(map(str, sizes)), indirect=True
    )
    return pytest.mark.mpi(min_size=4)(divisions(test))


@pytest.fixture
def comm(request):
    yield from divided(*request.param)


@pytest.fixture
def rng(comm):
    """Draws the same values on each rank of a communicator."""
    return np.random.default_rng(comm.size)


def some_ranks(comm, rng):
    return tuple(rng.permutation(comm.size)[: rng.integers(1, comm.size + 1)].tolist())


def some_cuts(rng, rows, nprocs):
    return Cuts((rows,), (0, *sorted(rng.integers(0, rows + 1, nprocs - 1).tolist()), rows))


@of_all_sizes
def test_matrices_move_from_any_row_blocks_to_balanced_and_to_even_ones(comm, rng):
    for _ in range(CASES):
        m, n = rng.integers(0, 40), rng.integers(1, 30)
        dense = rng.random((m, n)) * (rng.random((m, n)) < 0.3) * (rng.random((m, 1)) < 0.8)
        whole = sparse.csr_array(dense.astype(rng.choice([np.float32, np.complex128])))
        ranks = [some_ranks(comm, rng) for _ in range(3)]
        layouts = [
            some_cuts(rng, m, len(ranks[0])),
            Cuts.by_weight(np.diff(whole.indptr), len(ranks[1])),
            Cuts.even((m,), len(ranks[2])),
        ]
        block = None
        if comm.rank in ranks[0]:
            p = ranks[0].index(comm.rank)
            block = whole[layouts[0].offsets[p] : layouts[0].offsets[p + 1]]
            if p % 2:
                # SciPy chooses the integer dtype of each block by its size.
                block.indices, block.indptr = block.indices.astype("i8"), block.indptr.astype("i8")
        for k in (1, 2):
            plan = Plan(layouts[k - 1], layouts[k], ranks[k - 1], ranks[k])
            block = move_csr(comm, plan, block)
            assert (block is None) == (comm.rank not in ranks[k])
            if block is not None:
                q = ranks[k].index(comm.rank)
                check_block(block, whole[layouts[k].offsets[q] : layouts[k].offsets[q + 1]])


def check_block(block, expected):
    assert block.shape == expected.shape
    assert block.dtype == expected.dtype
    np.testing.assert_array_equal(block.indptr, expected.indptr)
    np.testing.assert_array_equal(block.indices, expected.indices)
    np.testing.assert_array_equal(block.data, expected.data)
    block.check_format()


@of_all_sizes
def test_each_item_is_dealt_once_in_order_and_shares_are_balanced(comm, rng):
    for _ in range(CASES):
        lengths = rng.integers(0, 6, comm.size).tolist()
        first = list(accumulate(lengths, initial=0))
        everything = [{"item": k, "load": "x" * k} if k % 3 else k for k in range(first[-1])]
        costs = rng.integers(0, 9, first[-1]).tolist()
        mine = slice(first[comm.rank], first[comm.rank + 1])
        ranks = some_ranks(comm, rng)
        for weights, cuts in (
            (None, Cuts.even((len(everything),), len(ranks))),
            (costs[mine], Cuts.by_weight(costs, len(ranks))),
        ):
            dealt = deal(comm, everything[mine] or None, ranks, weights)
            if comm.rank in ranks:
                q = ranks.index(comm.rank)
                assert dealt == everything[cuts.offsets[q] : cuts.offsets[q + 1]]
            else:
                assert dealt is None


@of_all_sizes
def test_rows_have_several_values_for_each_element(comm):
    """In messages of several pieces."""
    rows = 1000
    counts = np.arange(rows) % 700
    starts = np.concatenate(([0], np.cumsum(counts)))
    points = np.arange(3.0 * starts[-1]).reshape(-1, 3)
    tags = np.arange(starts[-1], dtype=np.int16)
    last = comm.size - 1
    plan = Plan(Cuts.even((rows,), 1), Cuts.by_weight(counts, comm.size), [last])
    holds = comm.rank == last
    moved = move_rows(comm, plan, *((counts, (points, tags)) if holds else (None, None)))
    low, high = plan.target.offsets[comm.rank : comm.rank + 2]
    np.testing.assert_array_equal(moved[0], counts[low:high])
    np.testing.assert_array_equal(moved[1][0], points[starts[low] : starts[high]])
    np.testing.assert_array_equal(moved[1][1], tags[starts[low] : starts[high]])


@of_all_sizes
def test_an_error_on_one_rank_is_raised_on_all(comm):
    last, size = comm.size - 1, comm.size
    is_last = comm.rank == last
    cuts = Cuts.even((2 * size,), size)
    plan = Plan(cuts, cuts)
    two = np.array([1, 2])
    values = (np.zeros(3),)

    def raises(text, plan, counts, values):
        with pytest.raises(ValueError, match=re.escape(text)):
            move_rows(comm, plan, counts, values)

    wide = Cuts.even((2 * size, 2), size)
    raises("between one-dimensional Cuts", Plan(wide, wide), two, values)
    raises(f"rank {last}: counts must be 2", plan, np.arange(3) if is_last else two, values)
    raises(f"rank {last}: counts must be 2", plan, -two if is_last else two, values)
    raises(f"rank {last}: counts add up to 3", plan, two, (two,) if is_last else values)
    raises(f"rank {last} holds source part {last}", plan, None if is_last else two, values)
    one = Cuts.even((2,), 1)
    if size > 1:
        raises("rank 1 holds no source part", Plan(one, one), two, values)
        other = (np.zeros(3, int),) if is_last else values
        raises(f"rank {last}: values are", plan, two, other)
        block = sparse.csr_array((2, 5 if is_last else 4))
        with pytest.raises(ValueError, match=r"different numbers of columns: \[4, 5\]"):
            move_csr(comm, plan, block)
    with pytest.raises(ValueError, match=f"rank {last}: 1 items but 2 weights"):
        deal(comm, ["a"], [0], [1, 1] if is_last else [1])
