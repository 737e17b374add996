"""The heat equation on a plate gives the same bits at any size, through resizes and deaths."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from driver import Driver, run
from paths import EXAMPLES, SUPPORT

from reshape.files.job_folder import RESTART_FILE
from scheduler.protocol import messages as m

EXAMPLE = EXAMPLES / "heat2d.py"
#: A number: processes that join; a tuple: groups that leave, numbered in the order of joining.
SHORT: list[int | tuple[int, ...]] = [2, 2, (0,), 3, (1, 2)]
TWENTY = [*SHORT, 4, (3,), 1, 1, 1, (4,), 3, (5, 6), 2, 2, (7,), 3, (8, 9), 1, (10,)]


@lru_cache
def serial() -> np.ndarray:
    """The temperatures that a program without MPI computes."""
    rows, columns = np.indices((96, 64))
    w = np.zeros((98, 66))
    own = w[1:-1, 1:-1]
    own[:] = (abs(rows - 40) < 9) & (abs(columns - 20) < 6)
    for _ in range(400):
        around = (w[:-2, 1:-1] + w[2:, 1:-1]) + (w[1:-1, :-2] + w[1:-1, 2:])
        own += 0.2 * (around - 4 * own)
    return own.copy()


def is_right(path: Path) -> bool:
    """Whether a file has exactly these bits."""
    return bool(np.load(path).tobytes() == serial().tobytes())


def test_it_is_short() -> None:
    assert len([line for line in EXAMPLE.read_text().splitlines() if line]) <= 30


@pytest.mark.parametrize("size", [1, 3, pytest.param(6, marks=pytest.mark.long)])
def test_by_itself(tmp_path: Path, size: int) -> None:
    done = run(size, str(EXAMPLE), str(tmp_path / "u.npy"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == EXAMPLE.with_suffix(".out").read_text()
    assert is_right(tmp_path / "u.npy")


@pytest.mark.parametrize("resizes", [SHORT, pytest.param(TWENTY, marks=pytest.mark.long)])
def test_while_it_is_resized(tmp_path: Path, resizes: list[int | tuple[int, ...]]) -> None:
    """The sizes include primes, and every group of processes leaves, the first one as well."""
    with Driver(tmp_path, [str(EXAMPLE), str(tmp_path / "u.npy")]) as driver:
        driver.welcome.verify = True
        driver.start(1, "first")
        for step in resizes:
            report = driver.contract(*step) if isinstance(step, tuple) else driver.expand(step)
            assert report.ok, report.why
            met = driver.points
            driver.serve(lambda met=met: driver.points > met)  # it computes at this size
        assert driver.latest is not None
        assert driver.latest.iteration < 400
        assert driver.finish() == EXAMPLE.with_suffix(".out").read_text()
    assert is_right(tmp_path / "u.npy")


@pytest.mark.long
@pytest.mark.parametrize("victim", ["1:0:after:run", "0:1:before:commit"])
def test_a_death_in_a_resize_changes_no_bit(tmp_path: Path, victim: str) -> None:
    """The job restarts from its restart point, and is resized again."""
    program = tmp_path / "program.py"
    program.write_text(f"""
import runpy, sys
sys.path.append({str(SUPPORT)!r})
from mpi4py import MPI
from resizable import inject_faults
inject_faults({{}}, MPI.COMM_WORLD.rank)
runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
""")
    with Driver(tmp_path, [str(program), str(tmp_path / "u.npy")]) as driver:
        driver.start(3, "first", KILL=victim)
        group = driver.ready(2, KILL=victim)
        driver.order_join(group)
        driver.send_to(group, m.Connect(port=driver.ports[-1].port))
        dead = driver.groups[int(victim[0])]
        driver.serve(lambda: dead.process.poll() is not None, still=True)
        assert RESTART_FILE in driver.segments
        for each in driver.groups.values():
            driver.kill(each)
        again = driver.start(3, "restart")
        driver.serve(lambda: RESTART_FILE not in driver.segments, still=True)
        assert driver.expand(4).ok
        assert driver.contract(again.number).ok
        last = driver.groups[max(driver.groups)]
        driver.serve(lambda: last.process.poll() is not None)
        assert last.text == EXAMPLE.with_suffix(".out").read_text()
    assert is_right(tmp_path / "u.npy")
