"""The steps from a plain program to a resizable one, and the page that describes them."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from command_line import invoke
from driver import Driver, run
from paths import ROOT, SUPPORT
from waiting import wait_until

from reshape.files.job_folder import RESTART_FILE
from scheduler import Client
from scheduler.client import background
from scheduler.protocol import messages as m

STEPS = sorted((ROOT / "examples" / "step_by_step").glob("*.py"))
PLAIN, APPLICATION, REGISTERED, SAFE, EACH_SIZE = STEPS
PAGE = (ROOT / "docs" / "make-it-resizable.md").read_text()
HEADER = "a rod of 1000 points\n"


def expected(step: Path) -> str:
    return step.with_suffix(".out").read_text()


def test_no_step_changes_the_result() -> None:
    assert {expected(step) for step in STEPS} == {expected(PLAIN)}
    assert expected(PLAIN).startswith(HEADER)


@pytest.mark.parametrize(
    "size", [pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long), 3]
)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.stem)
def test_step_by_itself(step: Path, size: int) -> None:
    count = "import sys; from mpi4py import MPI; sys.stderr.write(f'{MPI.COMM_WORLD.size} ')"
    done = run(size, "-c", f"{count}; import runpy; runpy.run_path({str(step)!r})")
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected(step)
    assert done.stderr.split() == [str(size)] * size


def test_application_without_iterations_is_of_fixed_size(tmp_path: Path) -> None:
    with Driver(tmp_path, [str(APPLICATION)]) as driver:
        driver.start(2, "first")
        assert driver.finish() == expected(APPLICATION)
        assert driver.hellos[0].size == 2
        assert driver.points == 0


def expand_between_50_and_100(driver: Driver, size: int) -> None:
    """Join a group after the second of the recorded steps and before the third."""
    group = driver.ready(size)
    driver.serve(lambda: driver.latest is not None and driver.latest.iteration > 50)
    assert driver.join(group).ok
    assert driver.latest is not None
    assert driver.latest.iteration < 100


def test_what_is_not_registered_is_lost_as_the_page_shows(tmp_path: Path) -> None:
    with Driver(tmp_path, [str(REGISTERED)]) as driver:
        driver.start(1, "first")
        expand_between_50_and_100(driver, 2)
        assert driver.contract(0).ok
        text = driver.finish()
    assert text != expected(REGISTERED)
    assert text.splitlines()[-1] == expected(REGISTERED).splitlines()[-1]  # the rod is right
    assert blocks("text")[0] == text


@pytest.mark.parametrize("step", [SAFE, EACH_SIZE], ids=lambda step: step.stem)
def test_the_last_steps_are_right_through_resizes(tmp_path: Path, step: Path) -> None:
    with Driver(tmp_path, [str(step)]) as driver:
        driver.start(1, "first")
        expand_between_50_and_100(driver, 2)
        assert driver.contract(0).ok
        assert driver.expand(1).ok
        assert driver.contract(1).ok
        assert driver.finish() == expected(step)
    heat = float(re.findall(r"heat (\S+)", expected(SAFE))[0])
    assert driver.facts == {"heat": pytest.approx(heat, abs=1e-6)}


@pytest.mark.parametrize(
    "step", [pytest.param(SAFE, marks=pytest.mark.long), EACH_SIZE], ids=lambda step: step.stem
)
def test_the_last_steps_are_right_after_a_restart(tmp_path: Path, step: Path) -> None:
    """A process dies in a move; the others are killed and the job is restarted, as by an agent."""
    program = (
        f"import os, sys; sys.path.insert(0, {str(SUPPORT)!r});"
        "import resizable, runpy; resizable.inject_faults({}, int(os.environ['PMI_RANK']));"
        f"runpy.run_path({str(step)!r})"
    )
    with Driver(tmp_path, ["-c", program]) as driver:
        driver.start(2, "first")
        group = driver.ready(1, KILL="1:0:before:run")
        driver.serve(lambda: driver.latest is not None and driver.latest.iteration > 50)
        serial = driver.order_join(group)
        driver.send_to(group, m.Connect(port=driver.ports[-1].port))
        driver.serve(lambda: group.process.poll() is not None, still=True)
        assert serial not in [report.serial for report in driver.reports]
        assert RESTART_FILE in driver.segments
        for each in driver.groups.values():
            driver.kill(each)
        again = driver.start(2, "restart")
        driver.serve(lambda: again.process.poll() is not None)
        assert again.process.returncode == 0, again.text
        assert driver.groups[0].text.startswith(HEADER)  # the rest is mpiexec's, on being killed
        assert HEADER + again.text == expected(SAFE)


def test_the_command_of_the_page_runs_a_job_that_grows(tmp_path: Path) -> None:
    """On a service with the options of the page; the job is cancelled when it has grown."""
    serve, submit = (
        shlex.split(re.findall(pattern, PAGE)[0])
        for pattern in (r"`reshape (serve .*?)`", r"    reshape (submit .*)\n")
    )
    assert (serve[0], serve[-1], submit[-3]) == ("serve", "--background", "python")
    directory, program = tmp_path / "service", EACH_SIZE.parent / submit[-2]
    assert program == EACH_SIZE
    process = background.start(directory, serve[1:-1])
    try:
        command = [submit[0], "--dir", directory, *submit[1:-2], program, submit[-1]]
        invoke(*command, cwd=tmp_path)
        with Client(directory) as client:
            handle = client.job(1)
            wait_until(lambda: any(r.outcome == "done" for r in handle.info().resizes))
            job = handle.info()
        invoke("cancel", "--dir", directory, "1", cwd=tmp_path)
    finally:
        background.stop(directory, kill=True)
        process.wait()
    assert (job.resizes[0].old, job.resizes[0].outcome) == (2, "done")
    assert job.resizes[0].new in (3, 4)


# ---------------------------------------------------------------- the page


def blocks(language: str) -> list[str]:
    """Code blocks of the page in this language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def stripped(lines: list[str]) -> Counter[str]:
    return Counter(line.strip() for line in lines if line.strip())


def test_page_shows_every_change_from_step_to_step() -> None:
    """Indentation and places do not count: a line that moves is as good as no change."""
    steps = [stripped(step.read_text().splitlines()[1:]) for step in STEPS]
    assert len(blocks("diff")) == len(STEPS) - 1
    for block, (old, new) in zip(blocks("diff"), pairwise(steps), strict=True):
        lines = block.splitlines()
        gone, come, both = (
            stripped([line[1:] for line in lines if line[0] == mark]) for mark in "-+ "
        )
        assert gone - come == old - new
        assert come - gone == new - old
        assert both.keys() - {"..."} <= old.keys() & new.keys()


def test_page_names_what_exists() -> None:
    paths = re.findall(r"`((?:apps|examples|docs)/[\w./]+)`", PAGE)
    assert paths
    for path in paths:
        assert (ROOT / path).exists(), path
    for step in STEPS:
        assert f"`{step.name}`" in PAGE
    for code in blocks("python"):
        compile(code, "docs/make-it-resizable.md", "exec")
