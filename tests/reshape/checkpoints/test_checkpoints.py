"""Checkpoints of real MPI programs: written, restarted on other sizes, damaged, on a full disk."""

from __future__ import annotations

import os
import re
import shutil
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from application_scripts import check_wrong_use
from driver import Driver, processes, run
from paths import SUPPORT

import reshape
from reshape.app import Application
from reshape.errors import ReshapeError

PROGRAM = SUPPORT / "resizable.py"
RESTART = "RESHAPE_RESTART_FROM"


def start(
    size: int, folder: Path, iterations: int = 12, **environment: str
) -> CompletedProcess[str]:
    """Run the program that registers every kind of data, with a checkpoint each third iteration."""
    own = {"CHECKPOINT": f"3:{folder}"} | environment
    return run(size, str(PROGRAM), str(iterations), "0", **own)


def interrupted(size: int, folder: Path, **environment: str) -> Path:
    """Checkpoints of a run that was killed in iteration 8; the last one is of iteration 6."""
    done = start(size, folder, DIE_AT=f"{size - 1}:8", **environment)
    assert done.returncode == signal.SIGKILL
    assert names(folder) == ["iteration-3", "iteration-6"]
    return folder


def names(folder: Path) -> list[str]:
    return sorted(each.parent.name for each in folder.glob("iteration-*/manifest.json"))


def program(folder: Path, body: str) -> str:
    path = folder / "program.py"
    head = "import numpy as np\nimport reshape\nwith reshape.application() as app:\n"
    path.write_text(head + textwrap.indent(textwrap.dedent(body), "    "))
    return str(path)


