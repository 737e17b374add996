"""The output of ranks: lines that several print at the same time, and what a crash prints."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from application_scripts import script
from driver import run

LINES = 2000


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_lines_of_ranks_are_whole(tmp_path: Path, unbuffered: str) -> None:
    body = f"""
        rank = app.comm.rank
        app.comm.Barrier()
        for line in range({LINES}):
            print(rank, line, end=" ")
            print("x" * 90, rank)
            print(rank, line, "error", file=sys.stderr)
    """
    done = run(2, script(tmp_path, body), PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 0, done.stderr
    ranks = [(rank, line) for rank in range(2) for line in range(LINES)]
    assert Counter(done.stdout.splitlines()) == {f"{r} {n} {'x' * 90} {r}": 1 for r, n in ranks}
    assert Counter(done.stderr.splitlines()) == {f"{r} {n} error": 1 for r, n in ranks}


def test_a_crash_prints_where_the_program_was(tmp_path: Path) -> None:
    program = script(tmp_path, "import ctypes\nctypes.string_at(8)")
    done = run(1, program)
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert f'File "{program}", line ' in done.stderr
