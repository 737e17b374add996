"""Particles on four ranks: they migrate to the owners of their cells, and none is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from application_scripts import check_wrong_use

import reshape
from reshape.app import Application
from reshape.data.arrays import Array
from reshape.errors import ReshapeError

on_4_ranks = pytest.mark.mpi(min_size=4)
ION = np.dtype([("number", "i8"), ("x", "f8", (2,)), ("charge", "i1")], align=True)

CELLS: dict[str, tuple[Callable[[Application], Array], Callable[[np.ndarray], np.ndarray]]] = {
    "blocks": (
        lambda app: app.blocks("cells", (8, 6)),
        lambda r: r["x"].astype(int),
    ),
    "fields with components": (
        lambda app: app.blocks("cells", (3, 8, 6), cut=(2, 1)),
        lambda r: r["x"][:, ::-1].astype(int),
    ),
    "columns": (
        lambda app: app.rows("cells", (8, 6), axis=1),
        lambda r: r["x"][:, 1].astype(int),
    ),
    "more ranks than cells": (
        lambda app: app.rows("cells", (2,)),
        lambda r: r["x"][:, 0].astype(int) // 4,
    ),
}


@on_4_ranks
@pytest.mark.parametrize(("register", "cell"), CELLS.values(), ids=CELLS)
def test_particles_migrate_to_the_owners_of_their_cells(
    register: Callable[[Application], Array], cell: Callable[[np.ndarray], np.ndarray]
) -> None:
    with reshape.application() as app:
        cells = register(app)
        ions = app.particles("ions", ION, like=cells, cell=cell)
        assert ions.local.shape == (0,)
        rank, rng = app.comm.rank, np.random.default_rng(app.comm.rank)
        given = np.zeros(20 * rank, ION)  # rank 0 has none
        given["number"] = np.arange(len(given)) + 1000 * rank
        given["x"] = rng.random((len(given), 2)) * (8, 6)
        ions.local = given
        assert not np.shares_memory(ions.local, given)
        everything = np.sort(np.concatenate(app.comm.allgather(given)), order="number")
        for _ in range(3):
            ions.migrate()
            held = np.concatenate(app.comm.allgather(ions.local))
            np.testing.assert_array_equal(np.sort(held, order="number"), everything)
            own = cells.layout.global_indices(rank)
            divided = [axis for axis in cells.declaration.division.cut if axis is not None]
            indices = cell(ions.local).reshape(-1, len(divided))
            for k, axis in enumerate(divided):
                assert np.isin(indices[:, k], own[axis]).all()
            gathered = ions.gather()
            if rank == 0:
                np.testing.assert_array_equal(gathered, held)
            everything["x"] = rng.permutation(everything["x"])
            everything = app.comm.bcast(everything)
            positions = dict(zip(everything["number"], everything["x"], strict=True))
            for ion in ions.local:
                ion["x"] = positions[ion["number"]]


@on_4_ranks
def test_particles_without_cells_are_divided_evenly_in_their_order() -> None:
    with reshape.application() as app:
        ions = app.particles("ions", "f4")
        held = [5, 0, 9, 2]
        first = sum(held[: app.comm.rank])
        ions.local = np.arange(first, first + held[app.comm.rank], dtype="f4")
        ions.migrate()
        assert len(ions.local) == 4
        np.testing.assert_array_equal(ions.local, np.arange(4) + 4 * app.comm.rank)


@on_4_ranks
@pytest.mark.parametrize("suffix", [".h5", ".npy"])
def test_particles_are_saved_and_come_back_to_the_owners_of_their_cells(
    mpi_tmp_path: Path, suffix: str
) -> None:
    path = mpi_tmp_path / f"ions{suffix}"
    with reshape.application() as app:
        cells = app.blocks("cells", (8, 6))
        ions = app.particles("ions", ION, cells, lambda r: r["x"].astype(int))
        other = app.particles("other", ION)
        rank, rng = app.comm.rank, np.random.default_rng(app.comm.rank)
        given = np.zeros(5 * rank, ION)
        given["number"], given["x"] = 100 * rank + np.arange(len(given)), rng.random(2) * (8, 6)
        ions.local = given
        ions.save(path, *([cells] if suffix == ".h5" else []))
        everything = np.concatenate(app.comm.allgather(given))
        ions.local = given[:0]
        ions.load(path)
        held = np.concatenate(app.comm.allgather(ions.local))
        np.testing.assert_array_equal(np.sort(held, order="number"), everything)
        counts = app.comm.allgather(len(ions.local))
        ions.migrate()
        assert app.comm.allgather(len(ions.local)) == counts
        if suffix == ".npy":
            other.load(path)
            np.testing.assert_array_equal(
                np.concatenate(app.comm.allgather(other.local)), everything
            )
        else:
            with pytest.raises(ReshapeError, match=r"cannot load other from .*ions\.h5: "):
                other.load(path)
            assert other.local.shape == (0,)


@on_4_ranks
def test_a_particle_outside_of_the_cells_is_an_error_on_every_rank() -> None:
    with reshape.application() as app:
        cells = app.blocks("cells", (8, 6))
        ions = app.particles("ions", ION, cells, lambda r: r["x"].astype(int))
        given = np.zeros(3, ION)
        given["x"][2, 1] = 6.5 if app.comm.rank == 2 else 0
        ions.local = given
        with pytest.raises(ReshapeError) as error:
            ions.migrate()
        assert str(error.value) == (
            "particles 'ions' of rank 2: record 2 is in cell (0, 6), outside of (8, 6): wrap its "
            "position or remove it"
        )
        np.testing.assert_array_equal(ions.local, given)


@on_4_ranks
@pytest.mark.parametrize(
    ("use", "error"),
    [
        (
            lambda a: a.particles("a", ION, like=a.blocks("b", (4, 4))),
            "particles 'a': give like, an array with the cells, together with cell, a function",
        ),
        (lambda a: a.particles("a", ION, cell=len), "particles 'a': give like, an array with"),
        (
            lambda a: a.particles("a", ION, like=a.csr("b", (4, 4)), cell=len),
            "particles 'a', like=b: csr 'b' (shape=(4, 4), balance=rows, dtype=<f8, order='C') has",
        ),
        (
            lambda a: setattr(a.particles("a", ION), "local", np.zeros(3)),
            "particles 'a': its local part can be set to an array of shape (n,) and dtype {'names",
        ),
    ],
)
def test_wrong_use_raises_an_error_of_one_sentence(alone: None, use, error: str) -> None:  # type: ignore[no-untyped-def]
    check_wrong_use(use, error)


@on_4_ranks
@pytest.mark.parametrize(
    ("cell", "error"),
    [
        (lambda r: r["x"], "its cells have dtype float64, expected integers"),
        (lambda r: r["number"], "its cells have 1 indices, expected 2"),
        (lambda r: r["y"], "ValueError: no field of name y"),
    ],
)
def test_a_function_that_returns_no_cells_is_an_error_on_every_rank(cell, error: str) -> None:  # type: ignore[no-untyped-def]
    with reshape.application() as app:
        ions = app.particles("ions", ION, app.blocks("cells", (4, 4)), cell)
        if app.comm.rank == 3:
            ions.local = np.zeros(2, ION)
        with pytest.raises(ReshapeError, match=f"^particles 'ions' of rank 3: {error}$"):
            ions.migrate()
