"""What the ranks of a job decide together, by real processes."""

from __future__ import annotations

import pytest
from mpi4py import MPI

from reshape.resizing.agree import RolledBackError, agree, all_values, value_of, wait_on_first_rank

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


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("length", LENGTHS)
def test_all_ranks_wait_for_what_the_first_one_finds(length: int) -> None:
    comm = MPI.COMM_WORLD
    found = wait_on_first_rank(comm, lambda: f"{comm.rank}" * length)
    assert found == "0" * length