@pytest.fixture(scope="module")
def interrupted_on_2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of a killed run on 2 ranks, which tests copy."""
    return interrupted(2, tmp_path_factory.mktemp("interrupted") / "run")


@pytest.fixture
def folder(interrupted_on_2: Path, tmp_path: Path) -> Path:
    return shutil.copytree(interrupted_on_2, tmp_path / "run")


def test_a_killed_run_restarts_on_the_same_size(folder: Path) -> None:
    done = start(2, folder, **{RESTART: str(folder)})
    assert done.stdout == "sizes 2 right\n", done.stderr
    assert names(folder) == ["iteration-12", "iteration-9"]


@pytest.mark.parametrize(
    ("before", "after", "data"),
    [
        (3, 5, {"SPARSE": "1"}),
        pytest.param(3, 1, {}, marks=pytest.mark.long),
        pytest.param(1, 3, {"SPARSE": "1"}, marks=pytest.mark.long),
    ],
)
def test_a_killed_run_restarts_on_any_size(
    tmp_path: Path, before: int, after: int, data: dict[str, str]
) -> None:
    folder = interrupted(before, tmp_path / "run", **data)
    done = start(after, folder, **{RESTART: str(folder)}, **data)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"sizes {before} {after} right\n"
    assert names(folder) == ["iteration-12", "iteration-9"]


def test_a_run_continues_with_more_iterations_and_keeps_its_source(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert start(2, first).stdout == "sizes 2 right\n"
    done = start(3, second, 18, **{RESTART: str(first / "iteration-9")})
    assert done.stdout == "sizes 2 3 right\n"
    assert names(first) == ["iteration-12", "iteration-9"]
    assert names(second) == ["iteration-15", "iteration-18"]


def test_another_run_does_not_use_the_directory(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert start(1, folder).returncode == 0
    done = start(2, folder)
    assert done.returncode == 1
    assert done.stderr.count(f"error: {folder} has the checkpoints of another run, process") == 1
    assert names(folder) == ["iteration-12", "iteration-9"]


@pytest.mark.parametrize("failing", [False, True])
def test_a_run_that_ends_without_a_checkpoint_leaves_no_directory(
    tmp_path: Path, failing: bool
) -> None:
    body = f"""
    app.checkpoint(every="1h", dir={str(tmp_path / "run")!r})
    for step in app.iterations(3):
        1 / (app.comm.rank + {int(not failing)})
    """
    done = run(2, program(tmp_path, body))
    assert (done.returncode != 0) == failing, done.stderr
    assert ("ZeroDivisionError" in done.stderr) == failing
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda c: flip(c / "rank-1.data", 77), "damaged: the checksum of bytes 0 to"),
        pytest.param(
            *(lambda c: os.truncate(c / "rank-0.data", 100), "has 100 bytes, expected"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *(lambda c: (c / "rank-1.data").unlink(), "is missing"), marks=pytest.mark.long
        ),
        (lambda c: flip(c / "manifest.json", 200), "cannot be read"),
    ],
    ids=["flipped", "truncated", "missing", "manifest"],
)
def test_a_restart_falls_back_to_the_earlier_checkpoint(folder: Path, damage, why: str) -> None:  # type: ignore[no-untyped-def]
    damage(folder / "iteration-6")
    done = start(3, folder, **{RESTART: str(folder)})
    assert done.stdout == "sizes 2 3 right\n", done.stderr
    assert why in done.stderr
    assert f"restarting from the earlier checkpoint {folder}/iteration-3" in done.stderr


def test_a_restart_without_a_usable_checkpoint_is_one_error(folder: Path, tmp_path: Path) -> None:
    for each in folder.glob("iteration-*"):
        (each / "rank-0.data").unlink()
    done = start(2, folder, **{RESTART: str(folder)})
    assert done.returncode == 1
    assert done.stderr.count("error: cannot restart: ") == 1
    for name in ("iteration-6", "iteration-3"):
        assert f"{folder}/{name}/rank-0.data is missing" in done.stderr
    done = start(2, tmp_path / "other", **{RESTART: str(tmp_path / "nowhere")})
    assert done.stderr.count(f"cannot restart: there is no directory {tmp_path}/nowhere") == 1


def two_iterations(folder: Path, register: Callable[[Application], object]) -> None:
    """Run a program that writes a checkpoint in each of two iterations."""
    with reshape.application() as app:
        app.checkpoint(every=1, dir=folder)
        register(app)
        for _ in app.iterations(2):
            pass


@pytest.mark.mpi(min_size=1)
@pytest.mark.parametrize(
    ("register", "why"),
    [
        (
            lambda app: app.rows("u", (9,)),
            "its array 'u' has shape (8,), the program registers (9,)",
        ),
        (
            lambda app: app.rows("u", (8,), dtype="f4"),
            "its array 'u' has dtype '<f8', the program",
        ),
        (lambda app: app.rows("w", (8,)), "as number 1, it holds u in this order"),
        (
            lambda app: (app.rows("u", (8,)), app.rows("w", (8,))),
            "as number 2, it holds u in this order",
        ),
        (
            lambda app: None,
            "it holds rows 'u' (shape=(8,), axis=(0,), dtype=<f8, order='C'), which the",
        ),
    ],
)
def test_another_program_is_refused_with_the_field(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    register: Callable[[Application], object],
    why: str,
) -> None:
    folder = tmp_path / "run"
    two_iterations(folder, lambda app: app.rows("u", (8,)))
    monkeypatch.setenv(RESTART, str(folder))
    beginning = re.escape(f"cannot restart from {folder}/iteration-2: ")
    with pytest.raises(ReshapeError, match=f"^{beginning}.*{re.escape(why)}"):
        two_iterations(folder, register)


def test_an_error_of_a_restart_is_printed_once(tmp_path: Path) -> None:
    lines = f'app.checkpoint(every=1, dir="{tmp_path}/run")\n{{}}\nfor _ in app.iterations(2): pass'
    assert run(2, program(tmp_path, lines.format('app.rows("u", (8,))'))).returncode == 0
    changed = program(tmp_path, lines.format('app.rows("u", (9,))'))
    done = run(3, changed, **{RESTART: str(tmp_path / "run")})
    assert done.returncode == 1
    assert done.stderr.count(f"error: cannot restart from {tmp_path}/run/iteration-2: ") == 1


def test_a_checkpoint_that_cannot_be_written_leaves_the_earlier_one(tmp_path: Path) -> None:
    """A file may have 100 kB, the second checkpoint has more: the job continues without a third."""
    body = f"""
        import resource, sys
        app.checkpoint(every=2, dir={str(tmp_path / "run")!r})
        small = app.rows("small", (4,))
        texts = app.items("texts", ["x"] * app.comm.size)
        if not app.is_fresh_start:
            print("restarted in", next(iter(app.iterations(8))), len(texts.local[0]))
            raise SystemExit
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        for step in app.iterations(6):
            assert app.comm.size == 2
            small.local[:] = step
            if step == 3 and app.comm.rank == 1:
                texts.local[0] = "x" * 200_000
            if step == 5:
                texts.local[0] = ""
        sys.stdout.write(f"done {{small.local}}\\n")
    """
    path = program(tmp_path, body)
    done = run(2, path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done [5. 5.]") == 2
    warning = (
        f"rank 1 cannot write {tmp_path}/run/iteration-4/rank-1.data: [Errno 27] File too large"
    )
    assert done.stderr.count(warning) == 1
    assert "no checkpoint of iteration 4 was written, the job continues" in done.stderr
    assert names(tmp_path / "run") == ["iteration-2", "iteration-6"]
    assert not (tmp_path / "run" / "iteration-4").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system requires root")
def test_a_full_disk_does_not_end_the_program(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.system(f"mount -t tmpfs -o size=500k,mode=0700 none {disk}") != 0:
        pytest.skip("this container may not mount a file system")
    try:
        folder = disk / "run"
        done = start(2, folder, 6)
        assert done.stdout == "sizes 2 right\n", done.stderr
        assert names(folder) == ["iteration-3", "iteration-6"]
        (disk / "filler").write_bytes(bytes((os.statvfs(disk).f_bavail - 4) * 4096))
        done = start(2, folder, 12, **{RESTART: str(folder)})
        assert done.stdout == "sizes 2 right\n", done.stderr
        assert done.stderr.count("No space left on device; the earlier checkpoints remain") == 2
        assert names(folder) == ["iteration-3", "iteration-6"]
        (disk / "filler").unlink()
        assert start(3, folder, **{RESTART: str(folder)}).stdout == "sizes 2 3 right\n"
    finally:
        os.system(f"umount {disk}")


def test_a_time_between_checkpoints(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    own = {"CHECKPOINT": f"0.15s:{folder}"}
    assert run(2, str(PROGRAM), "12", "0.05", **own).stdout == "sizes 2 right\n"
    last, before = sorted((int(name.split("-")[1]) for name in names(folder)), reverse=True)
    assert 2 <= last - before <= 4


@pytest.mark.mpi(min_size=1)
@pytest.mark.parametrize(
    ("use", "why"),
    [
        (
            lambda app: (app.rows("u", (8,)), app.checkpoint(every=1)),
            "app.checkpoint() is called too late",
        ),
        (
            lambda app: (app.is_fresh_start, app.checkpoint(every=1)),
            "app.checkpoint() is called too late",
        ),
        (
            lambda app: (app.checkpoint(every=1), app.checkpoint(every=1)),
            "app.checkpoint() is called twice",
        ),
        (
            lambda app: app.checkpoint(every="soon"),
            "app.checkpoint(every='soon'): expected a number of iterations >= 1",
        ),
        (
            lambda app: app.checkpoint(every=1, keep=0),
            "app.checkpoint(keep=0): expected at least 1",
        ),
        (
            lambda app: app.checkpoint(every=1, dir="/proc/x"),
            "cannot use /proc/x for checkpoints",
        ),
    ],
    ids=["after an array", "after a question", "twice", "every", "keep", "dir"],
)
def test_wrong_use_is_one_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    use: Callable[[Application], object],
    why: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    check_wrong_use(use, why)


def test_a_program_without_checkpoints_does_not_ignore_a_restart(tmp_path: Path) -> None:
    done = run(1, str(PROGRAM), "3", "0", **{RESTART: str(tmp_path)})
    assert done.returncode == 1
    assert f"restart from {tmp_path}, but does not call app.checkpoint()" in done.stderr


def test_checkpoints_of_a_job_that_resizes(tmp_path: Path) -> None:
    """The job writes at sizes 2, 4 and 2, dies without warning, and restarts by itself on 3."""
    folder = tmp_path / "run"
    with Driver(tmp_path, [str(PROGRAM), "40", "0"]) as driver:
        own = {"CHECKPOINT": f"1:{folder}", "SPARSE": "1"}
        driver.start(2, "first", **own)
        second = driver.ready(2, **own)
        assert driver.join(second).ok
        assert driver.contract(0).ok
        seen = driver.points
        driver.serve(lambda: driver.points > seen + 5)
        os.kill(processes(second)[1], signal.SIGKILL)
        driver.serve(lambda: second.process.poll() is not None, still=True)
        path = driver.facts["checkpoint"]
        last = driver.facts["checkpoint_iteration"]
        assert path == f"{folder}/iteration-{last}"
        driver.start(3, "first", **own)
        driver.serve(lambda: "restarted_from" in driver.facts)
        driver.groups = {3: driver.groups[2]}  # the others have ended
        text = driver.finish()
        assert text.endswith("sizes 2 4 2 3 right\n")
        restarted = str(driver.facts["restarted_from"])
        assert int(restarted.rpartition("-")[2]) >= int(str(last))
