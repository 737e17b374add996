"""`reshape study` as a user meets it: what is run, what is kept, what is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SQUARES = """
from simulator.study import Report

def run(parameters):
    if parameters["x"] == parameters.get("bad"):
        raise RuntimeError("this one is odd")
    return {"square": parameters["x"] ** 2 + parameters.get("seed", 0)}

def report(rows, out):
    numbers = [row.result["square"] for row in rows]
    return Report(f"sum {sum(numbers)}", {"squares": numbers}, {"a.txt": b"a"})
"""
STUDY = """
study: Squares
run: squares:run
report: squares:report
fixed: {bad: null}
grid:
  x: [1, 2, 3]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "squares.py").write_text(SQUARES)
    (tmp_path / "squares.yaml").write_text(STUDY)
    return tmp_path


def reshape(folder: Path, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "reshape", "study", *map(str, arguments)]
    environment = {k: v for k, v in os.environ.items() if k != "RESHAPE_TRACES"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def test_results_are_kept_and_the_number_of_workers_does_not_show(folder: Path) -> None:
    one = reshape(folder, "squares.yaml", "--seeds", 2, "-j", 1, "--out", "one", "--json")
    two = reshape(folder, "squares.yaml", "--seeds", 2, "-j", 2, "--out", "two", "--json")
    assert one.stdout == two.stdout
    assert json.loads(one.stdout) == {"squares": [2, 3, 5, 6, 10, 11]}
    names = ["a.txt", "report.json", "report.txt", "runs.jsonl"]
    assert sorted(file.name for file in (folder / "one").iterdir()) == names
    for name in names:
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()


def test_a_failed_run_is_named_and_loses_no_other(folder: Path) -> None:
    failed = reshape(folder, "squares.yaml", "--set", "bad=2", "--out", "out", "-j", 2, code=1)
    assert "1 of 3 runs failed; the others are kept" in failed.stderr
    assert "bad=2, x=2: RuntimeError: this one is odd" in failed.stderr
    assert len((folder / "out" / "runs.jsonl").read_text().splitlines()) == 2
    assert not (folder / "out" / "report.json").exists()
