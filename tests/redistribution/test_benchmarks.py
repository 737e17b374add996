"""The benchmarks run and print their tables and JSON rows."""

import json
import subprocess
import sys

from paths import BENCHMARKS


def run(*arguments):
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_moves_of_one_small_world():
    options = ("--ranks", 2, "--n", 70, "--blocks", 8, "--repeats", 1, "--json")
    rows = json.loads(run(BENCHMARKS / "redistribution" / "move.py", *options))
    assert {row["case"] for row in rows} == {"70 b8 1x2->2x1", "70 b8 2x1->1x2"}
    methods = {row["method"] for row in rows}
    assert {"messages", "prepared", "shared memory"} <= methods
    for row in rows:
        assert row["ranks"] == 2
        assert row["ms"] > 0
        assert row["fraction_of_memcpy"] > 0
        # Without ScaLAPACK there is no ratio to pdgemr2d.
        assert (row["ratio_to_pdgemr2d"] is not None) == ("pdgemr2d" in methods)
        assert row["method"] != "pdgemr2d" or row["ratio_to_pdgemr2d"] == 1


def test_moves_of_all_kinds_of_layouts():
    options = ("--ranks", 2, "--n", 30, "--kinds", "--repeats", 1, "--json")
    rows = json.loads(run(BENCHMARKS / "redistribution" / "move.py", *options))
    kinds = {row["case"].split()[1] for row in rows}
    assert kinds == {"b64", "blocks", "components", "staggered", "copies", "dealt"}
    assert {row["method"] for row in rows} >= {"messages", "prepared", "shared memory"}


def test_planning():
    lines = run(BENCHMARKS / "redistribution" / "planning.py", "--repeats", 1).splitlines()
    saved = [line.split()[-2] for line in lines[-5:]]
    assert saved == ["0", "12", "28", "43", "68"]
