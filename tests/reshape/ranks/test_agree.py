"""What the ranks of a job decide together, by real processes."""

from __future__ import annotations

import pytest
from mpi4py import MPI

from reshape.errors import ReshapeError
from reshape.ranks.agree import (
    RolledBackError,
    agree,
    agreed,
    all_values,
    found_by,
    value_of,
)

#: Bytes of values, shorter and longer than what travels in the first message.
LENGTHS = (0, 1, 400, 600, 100_000)


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("root", [0, 2])
@pytest.mark.parametrize("length", LENGTHS)
def test_all_ranks_get_the_value_of_one(root: int, length: int) -> None:
    comm = MPI.COMM_WORLD
    own = f"{comm.rank}" * length
    assert value_of(comm, own, root) == f"{root}" * length


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("only", [None, 0, 1])
def test_all_ranks_get_all_values(length: int, only: int | None) -> None:
    comm = MPI.COMM_WORLD
    values = [f"{r}" * (length if only in (None, r) else 3) for r in range(comm.size)]
    assert all_values(comm, values[comm.rank]) == values


@pytest.mark.mpi(min_size=3)
def test_one_reason_rolls_back_all_ranks() -> None:
    comm = MPI.COMM_WORLD
    agree(comm, "")
    for ranks, first in (((1,), 1), ((2, 1), 1), ((0, 1, 2), 0)):
        why = f"é of {comm.rank}" * 100 if comm.rank in ranks else ""
        with pytest.raises(RolledBackError) as error:
            agree(comm, why)
        assert str(error.value) == f"é of {first}" * 100


@pytest.mark.mpi(min_size=2)
def test_a_reason_may_name_a_path_that_is_not_utf_8() -> None:
    with pytest.raises(RolledBackError, match=r"no folder /tmp/\\udcff"):
        agree(MPI.COMM_WORLD, "no folder /tmp/\udcff")


@pytest.mark.mpi(min_size=3)
def test_an_error_in_a_block_is_one_on_all_ranks() -> None:
    def write(what: str, failing: int) -> None:
        with agreed(MPI.COMM_WORLD, what, OSError):
            if MPI.COMM_WORLD.rank == failing:
                raise OSError(f"of {failing}")

    write("it is not written", -1)
    for what, text in (("it is not written", r"it is not written: of 2"), ("", r"^of 2$")):
        with pytest.raises(RolledBackError, match=text):
            write(what, 2)


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("root", [0, 2])
@pytest.mark.parametrize("length", LENGTHS)
def test_all_ranks_wait_for_what_one_finds(root: int, length: int) -> None:
    comm = MPI.COMM_WORLD
    found = found_by(comm, lambda: f"{comm.rank}" * length, root)
    assert found == f"{root}" * length


@pytest.mark.mpi(min_size=3)
def test_all_ranks_get_the_error_of_the_one_that_looks() -> None:
    def find() -> str:
        raise ReshapeError("there is none")

    with pytest.raises(ReshapeError, match=r"^there is none$"):
        found_by(MPI.COMM_WORLD, find, root=1)
