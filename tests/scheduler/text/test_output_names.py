"""Names of output files: the placeholders of Slurm, and what is refused."""

from __future__ import annotations

import pytest

from reshape.errors import ReshapeError
from scheduler.text.output_names import check_output_name, output_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("out-%j.txt", "out-7.txt"),
        ("%J %A %a %t", "7 7 0 0"),
        ("%x.%u@%N", "lu_big.ann@node1"),
        ("%%j %%%j", "%j %7"),
        ("%{JOB_ID}-%4j-%12j-%2a", "7-0007-0000000007-00"),
        ("plain", "plain"),
    ],
)
def test_placeholders_are_those_of_slurm(text: str, name: str) -> None:
    check_output_name(text)
    found = output_name(text, job=7, name="lu/big", user="ann", host="node1.example.org")
    assert found == name


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("a%zb", "%z"), ("50%", "%"), ("%{JOB}", "%{"), ("%4", "%4"), ("%%%s", "%s")],
)
def test_other_placeholders_are_refused_by_name(text: str, wrong: str) -> None:
    with pytest.raises(ReshapeError, match="has the placeholder") as caught:
        check_output_name(text)
    assert repr(wrong) in str(caught.value)
    assert "known are %j" in str(caught.value)


def test_a_host_that_is_not_known_leaves_its_placeholder() -> None:
    assert output_name("%N-%j", job=1, name="", user="") == "%N-1"
