"""Block arrays and their halos, compared with a padded global array."""

from __future__ import annotations

import numpy as np
import pytest
from application_scripts import check_wrong_use
from mpi4py import MPI

import reshape

on_4_ranks = pytest.mark.mpi(min_size=4)

CASES = [
    ((10,), 1, False),
    ((10,), 3, True),
    ((3,), 2, True),  # one rank has no point, and a halo spans several ranks
    ((9, 7), 1, False),
    ((9, 7), (2, 1), (True, False)),
    ((2, 1), 1, True),  # ranks are their own neighbours
    ((1, 5), 1, False),
    ((5, 4, 3), (1, 0, 2), (False, True, True)),
    ((3, 4, 2, 3), 1, (False, False, True, False)),
]


def padded(whole: np.ndarray, halo: tuple[int, ...], periodic: tuple[bool, ...]) -> np.ndarray:
    """The global array with a halo of -1 beyond the edges that are not periodic."""
    for axis, (width, wraps) in enumerate(zip(halo, periodic, strict=True)):
        widths = [(width, width) if k == axis else (0, 0) for k in range(whole.ndim)]
        options = {"mode": "wrap"} if wraps else {"mode": "constant", "constant_values": -1}
        whole = np.pad(whole, widths, **options)  # type: ignore[call-overload]
    return whole


@on_4_ranks
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("shape", "halo", "periodic"), CASES)
def test_an_exchange_fills_the_halo(shape, halo, periodic, order) -> None:  # type: ignore[no-untyped-def]
    whole = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    with reshape.application() as app:
        u = app.blocks("u", shape, halo, periodic, dtype=np.int32, order=order)
        own = np.ix_(*u.layout.global_indices(app.comm.rank))
        for factor in (1, 2):  # the messages are used again
            u.local[...] = factor * whole[own]
            with_halo = u.exchange(outside=-1)
            all_of_it = padded(factor * whole, u.halo, u.periodic)
            ranges = [
                np.arange(indices[0], indices[-1] + 1 + 2 * width)
                for indices, width in zip(
                    u.layout.global_indices(app.comm.rank), u.halo, strict=True
                )
                if len(indices)
            ]
            if len(ranges) == len(shape):
                np.testing.assert_array_equal(with_halo, all_of_it[np.ix_(*ranges)])
            assert with_halo.flags[f"{order}_CONTIGUOUS"]
            with_halo[...] = -7
            np.testing.assert_array_equal(u.local, factor * whole[own])


@on_4_ranks
def test_fields_with_components_and_staggered_fields_exchange_along_their_axes() -> None:
    """Axes that are whole have no halo unless the program asks for it."""
    whole = np.arange(3 * 10 * 7).reshape(3, 10, 7)
    with reshape.application() as app:
        p = app.blocks("p", (9, 7))
        u = app.blocks("u", (3, 10, 7), cut=(1, 2), like=p, dtype=int)
        z = app.blocks("z", (3, 10, 7), (2, 1, 1), (True, False, False), int, cut=(1, 2), like=p)
        x, y = app.blocks("x", (9,), cut=(0, None), like=p), app.blocks("y", (7,), cut=(None, 0))
        rank = app.comm.rank
        assert (u.halo, z.halo, x.halo) == ((0, 1, 1), (2, 1, 1), (1,))
        own = u.layout.global_indices(rank)
        around = [np.arange(along[0] - 1, along[-1] + 2) for along in own[1:]]
        expected = np.pad(whole, [(0, 0), (1, 1), (1, 1)], constant_values=-1)
        expected = expected[np.ix_(range(3), *(along + 1 for along in around))]
        u.local[...] = z.local[...] = whole[np.ix_(*own)]
        np.testing.assert_array_equal(u.exchange(outside=-1), expected)
        np.testing.assert_array_equal(
            z.exchange(outside=-1), np.pad(expected, [(2, 2), (0, 0), (0, 0)], mode="wrap")
        )
        # The points of p, and those of vectors along its axes, are on the same ranks.
        rows, columns = p.layout.global_indices(rank)
        np.testing.assert_array_equal(rows, x.layout.global_indices(rank)[0])
        np.testing.assert_array_equal(columns, y.layout.global_indices(rank)[0])
        assert x.neighbours(rank) == p.neighbours(rank, axis=0)
        assert y.neighbours(rank) == p.neighbours(rank, axis=1)
        x.local[...] = rows
        np.testing.assert_array_equal(
            x.exchange(outside=-1), np.append(np.r_[-1, :9], -1)[rows[0] : rows[-1] + 3]
        )
        # Row 9 of u, which p lacks, is on the ranks with the last row of p.
        assert (9 in own[1]) == (8 in rows)


@on_4_ranks
@pytest.mark.parametrize("dtype", [[("key", "i4"), ("value", "f8", (3,))], "M8[D]", "U3", ">c16"])
def test_an_exchange_keeps_the_element_type(dtype) -> None:  # type: ignore[no-untyped-def]
    """Points beyond an edge are zeros by default: an empty text, the first day."""
    with reshape.application() as app:
        u = app.blocks("u", (8,), dtype=dtype)
        (own,) = u.layout.global_indices(app.comm.rank)
        whole = np.zeros(10, dtype)
        whole[1:9] = np.arange(1, 9).astype(dtype)
        u.local[...] = whole[own + 1]
        with_halo = u.exchange()
        assert with_halo.dtype == whole.dtype
        np.testing.assert_array_equal(with_halo, whole[own[0] : own[-1] + 3])


@on_4_ranks
def test_ranks_and_neighbours_are_those_of_a_cartesian_communicator() -> None:
    with reshape.application() as app:
        u = app.blocks("u", (8, 6), periodic=(True, False))
        cart = app.comm.Create_cart(u.layout.grid, periods=[True, False])
        assert tuple(cart.coords) == u.layout.coordinates(app.comm.rank)
        for axis in (0, 1):
            expected = [None if r == MPI.PROC_NULL else r for r in cart.Shift(axis, 1)]
            assert list(u.neighbours(app.comm.rank, axis)) == expected
        cart.Free()


@on_4_ranks
@pytest.mark.parametrize(
    ("use", "error"),
    [
        (
            lambda a: a.blocks("a", (4, 4), halo=(1,)),
            "array 'a': halo=(1,) and periodic=False must",
        ),
        (lambda a: a.blocks("a", (4, 4), halo=-1), "array 'a': halo=-1 and periodic=False must"),
        (lambda a: a.blocks("a", (4,), halo=0.5), "array 'a': shape=(4,), halo=0.5 and periodic="),
        (lambda a: a.blocks("a", 4), "array 'a': shape=4, halo=1 and periodic=False must be whole"),
        (lambda a: a.blocks("a", ()), "array 'a' has no axes to distribute: use app.replicated"),
        (lambda a: a.blocks("a", (4, -1)), "array 'a': shape must have entries >= 0"),
        (
            lambda a: a.blocks("a", (4,)).neighbours(0, axis=1),
            "blocks 'a' (shape=(4,), halo=(1,), periodic=(0,), dtype=<f8, order='C') has no axis 1",
        ),
    ],
)
def test_wrong_use_raises_an_error_of_one_sentence(alone: None, use, error: str) -> None:  # type: ignore[no-untyped-def]
    check_wrong_use(use, error)
