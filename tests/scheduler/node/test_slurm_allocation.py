"""The variables by which salloc and sbatch describe an allocation."""

from __future__ import annotations

import pytest

from reshape.errors import ReshapeError
from scheduler.node.slurm import own_allocation, parse_counts


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("4", [4]),
        ("4(x2),3", [4, 4, 3]),
        ("1(x3)", [1, 1, 1]),
        ("72,36(x2),72", [72, 36, 36, 72]),
    ],
)
def test_processors_of_successive_nodes(text: str, counts: list[int]) -> None:
    assert parse_counts(text) == counts


@pytest.mark.parametrize("text", ["", "0", "4(x0)", "4(x2", "4,", "4(2)", "four", "4(x2) ", "٤"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a list of numbers such as"):
        parse_counts(text)


def test_outside_of_an_allocation() -> None:
    with pytest.raises(ReshapeError, match="in no Slurm allocation") as refused:
        own_allocation({"SLURM_JOB_NODELIST": "n[1-2]"})
    assert "sbatch" in str(refused.value)
