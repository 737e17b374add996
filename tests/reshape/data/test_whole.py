"""Whole arrays: gathered on rank 0, and written to a file."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
from driver import run
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import reshape
from reshape.app import Application
from reshape.data import whole
from reshape.data.arrays import Array
from reshape.errors import ReshapeError

on_4_ranks = pytest.mark.mpi(min_size=4)
PAIR = np.dtype([("key", "i4"), ("value", "f8")])


@examples(50)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 9))
def test_slabs_are_consecutive_elements_of_the_file(shape: list[int], itemsize: int) -> None:
    numbers, seen = np.arange(math.prod(shape)).reshape(shape), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole, "SLAB_BYTES", 40)
        for slab in whole.slabs(tuple(shape), itemsize):
            part = numbers[tuple(slice(*ends) for ends in slab)]
            assert 0 < part.size * itemsize <= 40
            seen.extend(part.ravel().tolist())
    assert seen == list(range(numbers.size))


def values(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array in which each element has a value of its own."""
    numbers = np.arange(math.prod(shape)).reshape(shape)
    if dtype.names is None:
        return numbers.astype(dtype)
    array = np.zeros(shape, dtype)
    array["key"], array["value"] = numbers, numbers / 7
    return array


LAYOUTS: dict[str, Callable[[Application], Array]] = {
    "block_cyclic": lambda app: app.block_cyclic("a", (13, 9), (2, 3)),
    "block_cyclic in Fortran order": lambda app: app.block_cyclic(
        "a", (13, 9, 4), (2, 3, 1), order="F"
    ),
    "rows": lambda app: app.rows("a", (11, 3), dtype="c16"),
    "columns": lambda app: app.rows("a", (3, 11), axis=1, dtype=PAIR),
    "times": lambda app: app.rows("a", (9, 4), dtype="M8[25s]"),
    "texts": lambda app: app.rows("a", (9,), dtype="U5"),
    "empty parts": lambda app: app.rows("a", (2, 5)),
    "no elements": lambda app: app.rows("a", (0, 5), order="F"),
    "one axis in Fortran order": lambda app: app.rows("a", (7,), order="F"),
    "replicated": lambda app: app.replicated("a", np.zeros((5, 4))),
    "components": lambda app: app.blocks("a", (3, 5, 6), cut=(2, 1)),
    "copies": lambda app: app.blocks("a", (9,), cut=(0, None), order="F"),
    "staggered": lambda app: app.blocks("a", (6, 7), like=app.blocks("b", (5, 7)), dtype=PAIR),
    "cyclic copies": lambda app: app.block_cyclic("a", (9, 3, 8), (2,), cut=(None, 0)),
}


