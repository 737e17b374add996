"""Examples of what depends on the size: files, windows, requests and pools follow the job."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from driver import Driver, run
from paths import EXAMPLES, SUPPORT

from reshape.files.job_folder import RESTART_FILE
from scheduler.protocol import messages as m

FOLDER = EXAMPLES / "each_size"
MISSING = pytest.mark.skipif(
    find_spec("h5py") is None, reason="h5py is not installed: pip install h5py"
)
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


def examples_but(*long: str) -> pytest.MarkDecorator:
    """Run a test for each example, some of them in long runs of the tests only."""
    marks = {
        name: [MISSING] * (name == "hdf5_by_rank_0") + [pytest.mark.long] * (name in long)
        for name in NAMES
    }
    return pytest.mark.parametrize("name", [pytest.param(n, marks=marks[n]) for n in NAMES])


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.py"


def expected(name: str) -> str:
    return path_of(name).with_suffix(".out").read_text()


def check_file(name: str, path: Path) -> None:
    """Check that the file of an example has all rows, with the bits of a program without MPI."""
    if not path.exists():
        assert name in ("window", "persistent_requests", "pool")
        return
    if name == "mpi_io":
        rows = np.fromfile(path).reshape(40, 60)
    else:
        import h5py

        with h5py.File(path) as file:
            rows = file["u"][:]
    factors = 0.5 ** np.arange(1, 41)
    assert rows.tobytes() == (factors[:, None] * np.sin(np.arange(60))).tobytes()


@examples_but()
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.long), 3])
def test_by_itself(tmp_path: Path, name: str, size: int) -> None:
    done = run(size, str(path_of(name)), str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == (expected(name), "")
    check_file(name, tmp_path / "data")


@examples_but()
def test_while_it_is_resized(tmp_path: Path, name: str) -> None:
    """Each group leaves, the first one as well, and a resize is rolled back."""
    with Driver(tmp_path, [str(path_of(name)), str(tmp_path / "data")]) as driver:
        driver.start(2, "first")
        assert driver.expand(1).ok
        assert driver.contract(0).ok
        assert driver.expand(2).ok
        assert not driver.contract(7).ok
        refused = driver.ready(1)
        refused.size = 2  # as a group that came up with fewer processes than it was started with
        assert "expected group 3 of 2 processes" in driver.join(refused).why
        assert driver.contract(1).ok
        for _ in range(2):
            met = driver.points
            driver.serve(lambda met=met: driver.points > met)
        assert driver.latest is not None
        assert driver.latest.iteration < 40
        driver.finish()
        text = "".join(g.text for g in driver.groups.values() if g is not refused)
    assert text == expected(name)
    check_file(name, tmp_path / "data")


@examples_but("hdf5_by_rank_0", "persistent_requests", "pool", "window")
@pytest.mark.parametrize(
    "victim", [pytest.param("1:0:after:run", marks=pytest.mark.long), "0:1:before:commit"]
)
def test_a_death_between_closing_and_commit(tmp_path: Path, name: str, victim: str) -> None:
    """The job restarts, opens anew, and is resized again."""
    program = tmp_path / "program.py"
    program.write_text(f"""
import os, runpy, sys
sys.path.append({str(SUPPORT)!r})
from resizable import inject_faults
inject_faults({{}}, int(os.environ["PMI_RANK"]))
runpy.run_path({str(path_of(name))!r}, run_name="__main__")
""")
    with Driver(tmp_path, [str(program), str(tmp_path / "data")]) as driver:
        driver.start(2, "first", KILL=victim)
        group = driver.ready(1, KILL=victim)
        driver.order_join(group)
        driver.send_to(group, m.Connect(port=driver.ports[-1].port))
        dead = driver.groups[int(victim[0])]
        driver.serve(lambda: dead.process.poll() is not None, still=True)
        assert RESTART_FILE in driver.segments
        for each in driver.groups.values():
            driver.kill(each)
        again = driver.start(2, "restart")
        driver.serve(lambda: RESTART_FILE not in driver.segments, still=True)
        assert driver.expand(1).ok
        assert driver.contract(again.number).ok
        last = driver.groups[max(driver.groups)]
        driver.serve(lambda: last.process.poll() is not None)
        assert last.text == expected(name)
    check_file(name, tmp_path / "data")
