"""What has to be the same on all ranks: equal values are equal, however they are pickled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from application_scripts import script
from driver import Driver
from mpi4py import MPI

import reshape
from reshape.data.equal_ranks import check_copies, check_state
from reshape.errors import ReshapeError
from reshape.wire.identity import TRIAL_VARIABLE
from reshape.wire.messages import Leave

RANK = MPI.COMM_WORLD.rank


class Plain:
    """An object without a comparison of its own."""

    def __init__(self, value: object) -> None:
        self.value = value


class Counted:
    """An item that counts how often this process unpickles one."""

    count = 0

    def __init__(self, order: list[int]) -> None:
        self.order = set(order)

    def __setstate__(self, state: dict[str, Any]) -> None:
        Counted.count += 1
        vars(self).update(state)


@pytest.mark.mpi(min_size=2)
def test_equal_values_differ_in_nothing() -> None:
    order = [1, 9, 17] if RANK else [17, 9, 1]  # they collide, so the order is kept
    state: dict[str, Any] = {
        "set": set(order),
        "nan": float("nan"),
        "array": np.array([1.0, np.nan]),
        "nested": {"a": [{3, *order}, (1, 2.0)]},
        "number": np.float64(2.0) if RANK else 2.0,
        "object": Plain({"x": set(order)}),
        "rng": np.random.default_rng(3),
    }
    check_state(MPI.COMM_WORLD, state)


@pytest.mark.mpi(min_size=2)
def test_the_first_different_value_is_named_on_every_rank() -> None:
    different: dict[str, tuple[Any, str]] = {
        "list": ([RANK], "[0] on rank 0, [1] on rank 1"),
        "array": (np.array([1.0, RANK]), "array([1., 0.]) on rank 0"),
        "rng": (np.random.default_rng(RANK), "on rank 1"),
        "object": (Plain({"x": RANK}), "on rank 1"),
    }
    for key, (value, why) in different.items():
        with pytest.raises(ReshapeError, match=re.escape(why)) as error:
            check_state(MPI.COMM_WORLD, {"same": 1, key: value})
        assert f"app.state[{key!r}] differs between ranks" in str(error.value)
    state = {"late": 1} if RANK else {}
    with pytest.raises(ReshapeError, match="not set on rank 0, 1 on rank 1"):
        check_state(MPI.COMM_WORLD, state)


@pytest.mark.mpi(min_size=2)
def test_what_cannot_be_pickled_is_left_to_the_resize() -> None:
    check_state(MPI.COMM_WORLD, {"bad": (lambda: RANK) if RANK else 1})


@pytest.mark.mpi(min_size=4)
def test_copies_that_differ_are_named_on_every_rank() -> None:
    with reshape.application() as app:
        padded = np.dtype([("a", "i1"), ("b", "f8")], align=True)
        p = app.replicated("p", np.array([1.0, np.nan]))
        u = app.blocks("u", (8, 6))
        x = app.blocks("x", (8,), cut=(0, None), like=u, dtype=padded)
        arrays = {array.name: array for array in (p, u, x)}
        u.local[...] = RANK
        x.local["b"] = RANK // 2
        x.local.view(np.uint8)[1::16] = RANK  # padding is not compared
        check_copies(app.comm, arrays)
        x.local["a"][-1] = RANK == 3
        with pytest.raises(ReshapeError, match=r"^array 'x' differs between ranks 2 and 3, which"):
            check_copies(app.comm, arrays)
        p.local[0] += RANK == 1
        with pytest.raises(ReshapeError, match=r"^array 'p' differs between ranks 0 and 1, which"):
            check_copies(app.comm, arrays)


@pytest.mark.mpi(min_size=4)
def test_items_that_differ_are_one_error_on_every_rank() -> None:
    """Otherwise some would be lost, and others would be there twice."""
    order = [1, 9, 17] if RANK % 2 else [17, 9, 1]
    for items, why in (
        ([0] * (5 + (RANK == 2)), "5 on rank 0, 6 on rank 2"),
        ([] if RANK else [1, 2], "2 on rank 0, 0 on rank 1"),
        ([3, {"rank": RANK}], "number 1 is {'rank': 0} on rank 0, {'rank': 1} on rank 1"),
    ):
        with reshape.application() as app:
            app.items("equal", [set(order), {"x": 1.0}])
            app.items("t", items)
            with pytest.raises(ReshapeError, match=r"^items 't' differ between ranks") as e:
                app.iterations(3)
            assert f": {why}; give all items on every rank" in str(e.value)


@pytest.mark.mpi(min_size=4)
def test_each_rank_compares_its_own_items_alone() -> None:
    """So a start takes no longer with more ranks, which pickle equal items in different ways."""
    with reshape.application() as app:
        app.items("t", [Counted([1, 9, 17] if RANK % 2 else [17, 9, 1])])
        assert list(app.iterations(1)) == [0]
    assert Counted.count == (2 if RANK % 2 else 0), "own one, and that of rank 0"


def test_state_is_compared_in_trials_only(tmp_path: Path) -> None:
    body = """
        for step in app.iterations(10):
            app.state["rank"] = app.comm.rank
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        driver.start(2, "first")
        assert driver.expand(1).ok
        driver.finish()


def test_a_trial_compares_copies_at_each_resize(tmp_path: Path) -> None:
    """Data that is elsewhere between two resizes, as items, has no copies."""
    body = """
        p, t = app.replicated("p", [0]), app.items("t", range(5))
        for step in app.iterations(60):
            if app.comm.size == 4:
                p.local[0] = app.comm.rank // 2
    """
    trial = {TRIAL_VARIABLE: str(tmp_path)}
    with Driver(tmp_path, [script(tmp_path, body)], **trial) as driver:
        first = driver.start(2, "first")
        assert driver.expand(1).ok
        assert driver.expand(1).ok
        driver.decide = lambda _: Leave(serial=3, groups=[1])
        driver.serve(lambda: first.process.poll() is not None)
        assert driver.faults[0].why.startswith("array 'p' differs between ranks 0 and 2, which")
