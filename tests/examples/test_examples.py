"""Every example gives its expected output, at any size and while it is resized."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from driver import Driver, run
from paths import EXAMPLES

EXAMPLE, EXPECTED = EXAMPLES / "first_application.py", EXAMPLES / "first_application.out"


def test_each_example_has_its_output() -> None:
    assert {p.stem for p in EXAMPLES.glob("*.py")} == {p.stem for p in EXAMPLES.glob("*.out")}


def test_first_application_is_short() -> None:
    assert len([line for line in EXAMPLE.read_text().splitlines() if line]) <= 16


@pytest.mark.parametrize("size", [1, 2, 3])
def test_first_application_by_itself(size: int) -> None:
    done = run(size, str(EXAMPLE))
    assert done.returncode == 0, done.stderr
    assert done.stdout == EXPECTED.read_text()


def test_first_application_while_it_is_resized(tmp_path: Path) -> None:
    with Driver(tmp_path, [str(EXAMPLE)]) as driver:
        driver.start(1, "first")
        assert driver.expand(2).ok
        assert driver.contract(0).ok
        assert driver.finish() == EXPECTED.read_text()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("random_numbers", marks=pytest.mark.long),
        "particles",
        pytest.param("sparse_matrix", marks=pytest.mark.long),
        "work_items",
    ],
)
def test_results_do_not_depend_on_the_size(tmp_path: Path, name: str) -> None:
    program = EXAMPLES / f"{name}.py"
    expected = program.with_suffix(".out").read_text()
    done = run(3, str(program))
    assert (done.returncode, done.stdout) == (0, expected)
    with Driver(tmp_path, [str(program)]) as driver:
        driver.start(1, "first")
        assert driver.expand(2).ok
        assert driver.contract(0).ok
        assert driver.finish() == expected


@pytest.mark.parametrize("name", ["my_policy", "my_order", "my_pass", "my_whole_policy"])
def test_a_user_defined_policy(name: str) -> None:
    example = EXAMPLES / f"{name}.py"
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=True
    )
    assert done.stdout == example.with_suffix(".out").read_text()
