"""The application object: programs without a service, wrong use, and errors on single ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import resizable
from application_scripts import check_wrong_use, script, set_world
from collective import divided
from driver import Driver, run
from mpi4py import MPI
from numpy.typing import DTypeLike

import reshape
from reshape.app import Application
from reshape.errors import ReshapeError

on_4_ranks = pytest.mark.mpi(min_size=4)


@pytest.fixture
def comm(request: pytest.FixtureRequest) -> Iterator[MPI.Intracomm]:
    yield from divided(*request.param)


@on_4_ranks
@pytest.mark.parametrize("comm", [(4,), (2, 1, 1)], ids=["4", "2+1+1"], indirect=True)
def test_without_a_service_a_program_runs_on_its_mpi_world(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_world(monkeypatch, comm)
    monkeypatch.setattr("sys.argv", ["resizable.py", "5", "0"])
    monkeypatch.setenv("SPARSE", "1")
    with pytest.raises(SystemExit) as end:
        resizable.main()
    assert end.value.code == 0
    assert capsys.readouterr().out == ("" if comm.rank else f"sizes {comm.size} right\n")


def test_a_program_without_a_service_loads_no_sockets(tmp_path: Path) -> None:
    body = """
        a = app.rows("a", (4, 4))
        for step in app.iterations(3):
            a.local[:] += 1
        assert app.comm.size == 2
        loaded = app.comm.gather("zmq" in sys.modules)
        if app.comm.rank == 0:
            print(loaded)
    """
    assert run(2, script(tmp_path, body)).stdout == "[False, False]\n"


@on_4_ranks
def test_arrays_and_their_layouts() -> None:
    with reshape.application() as app:
        A = app.block_cyclic("A", shape=(10, 7), block=(3, 2))
        F = app.block_cyclic("F", (10, 7), (3, 2), dtype="f4", order="F")
        u = app.rows("u", (5, 3))
        v = app.rows("v", (5, 3), axis=1)
        p = app.replicated("p", [1, 2, 3])
        assert app.is_fresh_start
        assert app.comm.size == 4
        for array in (A, F, u, v, p):
            assert array.local.shape == array.layout.local_shape(app.comm.rank)
        assert A.layout.grid == (2, 2)
        assert A.local.dtype == np.float64
        assert not A.local.any()
        assert F.local.flags.f_contiguous
        assert F.local.dtype == np.float32
        assert u.layout.offsets == (0, 2, 3, 4, 5)
        assert u.local.shape[1] == 3
        assert v.layout.offsets == (0, 1, 2, 3, 3)
        assert v.local.shape[0] == 5
        ends = [u.neighbours(rank) for rank in range(4)]
        assert ends == [(None, 1), (0, 2), (1, 3), (2, None)]
        assert v.neighbours(3) == (None, None)
        assert p.local.tolist() == [1, 2, 3]
        assert p.dtype == np.int64
        assert (A.name, A.shape) == ("A", (10, 7))


KEPT_TYPES = [
    [("key", "i4"), ("value", ">f8", (3,)), ("inner", [("when", "M8[ms]"), ("text", "U3")])],
    np.dtype([("small", "i1"), ("large", "f8")], align=True),
    np.dtype({"names": ["a"], "formats": ["i4"], "offsets": [4], "itemsize": 16}),
    [(("a title", "a"), "i4")],
    *("M8[25s]", "m8", ">i2", "S3", "U3", "?", "g", "V5"),
]
OVERLAPPING = np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2]})


@pytest.mark.parametrize("dtype", KEPT_TYPES, ids=str)
def test_an_array_keeps_its_element_type(alone: None, dtype: DTypeLike) -> None:
    expected = np.dtype(dtype)
    with reshape.application() as app:
        u, p = app.rows("u", (5, 3), dtype=dtype), app.replicated("p", np.zeros(3, dtype))
        for array in (u, p):
            assert array.dtype == array.local.dtype == expected
            assert array.local.dtype.fields == expected.fields


@on_4_ranks
def test_the_local_part_can_be_assigned() -> None:
    with reshape.application() as app:
        u, t = app.rows("u", (9, 2), dtype="i4"), app.items("t", "abcdef")
        s = app.csr("s", (4, 4))
        s.assemble(np.eye(4) if app.comm.rank == 0 else None)
        local, entries, items = u.local, s.local.data, list(t.local)
        u.local += 1
        s.local *= 2
        t.local += ["g"]
        assert u.local is local
        assert (local == 1).all()
        assert (entries == 2).all()
        assert t.local == [*items, "g"]
        u.local = np.arange(2)
        s.local = s.local + s.local
        t.local = reversed(items)
        assert u.local is local
        assert (local == [0, 1]).all()
        assert (entries == 4).all()
        assert t.local == items[::-1]
        for wrong in (np.zeros(3), 1.5, "x"):
            with pytest.raises(ReshapeError, match=r"array 'u': its local part, shape \("):
                u.local = wrong
        with pytest.raises(ReshapeError, match=r"csr 's': .* change the values in local\.data"):
            s.local = s.local.transpose().tocsr()[:, :3]
        assert (local == [0, 1]).all()


@on_4_ranks
def test_data_stands_for_its_local_part() -> None:
    """In functions of NumPy, with an index, and for its length."""
    with reshape.application() as app:
        u, b = app.rows("u", (9, 2), dtype="i4"), app.blocks("b", (2,))  # b is empty on two ranks
        p, t, s = app.particles("p", "f8"), app.items("t", "abcdef"), app.csr("s", (4, 4))
        s.assemble(np.eye(4) if app.comm.rank == 0 else None)
        u[...] = np.arange(2)
        u[0, 1] += 4
        p.local = np.arange(3.0)
        p[1] = 7
        t[0] = "x"
        for array in (u, b, p):
            assert np.asarray(array) is array.local
            assert len(array) == len(array.local)
            np.testing.assert_array_equal(np.exp(array), np.exp(array.local))
            assert np.array(array) is not array.local
            assert np.asarray(array, np.complex64).dtype == np.complex64
            assert array  # also if it is empty
            with pytest.raises(ValueError, match="copy"):
                np.array(array, "c16", copy=False)
        assert np.shares_memory(u[1:], u.local)
        assert u.local[0].tolist() == [0, 5]
        assert [*p] == [0, 7, 2]
        assert [*t] == t.local
        assert (len(t), t.local[0]) == (len(t.local), "x")
        assert s[0, app.comm.rank] == 1
        with pytest.raises(ReshapeError, match=r"csr 's' is no array of NumPy: use .*csr_array"):
            np.asarray(s)
        with pytest.raises(ReshapeError, match=r"items 't' .* t\.local, which is list"):
            np.sum(t)
        with pytest.raises(TypeError, match="length is ambiguous"):
            len(s)


WRONG_USE: list[tuple[Callable[[Application], object], str]] = [
    (lambda a: (a.rows("a", (3,)), a.rows("a", (3,))), "array 'a' is registered twice"),
    (lambda a: a.rows("a/b", (3,)), "array name 'a/b': use 1 to 64 letters"),
    (
        lambda a: a.rows("a", 3),
        "array 'a': shape=3 must be whole numbers in tuples, such as (600,)",
    ),
    (lambda a: a.rows("a", (3.5,)), "array 'a': shape=(3.5,) must be whole numbers"),
    (lambda a: a.block_cyclic("a", (4, 4), 2), "array 'a': shape=(4, 4) and block=2 must be"),
    (
        lambda a: a.rows("a", (3,), dtype=object),
        "array 'a' has dtype object: Python objects cannot",
    ),
    (
        lambda a: a.rows("a", (3,), dtype=(float, 3)),
        "array 'a' has dtype ('<f8', (3,)): an element is an array; register dtype float64 and add "
        "axes (3,) to the shape",
    ),
    (lambda a: a.rows("a", (3,), dtype=str), "array 'a' has dtype <U0: its elements have no bytes"),
    (lambda a: a.rows("a", (3,), dtype="numbers"), "array 'a': NumPy has no dtype 'numbers'"),
    (
        lambda a: a.rows("a", (3,), dtype={"names": ["b"], "formats": ["O"]}),
        "array 'a' has dtype [('b', 'O')]: Python objects cannot",
    ),
    (
        lambda a: a.rows("a", (3,), dtype=OVERLAPPING),
        f"array 'a' has dtype {OVERLAPPING}: its fields overlap, are not in the order of their",
    ),
    (
        lambda a: a.replicated("a", np.rec.array([(1, 2.0)])),
        "array 'a' has dtype (numpy.record, [('f0', '<i8'), ('f1', '<f8')]): the type numpy.record",
    ),
    (lambda a: a.replicated("a", np.ma.array([1, 2])), "array 'a' has a mask, which registered"),
    (lambda a: a.replicated("a", [[1], [2, 3]]), "array 'a': the value is no array: setting an"),
    (lambda a: a.csr("a", (3, 3), dtype=">f8"), "csr 'a' has dtype >f8, which SciPy's matrices"),
    (lambda a: a.csr("a", (3, 3), dtype="f2"), "csr 'a' has dtype float16, which SciPy's"),
    (lambda a: a.rows("a", (3,), order="K"), "array 'a': order must be 'C' or 'F', got 'K'"),
    (lambda a: a.rows("a", (3,), axis=1), "array 'a': axis"),
    (
        lambda a: a.rows("a", (3,), like="b"),
        "array 'a', like='b': expected an array of app.blocks, app.rows or app.block_cyclic, or",
    ),
    (
        lambda a: a.rows("a", (3,), like=a.items("b")),
        "array 'a', like=b: items 'b' (shape=(0,), dtype=|u1, order='C') is not divided along its",
    ),
    (lambda a: a.rng("a", seed=-1), "app.rng('a', seed=-1): expected an integer in [0, 2**63)"),
    (lambda a: a.rng("a", seed="b"), "app.rng('a', seed='b'): expected an integer"),
    (lambda a: (a.rng("a"), a.rng("a")), "streams 'a' is registered twice: give each its own"),
    (
        lambda a: a.rng("a", a.blocks("b", (3, 3))),
        "app.rng('a', like=b): blocks 'b' (shape=(3, 3), halo=(1, 1), periodic=(0, 0), dtype=<f8, "
        "order='C') is not divided along one axis; use an array of app.rows, a matrix of",
    ),
    (
        lambda a: a.rng("a", a.particles("p", "f8")),
        "app.rng('a', like=p): particles 'p' (shape=(0,), dtype=<f8, order='C') is not divided",
    ),
    (lambda a: a.rng("a", a.items("t")).of(3, -1), "streams 'a', of(3, -1): expected integers in"),
    (lambda a: a.rng("a", a.items("t")).of("x"), "streams 'a', of('x'): expected integers in"),
    (lambda a: a.rng("a", a.items("t")).of(2**32), "streams 'a', of(4294967296): expected"),
    (
        lambda a: a.rows("a", (3,), like=a.replicated("b", [1])),
        "array 'a', like=b: replicated 'b' (shape=(1,), dtype=<i8, order='C') is not divided along",
    ),
    (
        lambda a: a.rows("a", (3,), like=a.rows("b", (5,))),
        "array 'a', like=b: axis 0 has 3 points, expected 5 as 'b', or one more or less (a stagg",
    ),
    (
        lambda a: a.rows("a", (3,), like=a.blocks("b", (3, 3))),
        "array 'a', like=b: blocks 'b' (shape=(3, 3), halo=(1, 1), periodic=(0, 0), dtype=<f8, "
        "order='C') is divided over a grid of 2 dimensions: use app.blocks",
    ),
    (
        lambda a: a.blocks("a", (3,), like=a.block_cyclic("b", (3,), (2,))),
        "array 'a', like=b: block_cyclic 'b' (shape=(3,), block=(2,), dtype=<f8, order='C') is not "
        "blocks: use app.block_cyclic",
    ),
    (
        lambda a: a.blocks("a", (3, 3), grid=(0, 2), like=a.blocks("b", (3, 3))),
        "array 'a', like=b: the process grid is that of 'b': leave grid out",
    ),
    (
        lambda a: a.blocks("a", (5, 3, 3), like=a.blocks("b", (3, 3))),
        "array 'a', like=b: has 3 axes, 'b' has 2: name those that are divided as the axes (0, 1) "
        "of 'b', such as cut=(1, 2); None for one that 'a' lacks",
    ),
    (
        lambda a: a.blocks("a", (5, 3, 3), cut=(1,), like=a.blocks("b", (3, 3))),
        "array 'a', like=b, cut=(1,): needs 2 entries, one for each of the axes (0, 1) of 'b'",
    ),
    (
        lambda a: a.blocks("a", (3, 3), cut=(1, 2)),
        "array 'a', cut=(1, 2), grid=None: needs an axis of shape=(3, 3) for each dimension of the "
        "process grid, such as cut=(1, 2), and numbers of processes, such as grid=(0, 2): axis",
    ),
    (lambda a: a.blocks("a", (3,), cut=(None,)), "array 'a', cut=(None,), grid=None: divides no"),
    (
        lambda a: a.blocks("a", (3, 3), grid=(2,)),
        "array 'a', cut=None, grid=(2,): grid needs 2 numbers of processes, 0 for those that",
    ),
    (
        lambda a: a.blocks("a", (3, 3), grid=(0, 3)),
        "array 'a' has grid=(0, 3), which needs a multiple of 3 processes, not 1: name the valid",
    ),
    (
        lambda a: a.block_cyclic("a", (3, 3), (2,)),
        "array 'a': block=(2,) must have one entry for each of the axes (0, 1) of shape=(3, 3)",
    ),
    (
        lambda a: a.block_cyclic("a", (3, 3), cut=(1,)),
        "array 'a': block=None must have one entry for each of the axes (1,) of shape=(3, 3)",
    ),
    (lambda a: a.block_cyclic("a", (3, 3), (0, 1)), "array 'a': block must have entries >= 1"),
    (
        lambda a: a.block_cyclic("a", (3,), (1,)).neighbours(0),
        "block_cyclic 'a' (shape=(3,), block=(1,)",
    ),
    (lambda a: a.block_cyclic("a", (), ()), "array 'a' has no axes"),
    (lambda a: a.blocks("a", np.array([], int)), "array 'a' has no axes to distribute"),
    (
        lambda a: a.replicated("a", 3.0),
        "array 'a' is a single value: keep it in app.state, or give",
    ),
    (lambda a: a.rows(3, (3,)), "array name 3: use 1 to 64 letters"),
    (lambda a: a.rows("a", (3, 3), axis=1.5), "array 'a': shape=(3, 3) and axis=1.5 must be whole"),
    (
        lambda a: a.rows("a", (10**15,)),
        "array 'a': rank 0 has no memory for its part of the shape (1",
    ),
    (
        lambda a: a.rows("a", (2**62, 4)),
        "array 'a': rank 0 has no memory for its part of the shape (4",
    ),
    (lambda a: a.items("t", 5), "items 't': expected a list of work items, got 5"),
    (
        lambda a: a.rows("a", (3,)).save("a.h5", a.items("t")),
        "cannot save <Items items 't' (shape=(0,), dtype=|u1, order='C')> to a.h5: it is neither a",
    ),
    (lambda a: a.rows("a", (3,)).save(""), "cannot save a to : "),
    (
        lambda a: (a.iterations(3), a.rows("a", (3,))),
        "array 'a' is registered after app.iterations()",
    ),
    (
        lambda a: [a.iterations(3) for _ in a.iterations(3)],
        "app.iterations() is called within a loop of app.iterations()",
    ),
    (
        lambda a: list(min(a.iterations(3), a.iterations(3), key=lambda _: 0)),
        "loop 1 of app.iterations() begins after loop 2 was made",
    ),
    (lambda a: a.iterations(-1), "app.iterations(-1): the number of iterations must be >= 0"),
    (
        lambda a: a.report(x=[1]),
        "app.report(x=...): expected a bool, a number or a string, got [1]",
    ),
    (
        lambda a: a.report(x=float("nan")),
        "app.report(x=...): expected a finite number (report a string if",
    ),
    (lambda a: a.report(x=np.float32("inf")), "app.report(x=...): expected a finite"),
    (lambda a: a.report(x=2**64), "app.report(x=...): expected an integer of at most 64 bits"),
    (
        lambda _: reshape.application().comm,
        "use the application as 'with reshape.application() as app:'",
    ),
]


@on_4_ranks
@pytest.mark.parametrize(("use", "error"), WRONG_USE)
def test_wrong_use_raises_an_error_of_one_sentence(
    alone: None, use: Callable[[Application], object], error: str
) -> None:
    check_wrong_use(use, error)


def files(_: MPI.Intracomm) -> Iterator[None]:
    yield None


@on_4_ranks
@pytest.mark.parametrize("case", ["shape", "more", "function", "total"])
def test_ranks_that_differ_are_one_error_on_every_rank(case: str) -> None:
    texts = {
        "shape": "rank 0 has rows 'a' (shape=(3,), axis=(0,), dtype=<f8, order='C') where rank 2"
        " has rows 'a' (shape=(4,),",
        "more": "rank 0 has app.iterations(5) where rank 2 has rows 'b' (shape=(3,),",
        "function": "rank 0 has app.iterations(5) where rank 2 has files of app.each_size: all",
        "total": "rank 0 has app.iterations(5) where rank 2 has app.iterations(6): all",
    }
    with reshape.application() as app:
        other = app.comm.rank == 2
        app.rows("a", (4 if case == "shape" and other else 3,))
        if case == "more" and other:
            app.rows("b", (3,))
        if case == "function" and other:
            app.each_size(files)
        with pytest.raises(ReshapeError, match=f"^{re.escape(texts[case])}"):
            app.iterations(6 if case == "total" and other else 5)


def test_an_array_cannot_be_used_after_the_block(tmp_path: Path) -> None:
    program = script(tmp_path, 'a = app.rows("a", (3,))')
    Path(program).write_text(Path(program).read_text() + "\na.local\n")
    assert "array 'a': the block 'with reshape.application()' is over" in run(1, program).stderr


def test_an_unknown_topology_is_refused() -> None:
    with pytest.raises(ValueError, match=r"did you mean nearly-square\?"):
        reshape.application(topology="nearly-squared")


@pytest.mark.parametrize("where", ["before", "in", "after"])
def test_an_error_on_one_rank_ends_all(tmp_path: Path, where: str) -> None:
    """The other rank waits in a collective call, which must not block it forever."""
    fault = "if app.comm.rank == 1: [][app.comm.size]"
    body = f"""
        a = app.rows("a", (4, 4))
        {fault if where == "before" else ""}
        for step in app.iterations(3):
            {fault if where == "in" else "pass"}
            app.comm.Barrier()
        {fault if where == "after" else ""}
        app.comm.Barrier()
    """
    done = run(2, script(tmp_path, body))
    assert done.returncode != 0
    assert "IndexError: list index out of range" in done.stderr
    assert done.stderr.count("Traceback") == 1


def test_an_error_on_all_ranks_is_printed_once(tmp_path: Path) -> None:
    program = script(tmp_path, 'app.rows("a b", (4, 4))')
    lines = Path(program).read_text().split("\n")
    (line,) = (number for number, text in enumerate(lines, start=1) if '"a b"' in text)
    done = run(2, program)
    assert done.returncode != 0
    (told,) = [text for text in done.stderr.splitlines() if text.startswith("reshape: error: ")]
    assert told.startswith("reshape: error: array name 'a b'")
    assert told.endswith(f" ({program}:{line})")
    assert "Traceback" not in done.stderr


def test_the_exit_code_of_a_rank_is_that_of_the_program(tmp_path: Path) -> None:
    body = """
        print("printed before", flush=app.comm.rank == 1)
        if app.comm.rank == 0: sys.exit(3)
        app.comm.Barrier()
    """
    done = run(2, script(tmp_path, body))
    assert done.returncode == 3
    assert "printed before" in done.stdout


def test_the_message_of_sys_exit_is_printed_once(tmp_path: Path) -> None:
    done = run(2, script(tmp_path, "sys.exit('no such file')"))
    assert done.returncode == 1
    assert done.stderr.count("no such file") == 1


@on_4_ranks
@pytest.mark.parametrize(
    ("role", "why"),
    [
        (None, "environment: RESHAPE_ROLE: is not set although RESHAPE_JOB is"),
        ("boss", "RESHAPE_ROLE: expected one of first, join, restart, got 'boss'"),
    ],
)
def test_an_incomplete_environment_is_refused(
    alone: None, monkeypatch: pytest.MonkeyPatch, role: str | None, why: str
) -> None:
    monkeypatch.setenv("RESHAPE_JOB", "5")
    if role is not None:
        monkeypatch.setenv("RESHAPE_ROLE", role)
    with pytest.raises(ReshapeError, match=why), reshape.application():
        pass


def test_data_cannot_be_used_before_the_group_has_joined(tmp_path: Path) -> None:
    """A missing `if app.is_fresh_start` is an error in the joining group, and only there."""
    body = """
        a = app.rows("a", (4, 4))
        a.local[:] = 1
        for step in app.iterations(20):
            pass
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        first = driver.start(1, "first")
        group = driver.start(2, "join")
        driver.serve(lambda: group.process.poll() is not None, still=True)
        assert group.process.returncode == 1
        assert "array 'a' has no data yet in this process" in group.text
        assert (
            "put the code that fills it below 'if app.is_fresh_start:', and code that uses it"
            in group.text
        )
        driver.serve(lambda: first.process.poll() is not None)
        assert first.process.returncode == 0


