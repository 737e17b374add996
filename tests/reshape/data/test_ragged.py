"""Sparse matrices, arrays with their layout, and work items: contents, errors, roll-backs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from application_scripts import check_wrong_use, script
from driver import Driver
from scipy.sparse import SparseEfficiencyWarning, csr_array

import reshape
from redistribution import Plan
from reshape.app import Application
from reshape.errors import ReshapeError

on_4_ranks = pytest.mark.mpi(min_size=4)


def in_longer_arrays(matrix: csr_array) -> csr_array:
    """The matrix as one whose arrays have a further element, as those of a part may have."""
    data, indices = np.append(matrix.data, 9), np.append(matrix.indices, 9)
    return csr_array((data, indices, matrix.indptr), matrix.shape)


@on_4_ranks
@pytest.mark.parametrize("given", ["first", "last", "each"])
def test_a_sparse_matrix_is_distributed_by_rows_or_by_entries(given: str) -> None:
    """One rank gives the whole matrix, or each its rows."""
    heavy = np.eye(12)
    heavy[3] = 1
    with reshape.application() as app:
        at = app.comm.rank
        block = heavy[3 * at : 3 * at + 3]
        if given != "each":
            block = heavy if at == (0 if given == "first" else 3) else None
        A = app.csr("A", (12, 12))
        B = app.csr("B", (12, 12), dtype="f4", balance="entries")
        assert A.local.shape == (3, 12)
        assert A.local.nnz == 0
        A.assemble(block)
        B.assemble(None if block is None else in_longer_arrays(csr_array(block)))
        assert A.layout.offsets == (0, 3, 6, 9, 12)
        assert B.layout.offsets == (0, 3, 4, 12, 12)
        assert type(B.local) is csr_array
        assert B.local.dtype == np.float32
        for matrix in (A, B):
            first, last = matrix.layout.offsets[at : at + 2]
            assert np.array_equal(matrix.local.toarray(), heavy[first:last])
            assert matrix.local is matrix.local
            assert matrix.shape == (12, 12)
        x = app.rows("x", (12, 2), like=B)
        assert x.layout.offsets == B.layout.offsets
        assert x.local.shape[1] == 2
        A.local.data *= 2
        assert np.shares_memory(A.local.data, A.values[1].local)
        assert np.shares_memory(A.local.indices, A.values[0].local)
        assert np.array_equal(A.values[1].local, A.local.data)


@on_4_ranks
def test_entries_of_fewer_rows_than_ranks_are_balanced() -> None:
    with reshape.application() as app:
        Z = app.csr("Z", (2, 5), balance="entries")
        Z.assemble(None if app.comm.rank else np.zeros((2, 5)))
        assert Z.layout.offsets == (0, 1, 2, 2, 2)


@on_4_ranks
def test_items_are_distributed_evenly_at_the_start() -> None:
    with reshape.application() as app:
        t, empty = app.items("t", range(10)), app.items("empty")
        assert empty.local == []
        empty.local.append(app.comm.rank)
        assert app.comm.allgather(empty.local) == [[0], [1], [2], [3]]
        assert app.comm.allgather(t.local) == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


WRONG_USE: list[tuple[Callable[[Application], object], str]] = [
    (lambda a: a.csr("A", (3,)), "csr 'A': shape must be (rows, columns), got (3,)"),
    (
        lambda a: a.csr("A", (3, 3), balance="both"),
        "csr 'A': balance must be 'rows' or 'entries'",
    ),
    (lambda a: a.csr("A", (3, -1)), "array 'A': shape must have entries >= 0"),
    (lambda a: (a.csr("A", (3, 3)), a.items("A")), "items 'A' is registered twice"),
    (
        lambda a: a.csr("A", (3, 3)).assemble(None),
        "csr 'A': the blocks have 0 rows together, expected 3",
    ),
    (
        lambda a: a.csr("A", (3, 3)).assemble(np.eye(4)),
        "csr 'A': the block of rank 0 has 4 columns",
    ),
    (
        lambda a: a.csr("A", (1, 1)).assemble("x"),
        "csr 'A': the block of rank 0 is not a matrix of <f8",
    ),
    (
        lambda a: a.rows("x", (5,), like=a.csr("A", (3, 3))),
        "array 'x', like=A: axis 0 has 5 points, expected 3 as 'A', or one more or less",
    ),
    (
        lambda a: (A := a.csr("A", (3, 3)), a.rows("x", (3,), like=A), A.assemble(np.eye(3))),
        "csr 'A': fill it before arrays are laid out like it, as x",
    ),
    (
        lambda a: (a.iterations(2), a.items("t")),
        "items 't' is registered after app.iterations()",
    ),
    (lambda a: a.items("a.b"), "array name 'a.b': use 1 to 64 letters"),
]


@on_4_ranks
@pytest.mark.parametrize(("use", "error"), WRONG_USE)
def test_wrong_use_raises_an_error_of_one_sentence(
    alone: None, use: Callable[[Application], object], error: str
) -> None:
    check_wrong_use(use, error)


@on_4_ranks
def test_a_wrong_block_of_one_rank_raises_on_all() -> None:
    why = "csr 'A': the block of rank 1 has 5 columns, expected 4"
    with reshape.application() as app:
        A = app.csr("A", (4, 4))
        with pytest.raises(ReshapeError, match=re.escape(why)):
            A.assemble(np.ones((1, 4 + (app.comm.rank == 1))))


@on_4_ranks
def test_a_matrix_whose_entries_do_not_arrive_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("injected")

    with reshape.application() as app:
        A = app.csr("A", (4, 4))
        with monkeypatch.context() as patch:
            patch.setattr(Plan, "run", fail)
            with pytest.raises(ValueError, match="injected"):
                A.assemble(np.ones((1, 4)))
        assert A.local.nnz == 0
        A.assemble(np.ones((1, 4)))
        assert A.local.nnz == 4


def test_values_that_replace_those_of_a_matrix_are_kept(tmp_path: Path) -> None:
    """Another array as `data` is SciPy's usual way to change them."""
    body = """
        A = app.csr("A", (12, 12))
        if app.is_fresh_start:
            A.assemble(np.eye(12) if app.comm.rank == 0 else None)
        for step in app.iterations(20):
            A.local.data = A.local.data + 1
        whole = A.gather()
        if whole is not None:
            assert (whole.toarray() == 21 * np.eye(12)).all()
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        driver.start(1, "first")
        assert driver.expand(1).ok
        assert driver.expand(1).ok
        driver.finish()


@on_4_ranks
@pytest.mark.parametrize("then", ["local", "gather"])
@pytest.mark.parametrize("change", ["add", "remove", "lengthen"])
def test_another_structure_of_a_matrix_is_an_error(change: str, then: str) -> None:
    with reshape.application() as app:
        A = app.csr("A", (4, 4))
        A.assemble(np.eye(4)[[app.comm.rank]])
        if change == "add":
            with pytest.warns(SparseEfficiencyWarning):
                A.local[0, (app.comm.rank + 1) % 4] = 5
        elif change == "lengthen":
            A.local.data = np.ones(2)
        else:
            A.local.data[:] = 0
            A.local.eliminate_zeros()
        with pytest.raises(ReshapeError, match="csr 'A': the program has added or removed entries"):
            _ = A.local if then == "local" else A.gather()


FAULTS = {
    "pickled": ("lambda: 0", "items 't' cannot be packed"),
    "restored": ("Restored()", "items 't' cannot be restored on rank 1: injected"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_item_that_cannot_be_moved_rolls_the_resize_back(tmp_path: Path, fault: str) -> None:
    item, why = FAULTS[fault]
    body = f"""
        import os
        first = os.environ["RESHAPE_GROUP"] == "0"
        def restore():
            if not first: raise ValueError("injected")
        class Restored:
            def __reduce__(self): return restore, ()
        t = app.items("t", [1, 2, {item}])
        for step in app.iterations(40):
            if step > 20 and app.comm.size == 1:
                t.local[2:] = [3]
        print(t.local, flush=True)
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        driver.start(1, "first")
        report = driver.expand(1)
        assert not report.ok
        assert report.why.startswith(why)
        driver.serve(lambda: driver.segments == [])
        assert "[1, 2, 3]\n" in driver.finish()


