"""What the mpiexec of a job on several hosts understands; its steps are in the hosts tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from reshape.errors import ReshapeError
from scheduler.client.scripts.mpiexec import read_call


@pytest.mark.parametrize(
    ("words", "argv", "processors", "more"),
    [
        ("python solve.py -n 3", ["python", "solve.py", "-n", "3"], None, {}),
        ("-n 2 hostname", ["hostname"], 2, {}),
        ("-np 3 -wdir /tmp hostname", ["hostname"], 3, {"cwd": Path("/tmp")}),
    ],
)
def test_its_options(
    words: str, argv: list[str], processors: int | None, more: dict[str, Any]
) -> None:
    own = {"argv": argv, "processors": processors, "environment": {**os.environ}}
    assert read_call(words.split()) == own | more


def test_variables_are_added_to_those_of_the_script() -> None:
    call = read_call(["-genvall", "-env", "A", "1", "-genv", "B", "2", "env"])
    assert call["environment"] == os.environ | {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-f hosts a", "mpiexec -f: this job is on several hosts"),
        ("-n 2 a : -n 1 b", "leave out what follows ':'"),
        ("-n two a", "mpiexec -n: expected a number of processes >= 1, got 'two'"),
        ("-n 0 a", "got '0'"),
        ("-n", "mpiexec -n: its value is missing"),
        ("-n 2", "name a program to start"),
        ("", "name a program to start"),
    ],
)
def test_what_it_refuses(words: str, told: str) -> None:
    with pytest.raises(ReshapeError, match=told):
        read_call(words.split())
