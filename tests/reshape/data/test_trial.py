"""`app.state` under `reshape try`: equal values are equal, however they are pickled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from application_scripts import script
from driver import Driver
from mpi4py import MPI

from reshape.data.trial import Trial
from reshape.errors import ReshapeError

RANK = MPI.COMM_WORLD.rank


class Plain:
    """An object without a comparison of its own."""

    def __init__(self, value: object) -> None:
        self.value = value


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
    Trial.check_state(MPI.COMM_WORLD, state)


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
            Trial.check_state(MPI.COMM_WORLD, {"same": 1, key: value})
        assert f"app.state[{key!r}] differs between ranks" in str(error.value)
    state = {"late": 1} if RANK else {}
    with pytest.raises(ReshapeError, match="not set on rank 0, 1 on rank 1"):
        Trial.check_state(MPI.COMM_WORLD, state)


@pytest.mark.mpi(min_size=2)
def test_what_cannot_be_pickled_is_left_to_the_resize() -> None:
    Trial.check_state(MPI.COMM_WORLD, {"bad": (lambda: RANK) if RANK else 1})


def test_state_is_compared_in_trials_only(tmp_path: Path) -> None:
    body = """
        for step in app.iterations(10):
            app.state["rank"] = app.comm.rank
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        driver.start(2, "first")
        assert driver.expand(1).ok
        driver.finish()
