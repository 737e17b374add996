"""Sparse matrices, arrays with their layout, and work items: contents, errors, roll-backs."""

from __future__ import annotations

from pathlib import Path

import pytest
from application_scripts import check_wrong_use, script
from driver import Driver, run


def test_a_sparse_matrix_is_distributed_by_rows_or_by_entries(tmp_path: Path) -> None:
    body = """
        from scipy.sparse import csr_array
        heavy = np.eye(12); heavy[3] = 1
        at = app.comm.rank
        for k, give in enumerate(("first", "last", "each")):
            A = app.csr(f"A{k}", (12, 12))
            B = app.csr(f"B{k}", (12, 12), dtype="f4", balance="entries")
            assert A.local.shape == (3, 12) and A.local.nnz == 0
            block = heavy[3 * at : 3 * at + 3]
            if give != "each":
                block = heavy if at == (0 if give == "first" else 3) else None
            A.assemble(block)
            B.assemble(csr_array(block) if block is not None else None)
            assert A.layout.offsets == (0, 3, 6, 9, 12)
            assert B.layout.offsets == (0, 3, 4, 12, 12), B.layout.offsets
            assert type(B.local) is csr_array and B.local.dtype == np.float32
            for matrix in (A, B):
                first, last = matrix.layout.offsets[at : at + 2]
                assert np.array_equal(matrix.local.toarray(), heavy[first:last])
                assert matrix.local is matrix.local and matrix.shape == (12, 12)
            x = app.rows(f"x{k}", (12, 2), like=B)
            assert x.layout.offsets == B.layout.offsets and x.local.shape[1] == 2
            A.local.data *= 2
            assert np.shares_memory(A.local.data, A.values[1].local)
            assert np.shares_memory(A.local.indices, A.values[0].local)
            assert np.array_equal(A.values[1].local, A.local.data)
        Z = app.csr("Z", (2, 5), balance="entries")
        Z.assemble(None if at else np.zeros((2, 5)))
        assert Z.layout.offsets == (0, 1, 2, 2, 2)
        app.comm.Barrier()
        if at == 0:
            print(app.comm.size)
    """
    done = run(4, script(tmp_path, body))
    assert done.stdout == "4\n", done.stderr


def test_items_are_distributed_evenly_at_the_start(tmp_path: Path) -> None:
    body = """
        t = app.items("t", range(10))
        empty = app.items("empty")
        assert empty.local == []
        empty.local.append(app.comm.rank)
        gathered = app.comm.gather((t.local, empty.local))
        if gathered: print(gathered)
    """
    done = run(3, script(tmp_path, body))
    assert done.stdout == "[([0, 1, 2, 3], [0]), ([4, 5, 6], [1]), ([7, 8, 9], [2])]\n", done.stderr


WRONG_USE = {
    'app.csr("A", (3,))': "csr 'A': shape must be (rows, columns), got (3,)",
    'app.csr("A", (3, 3), balance="both")': "csr 'A': balance must be 'rows' or 'entries'",
    'app.csr("A", (3, -1))': "array 'A': shape must have entries >= 0",
    'app.csr("A", (3, 3)); app.items("A")': "items 'A' is registered twice",
    'app.csr("A", (3, 3)).assemble(None)': "csr 'A': the blocks have 0 rows together, expected 3",
    'app.csr("A", (3, 3)).assemble(np.eye(4))': "csr 'A': the block of rank 0 has 4 columns",
    'app.csr("A", (1, 1)).assemble("x")': "csr 'A': the block of rank 0 is not a matrix of <f8",
    'A = app.csr("A", (3, 3)); app.rows("x", (4,), like=A)': "array 'x', like=A: needs axis 0 and",
    'A = app.csr("A", (3, 3)); app.rows("x", (3, 3), axis=1, like=A)': "array 'x', like=A: needs",
    'A = app.csr("A", (3, 3)); app.rows("x", (3,), like=A); A.assemble(np.eye(3))': (
        "csr 'A': fill it before arrays are laid out like it, as x"
    ),
    'app.iterations(2); app.items("t")': "items 't' is registered after app.iterations()",
    'app.items("a.b")': "array name 'a.b': use 1 to 64 letters",
}


def test_wrong_use_raises_an_error_of_one_sentence(tmp_path: Path) -> None:
    check_wrong_use(tmp_path, WRONG_USE)


def test_a_wrong_block_of_one_rank_raises_on_all(tmp_path: Path) -> None:
    body = """
        A = app.csr("A", (4, 4))
        try:
            A.assemble(np.ones((2, 4 + app.comm.rank)))
        except reshape.ReshapeError as error:
            messages = app.comm.gather(str(error))
            if messages: print(messages)
    """
    done = run(2, script(tmp_path, body))
    why = "csr 'A': the block of rank 1 has 5 columns, expected 4"
    assert done.stdout == f"{[why, why]}\n", done.stderr


FAULTS = {
    "pickled": ("lambda: 0", "items 't' cannot be pickled"),
    "restored": ("Restored()", "items 't' cannot be restored on rank 1: injected"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_item_that_cannot_be_moved_rolls_the_resize_back(tmp_path: Path, fault: str) -> None:
    item, why = FAULTS[fault]
    body = f"""
        import os, time
        first = os.environ["RESHAPE_GROUP"] == "0"
        def restore():
            if not first: raise ValueError("injected")
        class Restored:
            def __reduce__(self): return restore, ()
        t = app.items("t", [1, 2, {item}])
        for step in app.iterations(200):
            time.sleep(0.01)
            if step > 150 and app.comm.size == 1:
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


def test_a_joining_group_has_no_data_before_its_first_resize(tmp_path: Path) -> None:
    body = """
        import os, time
        A, t = app.csr("A", (4, 4)), app.items("t", [1, 2])
        x = app.rows("x", (4,), like=A)
        if os.environ["RESHAPE_ROLE"] == "join":
            for use in ("A.local", "A.assemble(None)", "x.local", "t.local"):
                try: eval(use)
                except reshape.ReshapeError as error: print(error, flush=True)
        for step in app.iterations(60):
            time.sleep(0.02)
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        driver.start(1, "first")
        group = driver.ready(1)
        lines = group.text.splitlines()
        names = ["csr 'A'", "csr 'A'", "array 'x'", "items 't'"]
        assert [line.partition(" has no data yet in this process")[0] for line in lines] == names
        assert driver.join(group).ok
        driver.finish()