@on_4_ranks
@pytest.mark.parametrize("register", LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_is_gathered_and_saved(
    mpi_tmp_path: Path, monkeypatch: pytest.MonkeyPatch, register: Callable[[Application], Array]
) -> None:
    """The file has the bytes that NumPy writes, although it is written in small slabs."""
    monkeypatch.setattr(whole, "SLAB_BYTES", 64)
    path = mpi_tmp_path / "a.npy"
    with reshape.application() as app:
        array = register(app)
        expected = values(array.shape, array.dtype)
        array.local[...] = expected[np.ix_(*array.layout.global_indices(app.comm.rank))]
        gathered = array.gather()
        array.save(path)
        if app.comm.rank == 0:
            assert gathered is not None
            assert gathered.dtype == array.dtype
            assert gathered.flags[f"{array.declaration.order}_CONTIGUOUS"]
            np.testing.assert_array_equal(gathered, expected)
            np.save(
                mpi_tmp_path / "expected.npy", np.asarray(expected, order=array.declaration.order)
            )
            assert path.read_bytes() == (mpi_tmp_path / "expected.npy").read_bytes()
            assert sorted(os.listdir(mpi_tmp_path)) == ["a.npy", "expected.npy"]
        else:
            assert gathered is None
        array.local[...] = np.zeros((), array.dtype)
        array.load(path)
        np.testing.assert_array_equal(
            array.local, expected[np.ix_(*array.layout.global_indices(app.comm.rank))]
        )


@on_4_ranks
@pytest.mark.parametrize("register", LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_is_saved_to_and_loaded_from_hdf5(
    mpi_tmp_path: Path, monkeypatch: pytest.MonkeyPatch, register: Callable[[Application], Array]
) -> None:
    """Beside another array in the same file, which any program reads."""
    monkeypatch.setattr(whole, "SLAB_BYTES", 64)
    path = mpi_tmp_path / "run.h5"
    with reshape.application() as app:
        array, other = register(app), app.rows("other", (5, 3), dtype="i4")
        expected = values(array.shape, array.dtype)
        own = expected[np.ix_(*array.layout.global_indices(app.comm.rank))]
        array.local[...], other.local[...] = own, app.comm.rank
        if array.dtype.kind in "MU":
            with pytest.raises(
                ReshapeError, match=r"cannot save other, a to .*run\.h5: No conversion"
            ):
                other.save(path, array)
            assert not path.exists()
            return
        other.save(path, array)
        if app.comm.rank == 0:
            assert os.listdir(mpi_tmp_path) == ["run.h5"]
            with h5py.File(path) as file:
                assert set(file) == {"a", "other"}
                np.testing.assert_array_equal(file["a"][...], expected)
                assert file["a"].dtype == array.dtype
        array.local[...] = np.zeros((), array.dtype)
        array.load(path)
        np.testing.assert_array_equal(array.local, own)


@on_4_ranks
@pytest.mark.parametrize("suffix", [".h5", ".npy"])
def test_a_file_of_another_array_is_one_error_on_every_rank(
    mpi_tmp_path: Path, suffix: str
) -> None:
    path = mpi_tmp_path / f"a{suffix}"
    with reshape.application() as app:
        a, single = app.rows("a", (7, 2)), app.rows("single", (7, 2), dtype="f4")
        a.local[...] = app.comm.rank
        before = a.local.copy()
        with pytest.raises(ReshapeError, match=f"cannot load a from {path}: "):
            a.load(path)
        if app.comm.rank == 0:
            wrong = {"a": np.zeros((7, 3)), "single": np.zeros((7, 2), "c16")}
            if suffix == ".npy":
                np.save(path, wrong["a"])
            else:
                with h5py.File(path, "w") as file:
                    file.update(wrong)
        app.comm.Barrier()
        shape = r"it has shape \(7, 3\) and dtype float64, expected \(7, 2\) and float64"
        with pytest.raises(ReshapeError, match=f"cannot load a from {path}: {shape}"):
            a.load(path)
        if suffix == ".h5":
            with pytest.raises(ReshapeError, match=r"and dtype complex128, expected .* float32"):
                single.load(path)
        else:
            with pytest.raises(ReshapeError, match=r"only files of HDF5 \(\.h5\) hold several"):
                a.save(path, single)
        np.testing.assert_array_equal(a.local, before)


def write_archive(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, a=np.zeros((7, 2)))


def write_part(path: Path) -> None:
    np.save(path, np.zeros((7, 2)))
    os.truncate(path, path.stat().st_size - 8)


def write_group(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_group("a")
        file["b"] = np.zeros((7, 2))


def write_other(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["b"] = np.zeros((7, 2))


#: Name of a file, what writes it, and the reason why no array can be loaded from it.
WITHOUT_ARRAY: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "archive": ("a.npy", write_archive, r"it is no complete array of NumPy \(\.npy\): the magic"),
    "empty": ("a.npy", lambda path: path.touch(), "it is no complete array of NumPy"),
    "part": ("a.npy", write_part, "it is no complete array of NumPy"),
    "group": ("a.h5", write_group, "it has no data set 'a', but b$"),
    "other": ("a.h5", write_other, "it has no data set 'a', but b$"),
}


@on_4_ranks
@pytest.mark.parametrize("case", WITHOUT_ARRAY)
def test_a_file_without_the_array_is_one_error_on_every_rank(mpi_tmp_path: Path, case: str) -> None:
    name, write, why = WITHOUT_ARRAY[case]
    path = mpi_tmp_path / name
    with reshape.application() as app:
        a, ions = app.rows("a", (7, 2)), app.particles("ions", "f8")
        if app.comm.rank == 0:
            write(path)
        app.comm.Barrier()
        with pytest.raises(ReshapeError, match=f"cannot load a from {path}: {why}"):
            a.load(path)
        with pytest.raises(ReshapeError, match=f"cannot load ions from {path}: it "):
            ions.load(path)


@on_4_ranks
def test_a_link_is_kept_and_what_is_no_file_is_not_replaced(mpi_tmp_path: Path) -> None:
    names = ("pipe", "link.npy", "target.npy", "circle.npy")
    pipe, link, target, circle = (mpi_tmp_path / name for name in names)
    with reshape.application() as app:
        a = app.rows("a", (7,))
        a.local[...] = 1.0
        if app.comm.rank == 0:
            os.mkfifo(pipe)
            link.symlink_to(target)
            circle.symlink_to(circle)
        app.comm.Barrier()
        a.save(link)
        with pytest.raises(ReshapeError, match=f"^cannot save a to {circle}: Symlink loop"):
            a.save(circle)
        with pytest.raises(ReshapeError, match=f"^cannot save a to {pipe}: it is a folder, a dev"):
            a.save(pipe)
        with pytest.raises(ReshapeError, match=r"^cannot save a to : it is a folder, a dev"):
            a.save("")
        if app.comm.rank == 0:
            assert link.is_symlink()
            assert pipe.is_fifo()
            np.testing.assert_array_equal(np.load(target), np.ones(7))


@on_4_ranks
def test_sparse_matrices_and_items_are_gathered() -> None:
    with reshape.application() as app:
        rows, columns = np.indices((9, 6))
        matrix = csr_array(np.where(rows * columns % 3 == 1, rows + columns, 0.0))
        s, t = app.csr("s", (9, 6), balance="entries"), app.items("t", list("abcdefg"))
        s.assemble(matrix if app.comm.rank == 2 else None)
        gathered, items = s.gather(), t.gather()
        if app.comm.rank == 0:
            assert (gathered != matrix).nnz == 0
            assert items == list("abcdefg")
        else:
            assert gathered is items is None


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let a longer file be an error of this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@on_4_ranks
@pytest.mark.parametrize("suffix", [".npy", ".h5"])
@pytest.mark.parametrize("case", ["no folder", "no room", "no room in the middle"])
def test_a_file_that_cannot_be_written_is_one_error_on_every_rank(
    mpi_tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, suffix: str
) -> None:
    """The file that was there before remains, and nothing of the new one."""
    monkeypatch.setattr(whole, "SLAB_BYTES", 1 << 14)
    folder = mpi_tmp_path / "missing" if case == "no folder" else mpi_tmp_path
    if case == "no room in the middle":  # as on a file system that cannot reserve room
        monkeypatch.setattr(os, "posix_fallocate", lambda *_: None)
    with reshape.application() as app:
        a = app.rows("a", (30_000,))
        if app.comm.rank == 0 and folder.exists():
            (folder / f"a{suffix}").write_bytes(b"old")
        why = "No such file or directory" if case == "no folder" else "File too large"
        expected = f"cannot save a to {folder}/a{suffix}: {why}"
        with files_of_at_most(100_000), pytest.raises(ReshapeError) as error:
            a.save(folder / f"a{suffix}")
        assert str(error.value) == expected
        app.comm.Barrier()
        if folder.exists():
            assert os.listdir(folder) == [f"a{suffix}"]
            assert (folder / f"a{suffix}").read_bytes() == b"old"
        app.comm.Barrier()
        a.save(mpi_tmp_path / f"b{suffix}")  # all ranks are at the same step


UNSENT = """
import sys
import numpy as np
import reshape
from reshape.data import whole

def without_memory(part):
    raise MemoryError("injected")

with reshape.application() as app:
    u = app.rows("u", (100, 3))
    if app.comm.rank == 1:
        whole._bytes = without_memory
    u.save(sys.argv[1])
"""


def test_a_rank_that_cannot_send_its_part_ends_the_program(tmp_path: Path) -> None:
    """Rank 0 waits for the part, so that it cannot agree on an error."""
    ended = run(2, "-c", UNSENT, str(tmp_path / "u.npy"))
    assert ended.returncode != 0
    assert "MemoryError: injected" in ended.stderr
    assert "cannot save" not in ended.stderr