def test_a_particle_outside_of_the_cells_rolls_the_resize_back(tmp_path: Path) -> None:
    """The error is that of the function of the program, on a rank that has no such particle."""
    body = """
        cells = app.rows("cells", (4,))
        p = app.particles("p", "i8", like=cells, cell=lambda records: records)
        if app.is_fresh_start:
            p.local = np.arange(app.comm.rank * 3, app.comm.rank * 3 + 3)
        for step in app.iterations(40):
            if step == 20:
                p.local = p.local[p.local < 4]
        p.migrate()
        print("rank", app.comm.rank, sorted(p.local.tolist()), flush=True)
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        driver.start(2, "first")
        report = driver.expand(2)
        assert not report.ok
        assert report.why == (
            "particles 'p' cannot be packed: record 1 is in cell (4,), outside of (4,): wrap its "
            "position or remove it"
        )
        driver.serve(lambda: driver.latest is not None and driver.latest.iteration > 20)
        assert driver.expand(2).ok
        text = driver.finish()
        assert all(f"rank {rank} [{rank}]\n" in text for rank in range(4))


def test_a_joining_group_has_no_data_before_its_first_resize(tmp_path: Path) -> None:
    body = """
        import os
        A, t = app.csr("A", (4, 4)), app.items("t", [1, 2])
        x = app.rows("x", (4,), like=A)
        p, g = app.particles("p", "f8"), app.rng("g", like=x)
        if os.environ["RESHAPE_ROLE"] == "join":
            for use in ("A.local", "A.assemble(None)", "x.local", "t.local", "p.local", "g.local"):
                try: eval(use)
                except reshape.ReshapeError as error: print(error, flush=True)
        for step in app.iterations(20):
            pass
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        driver.start(1, "first")
        group = driver.ready(1)
        lines = group.text.splitlines()
        names = ["csr 'A'", "csr 'A'", "array 'x'", "items 't'", "particles 'p'", "streams 'g'"]
        assert [line.partition(" has no data yet in this process")[0] for line in lines] == names
        assert driver.join(group).ok
        driver.finish()
