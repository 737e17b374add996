"""`reshape study` as a user meets it: what is run, what is kept, what is said."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from paths import EXAMPLES

from reshape.__main__ import main
from reshape.errors import ReshapeError
from reshape.mpi import clean_environment, mpiexec_path
from simulator.study.study import read_study

SQUARES = """
import os, time
from pathlib import Path
from simulator.study.study import Report

def run(parameters):
    x = parameters["x"]
    with open("calls", "a") as file:
        print(x, file=file, flush=True)
    if x == parameters.get("bad"):
        raise RuntimeError("this one is odd")
    if x == parameters.get("dies"):
        os._exit(3)
    while x == parameters.get("waits") and not Path("go").exists():
        time.sleep(0.01)
    return {"square": x**2 + parameters.get("seed", 0), "text": "x" * parameters["long"]}

def report(rows, out):
    numbers = [row.result["square"] for row in rows]
    return Report(f"sum {sum(numbers)}", {"squares": numbers}, {"a.txt": b"a"})

def broken(rows, out):
    raise KeyError("rows")
"""
STUDY = """study: Squares
run: squares:run
report: squares:report
fixed: {bad: null, dies: null, waits: null, long: 0}
grid:
  x: [1, 2, 3]
"""
FILES = ["a.txt", "report.json", "report.txt", "runs.jsonl"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "squares.py").write_text(SQUARES)
    (tmp_path / "squares.yaml").write_text(STUDY)
    return tmp_path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "reshape", "study", *map(str, arguments)]


def reshape(
    folder: Path, *arguments: object, code: int = 0, **options: object
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "RESHAPE_TRACES"}
    done: subprocess.CompletedProcess[str] = subprocess.run(  # type: ignore[call-overload]
        command(*arguments),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder as the current directory of this process, for commands that `told` runs."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "squares", raising=False)
    monkeypatch.delenv("RESHAPE_TRACES", raising=False)
    return folder


def told(*arguments: str, code: int) -> str:
    """What the command says about an error, run in this process."""
    done = CliRunner().invoke(main, ["study", *arguments])
    assert done.exit_code == code, done.output
    return done.stderr


def calls(folder: Path) -> list[int]:
    """Runs that were begun, sorted."""
    return sorted(map(int, (folder / "calls").read_text().split()))


def test_the_number_of_workers_does_not_show(folder: Path) -> None:
    one = reshape(folder, "squares.yaml", "--seeds", 2, "-j", 1, "--out", "one", "--json")
    two = reshape(folder, "squares.yaml", "--seeds", 2, "-j", 2, "--out", "two", "--json")
    environment = clean_environment(os.environ)
    on_ranks = command("squares.yaml", "--seeds", 2, "--mpi", "--out", "mpi")
    ranks = subprocess.run(
        [mpiexec_path(), "-n", "3", *on_ranks],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert one.stdout == two.stdout
    assert json.loads(one.stdout) == {"squares": [2, 3, 5, 6, 10, 11]}
    assert ranks.stdout == "sum 37\n"
    for other in ("two", "mpi"):
        assert sorted(file.name for file in (folder / other).iterdir()) == FILES
        for name in FILES:
            assert (folder / "one" / name).read_bytes() == (folder / other / name).read_bytes()


def test_after_a_kill_only_what_is_missing_is_run(folder: Path) -> None:
    arguments = "squares.yaml", "--set", "x=[1, 2, 3, 4, 5]", "--out", "out", "-j", 2
    with subprocess.Popen(command(*arguments, "--set", "waits=3"), cwd=folder) as process:
        runs = folder / "out" / "runs.jsonl"
        while not runs.exists() or runs.read_bytes().count(b"\n") < 4:
            assert process.poll() is None
            time.sleep(0.02)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2
        process.kill()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
    assert calls(folder) == [1, 2, 3, 4, 5]
    whole = runs.read_bytes()
    runs.write_bytes(whole + whole[:50])  # a line that was cut off
    (folder / "go").touch()
    done = reshape(folder, *arguments, "--set", "waits=3")
    assert done.stdout == "sum 55\n"
    assert "5 runs, 4 of them done before" in done.stderr
    assert calls(folder) == [1, 2, 3, 3, 4, 5]
    # Another parameter makes other runs; the old ones stay for later.
    assert "5 runs\n" in reshape(folder, *arguments).stderr
    assert "5 runs, 5 of them done before" in reshape(folder, *arguments, "--set", "waits=3").stderr
    lines = [json.loads(line) for line in runs.read_text().splitlines()]
    assert [line["parameters"]["x"] for line in lines] == [1, 2, 3, 4, 5] * 2
    assert lines[0]["parameters"] == {"bad": None, "dies": None, "waits": 3, "long": 0, "x": 1}


def test_interrupted_from_the_keyboard(folder: Path) -> None:
    arguments = command("squares.yaml", "--set", "waits=2", "--out", "out", "-j", 2)
    with subprocess.Popen(arguments, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        while not (folder / "calls").exists() or 2 not in calls(folder):
            assert process.poll() is None
            time.sleep(0.02)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert psutil.wait_procs(children, timeout=30)[1] == []


def test_a_failed_run_is_named_and_loses_no_other(folder: Path) -> None:
    failed = reshape(folder, "squares.yaml", "--set", "bad=2", "--out", "out", "-j", 2, code=1)
    assert "1 of 3 runs failed; the others are kept" in failed.stderr
    assert "bad=2, dies=None, waits=None, long=0, x=2: RuntimeError: this one is odd" in (
        failed.stderr
    )
    assert "line 11, in run" in failed.stderr  # of squares.py
    assert len((folder / "out" / "runs.jsonl").read_text().splitlines()) == 2
    assert not (folder / "out" / "report.json").exists()


def test_a_worker_that_dies_is_found_out(folder: Path) -> None:
    changes = "--set", "dies=2", "--set", "x=[1, 2, 3, 4]"
    failed = reshape(folder, "squares.yaml", *changes, "--out", "out", "-j", 2, code=1)
    assert "1 of 4 runs failed; the others are kept" in failed.stderr
    assert "x=2: its process was killed, or ended itself" in failed.stderr
    assert len((folder / "out" / "runs.jsonl").read_text().splitlines()) == 3


def test_a_full_disk_leaves_what_was_there(folder: Path) -> None:
    def little() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))

    arguments = "squares.yaml", "--out", "out", "-j", 1, "--set", "long=1500"
    full = reshape(folder, *arguments, code=1, preexec_fn=little)
    assert "runs.jsonl cannot be written: File too large; the finished runs are kept" in full.stderr
    assert "Traceback" not in full.stderr
    assert "3 runs, 2 of them done before" in reshape(folder, *arguments).stderr
    before = {file.name: file.read_bytes() for file in (folder / "out").iterdir()}
    full = reshape(folder, *arguments, "--seeds", 1, "--fresh", code=1, preexec_fn=little)
    assert "File too large" in full.stderr
    del before["runs.jsonl"]  # made again, as was asked for
    for name, data in before.items():
        assert (folder / "out" / name).read_bytes() == data
    assert len(list((folder / "out").iterdir())) == len(FILES)


def test_full_replaces_fields_of_the_study(here: Path) -> None:
    (here / "full.yaml").write_text(
        "study: s\nrun: squares:run\nfixed: {a: 1, b: 2}\ngrid: {c: [3]}\nseeds: 2\n"
        "full: {fixed: {a: 7}, grid: {b: [5, 6]}, seeds: [4]}\n"
    )
    small, full = (read_study(here / "full.yaml", full=full).runs for full in (False, True))
    assert small == [{"a": 1, "b": 2, "c": 3, "seed": seed} for seed in (1, 2)]
    assert full == [{"a": 7, "b": b, "c": 3, "seed": 4} for b in (5, 6)]
    with pytest.raises(ReshapeError, match="has no field full"):
        read_study(here / "squares.yaml", full=True)


@pytest.mark.parametrize(
    ("cases", "full"), [("", [5]), ("cases: [], ", [6]), ("cases: [{a: 7}], ", [7])]
)
def test_full_replaces_all_cases(here: Path, cases: str, full: list[int]) -> None:
    (here / "full.yaml").write_text(
        "study: s\nrun: squares:run\ncases: [{a: 5}]\ngrid: {c: [3]}\n"
        f"full: {{{cases}seeds: 1}}\n"
    )
    runs = read_study(here / "full.yaml", full=True).runs
    assert [run.get("a", 6) for run in runs] == full


def test_runs_are_cases_times_grid_times_seeds(here: Path) -> None:
    cases = "cases: [{a: 1, grid: {b: [1, 2], c: [5, 6]}}, {a: 2, b: 3}]\nseeds: 2\ngrid:"
    file = here / "squares.yaml"
    file.write_text(STUDY.replace("grid:", cases).replace("[1, 2, 3]", "[7, 8]"))

    def values(*changes: str, seeds: str | None = None) -> list[str]:
        names = "a", "b", "c", "x", "seed"
        runs = read_study(file, changes, seeds).runs
        return ["".join(str(run[name]) for name in names if name in run) for run in runs]

    per_case = ["115", "116", "125", "126", "23"]
    assert values() == [case + x + seed for case in per_case for x in "78" for seed in "12"]
    assert values("x=9", "c=5", seeds="[4]") == ["11594", "12594"]
    assert values("b=[2, 3]", "long=[0]", "x=9", seeds="1") == ["12591", "12691", "2391"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("grid:", "grdi:", "squares.yaml:5: grdi: unknown field; did you mean grid?"),
        ("study: Squares\n", "", "study: is missing"),
        ("x: [1, 2, 3]", "x: 3", "squares.yaml:6: grid.x: must be a list, got 3"),
        ("x: [1, 2, 3]", "x: []", "squares.yaml:6: grid.x: has no values; give at least one"),
        ("x: [1, 2, 3]", "x: [1, 1]", "two runs have the same parameters"),
        ("x: [1, 2, 3]", "bad: [1]", "squares.yaml:6: grid.bad: is given under fixed too"),
        ("x: [1, 2, 3]", "seed: [1]", "grid.seed: is set by the runner; give `seeds` instead"),
        ("grid:", "cases: [{y: 1, grid: {z: 2}}]\ngrid:", "cases[0].grid.z: must be a list, got 2"),
        ("grid:", "cases: [{y: 1, grid: {y: [2]}}]\ngrid:", "y: is given in the case itself too"),
        ("grid:", "cases: [{y: 1, grid: [2]}]\ngrid:", "yaml:5: cases[0].grid: must be a mapping"),
        ("grid:", "cases: [{grid: {x: [1]}}]\ngrid:", "grid.x: is given under cases too; keep one"),
        ("grid:", "seeds: 0\ngrid:", "squares.yaml:5: seeds: must be a number >= 1 or a list"),
        ("squares:run", "sqares:run", "squares.yaml:2: run: 'sqares:run' cannot be imported"),
        ("squares:run", "squares:rum", "run: module 'squares' has no function 'rum'; did you mean"),
        ("squares:run", "squares", "run: 'squares' is not a function; write module:"),
        ("squares:report", "squares:r", "squares.yaml:3: report: module 'squares' has no function"),
        ("squares:report", "squares:broken", "squares:broken failed; no report was written:"),
    ],
)
def test_wrong_files(here: Path, old: str, new: str, says: str) -> None:
    (here / "squares.yaml").write_text(STUDY.replace(old, new))
    errors = told("squares.yaml", "-j", "1", code=1)
    assert says in errors
    assert ("Traceback" in errors) == ("broken" in new)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["backfiling"], 2, "there is no study 'backfiling'; did you mean backfilling?"),
        (["no.yaml"], 1, "no.yaml: cannot be read: No such file or directory"),
        (["squares.yaml", "--set", "y=1"], 1, "option --set y=1: unknown parameter 'y'"),
        (["squares.yaml", "--set", "x"], 1, "option --set x: 'x' has no value; write x=VALUE"),
        (["squares.yaml", "--set", "x=[1"], 1, "option --set x=[1: '[1' is not a YAML value"),
        (["squares.yaml", "--set", "seed=1"], 1, "give --seeds N"),
        (["squares.yaml", "--seeds", "many"], 1, "option --seeds many: seeds: expected int"),
        (["squares.yaml", "--mpi"], 2, "--mpi needs mpiexec and at least 2 processes"),
        (["squares.yaml", "--mpi", "-j", "2"], 2, "--workers with --mpi"),
        (["squares.yaml", "--out", "squares.py"], 1, "squares.py cannot be made: File exists"),
        (["squares.yaml", "--set", "bad=[a.swf, b.swf.gz]"], 1, "a.swf, b.swf.gz; put them there"),
        (["backfilling", "--set", "policy=esy"], 1, "no case has this value; there are fcfs, easy"),
        (["backfilling", "--set", "load=0"], 1, "load: must be a number above 0, got 0"),
        (["backfilling", "--set", "trace=no.swf"], 1, "name their directory by --traces DIR or"),
    ],
)
def test_wrong_options(here: Path, options: list[str], code: int, says: str) -> None:
    errors = told(*options, code=code)
    assert says in errors
    assert "Traceback" not in errors


def test_a_damaged_record_is_told(here: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / "runs.jsonl").write_text('{"run": 1}\n{}\n')
    errors = told("squares.yaml", "--out", "out", code=1)
    assert "out/runs.jsonl:1: is not a finished run" in errors
    assert "delete the line, and it is run again" in errors
    (here / "out" / "runs.jsonl").write_text('{"run":"squares:run","parameters":{},"result":[1]}\n')
    errors = told("squares.yaml", "--out", "out", code=1)
    assert "runs.jsonl:1: is not a finished run (its result is no mapping)" in errors


def test_the_example_prints_what_stands_beside_it(tmp_path: Path) -> None:
    expected = EXAMPLES / "studies" / "backfilling.out"
    assert reshape(tmp_path, "backfilling").stdout == expected.read_text()


def test_a_part_of_a_shipped_study_anywhere(tmp_path: Path) -> None:
    """Its trace comes along; the means are those of the runs."""
    part = "--set", "policy=easy", "--set", "load=0.8", "--seeds", "[3, 4]"
    done = reshape(tmp_path, "backfilling", *part, "--out", "out", "--json")
    told = json.loads(done.stdout)
    assert told["runs"] == 4
    rows = [json.loads(line) for line in (tmp_path / "out" / "runs.jsonl").read_text().splitlines()]
    for mean, pair in zip(told["means"], (rows[:2], rows[2:]), strict=True):
        assert {row["parameters"]["seed"] for row in pair} == {3, 4}
        assert mean["parameters"] == {"backfill_order": pair[0]["parameters"]["backfill_order"]}
        for name, found in mean["results"].items():
            values = [row["result"][name] for row in pair]
            assert found["mean"] == pytest.approx(sum(values) / 2)
            # Student's t for two values: 12.7 standard errors.
            half = 12.706205 * abs(values[0] - values[1]) / 2
            assert found["high"] - found["mean"] == pytest.approx(half)
    fcfs, sjf = (mean["results"]["mean_bounded_slowdown"]["mean"] for mean in told["means"])
    assert sjf < fcfs
    listing = reshape(tmp_path).stdout
    assert re.search(r"^backfilling +How much does backfilling gain", listing, re.MULTILINE)