@pytest.mark.parametrize("change", ["shape = (-1,)", "dtype = 'i8'"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_another_form_of_a_local_part_is_an_error(alone: None, change: str) -> None:
    """NumPy changes the array in place, which a resize moves."""
    with reshape.application() as app:
        u = app.rows("u", (4, 3))
        exec(f"u.local.{change}")
        for use in (u.gather, u.pack):
            with pytest.raises(ReshapeError, match="array 'u': the program has set the shape or"):
                use()


def test_the_error_of_a_stale_array_names_it(tmp_path: Path) -> None:
    body = """
        a, b = app.rows("a", (4, 4)), app.rows("b", (9,))
        def change(mine):
            mine[:] += 1
        for step in app.iterations(20):
            if "view" not in globals():
                view = b.local
            change(view)
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        first = driver.start(1, "first")
        assert driver.expand(1).ok
        driver.serve(lambda: first.process.poll() is not None)
        why = (
            "variable 'mine' is array 'b', variable 'view' is array 'b' of before a resize, which "
            "is read-only: read `local` again in each iteration"
        )
        assert why in first.text
        assert driver.faults[0].why == f"ValueError: output array is read-only; {why}"


@pytest.mark.parametrize("call", ["MPI.Finalize()", "Finalize()"])
def test_mpi_is_not_finalized_within_the_block(tmp_path: Path, call: str) -> None:
    """A name that was imported before the block ends MPI nevertheless."""
    path = tmp_path / "program.py"
    path.write_text(
        "from mpi4py import MPI\nfrom mpi4py.MPI import Finalize\nimport reshape\n"
        "with reshape.application() as app:\n"
        "    for step in app.iterations(3):\n        pass\n"
        f"    {call}\n"
    )
    done = run(2, str(path))
    assert done.returncode == 1
    assert "error: MPI.Finalize() is called within the block" in done.stderr.replace(
        "Error", "error"
    )
    assert "MPICH" not in done.stderr


def test_mpi_may_be_finalized_behind_the_block(tmp_path: Path) -> None:
    body = """
        for step in app.iterations(3):
            pass
    """
    path = Path(script(tmp_path, body))
    path.write_text(f"from mpi4py import MPI\n{path.read_text()}\nMPI.Finalize()\nprint('end')\n")
    assert run(2, str(path)).stdout == "end\nend\n"


def test_leaving_processes_end_cleanly(tmp_path: Path) -> None:
    """Their ``finally`` clauses and exit handlers run, and no statement after the block."""
    body = """
        import atexit, os
        group = "group " + os.environ["RESHAPE_GROUP"]
        atexit.register(lambda: print(group, "exit handler", flush=True))
        a = app.rows("a", (4, 4))
        if app.is_fresh_start:
            app.state["note"] = {"many": [1, 2, 3]}
        try:
            for step in app.iterations(20):
                pass
            print(group, "has done all", app.state["note"]["many"], flush=True)
        finally:
            print(group, "finally", flush=True)
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        first = driver.start(1, "first")
        assert driver.expand(1).ok
        assert driver.contract(0).ok
        driver.finish()
        assert first.text.splitlines() == ["group 0 finally", "group 0 exit handler"]
        assert driver.groups[1].text.splitlines() == [
            "group 1 has done all [1, 2, 3]",
            "group 1 finally",
            "group 1 exit handler",
        ]


def test_a_program_may_leave_the_loop_early(tmp_path: Path) -> None:
    body = """
        u = app.rows("u", (4, 4))
        for step in app.iterations(10_000):
            u.local[:] += 1
            if step >= 60: break
        assert (u.local == 61).all()
        app.report(steps=np.int64(step), residual=np.float64(0.5), done=np.True_, how="break")
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        driver.start(1, "first")
        assert driver.expand(1).ok
        driver.finish()
        assert driver.facts == {"steps": 60, "residual": 0.5, "done": True, "how": "break"}
        assert driver.segments == []


def test_an_error_in_a_group_that_joined_ends_that_group_alone(tmp_path: Path) -> None:
    """The others wait in a collective call until an agent ends them."""
    body = """
        import os
        for step in app.iterations(10_000):
            if app.comm.size == 3 and os.environ["RESHAPE_GROUP"] == "1":
                raise ValueError("no more")
            app.comm.Barrier()
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        first = driver.start(1, "first")
        group = driver.ready(2)
        driver.join(group)
        driver.serve(lambda: group.process.poll() is not None)
        assert group.process.returncode == 1
        assert group.text.count("ValueError: no more") == 1
        assert first.process.poll() is None


def test_a_submitted_program_may_have_one_block_only(tmp_path: Path) -> None:
    program = script(tmp_path, "pass")
    Path(program).write_text(Path(program).read_text() + "\nwith reshape.application(): pass\n")
    with Driver(tmp_path, [program]) as driver:
        group = driver.start(1, "first")
        driver.serve(lambda: group.process.poll() is not None)
        assert group.process.returncode == 1
        assert "may have one block 'with reshape.application()', not two" in group.text
