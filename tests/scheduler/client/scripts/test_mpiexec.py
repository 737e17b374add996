"""What the mpiexec of a job on several hosts understands; its steps are in the hosts tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape.errors import ReshapeError
from scheduler.client.scripts.mpiexec import Call, read_call


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("python solve.py -n 3", Call(argv=["python", "solve.py", "-n", "3"])),
        ("-n 2 hostname", Call(2, argv=["hostname"])),
        ("-np 3 -wdir /tmp hostname", Call(3, Path("/tmp"), argv=["hostname"])),
        ("-genvall -env A 1 -genv B 2 env", Call(environment={"A": "1", "B": "2"}, argv=["env"])),
    ],
)
def test_its_options(words: str, call: Call) -> None:
    assert read_call(words.split()) == call


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
