"""``reshape rebalance`` on live services: moves, margins, and deaths at each step of a move."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke

from scheduler.client.api.asking import list_jobs
from scheduler.client.sites import records
from scheduler.protocol import messages as m

#: Options with which a job moves as soon as that saves two seconds.
EAGER = ("--gain", "1", "--least", "0:02", "--rest", "0:01")
#: Before the nth call of a function of a module, a command is executed.
HOOK = """
import importlib, os, signal, subprocess, sys
module = importlib.import_module({module!r})
original, count = getattr(module, {name!r}), [0]
def hooked(*arguments, **options):
    count[0] += 1
    if count[0] == {nth}:
        {action}
    return original(*arguments, **options)
setattr(module, {name!r}, hooked)
from reshape.__main__ import main
main(sys.argv[1:])
"""
RECORDS = "scheduler.client.sites.records"
MOVING = "scheduler.client.sites.moving"
SUBMITTING = "scheduler.client.sites.submitting"
#: Steps of a move before which the client dies: module, function, call.
STEPS = {
    "before the record": (RECORDS, "write", 1),
    "before the withdrawal": (MOVING, "ask_site", 2),  # the first one reads the submission
    "after the withdrawal": (RECORDS, "write", 2),
    "before the submission": (SUBMITTING, "ask_site", 3),  # `moving` uses the same function
    "after the acceptance": (RECORDS, "write", 3),
}


class TwoSites:
    """Two services of one processor each, of which the left one is busy."""

    def __init__(self, folder: Path, left: Any, right: Any) -> None:
        self.left, self.right, self.file = left, right, folder / "sites.yaml"
        self.file.write_text(
            "deadline_s: 6\nsites:\n"
            f"  - {{name: left, directory: {left.directory}}}\n"
            f"  - {{name: right, directory: {right.directory}}}\n"
        )
        self.blocker = left.submit(["sleep", "600"], walltime_s=3000.0)
        left.until(self.blocker, "RUNNING")

    def run(self, *words: object, code: int = 0, hook: str = "") -> str:
        """Run a command, with a hook or without; return its output."""
        if not hook:
            return invoke(*words, code=code).stdout
        done = subprocess.run(
            [sys.executable, "-c", hook, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    def submit_to_left(self, key: str) -> None:
        """Submit a job that waits at the left site; it runs for a minute."""
        words = ["submit", "--sites", self.file, "--key", key, "--metric", "left_site:Left"]
        self.run(*words, "-n", 1, "--walltime", "1:00", "--name", key, "--", "sleep", "50")

    def rebalance(self, *options: str, code: int = 0, hook: str = "") -> list[dict[str, Any]]:
        words = ("rebalance", "--sites", self.file, *EAGER, "--json", *options)
        found: list[dict[str, Any]] = json.loads(self.run(*words, code=code, hook=hook))["jobs"]
        return found

    def dying_rebalance(self, hook: str) -> None:
        self.run("rebalance", "--sites", self.file, *EAGER, code=-signal.SIGKILL, hook=hook)

    def copies(self, name: str) -> list[str]:
        """Sites that have a queued or running job of a name."""
        both = (("left", self.left), ("right", self.right))
        return [
            site
            for site, served in both
            for job in list_jobs(served.directory).jobs
            if job.name == name
        ]

    def cancel(self, key: str) -> None:
        record = records.read(key)
        assert record is not None
        served = self.left if record.site == "left" else self.right
        served.ask(m.Cancel(job=record.job))
        served.wait(record.job)


@pytest.fixture
def sites(
    tmp_path: Path, new_served: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> TwoSites:
    monkeypatch.setenv("RESHAPE_SUBMISSIONS", str(tmp_path / "records"))
    (tmp_path / "left_site.py").write_text(
        "import msgspec\n\n\nclass Left(msgspec.Struct, frozen=True):\n"
        "    def assign(self, request, sites):\n        return sites[0]\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(str(tmp_path))
    left, right = new_served(tmp_path / "left"), new_served(tmp_path / "right")
    for served in (left, right):
        served.start("--processors", "1", "--scenario", "easy")
    return TwoSites(tmp_path, left, right)


def test_a_waiting_job_moves_once_and_its_submitter_waits_for_it(sites: TwoSites) -> None:
    words = ["submit", "--sites", sites.file, "--key", "k", "--metric", "left_site:Left", "--wait"]
    words += ["-n", 1, "--walltime", "1:00", "--", "sleep", "3"]
    command = [sys.executable, "-m", "reshape", *map(str, words)]
    submitter = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + 30
    while sites.copies("sleep") != ["left"]:
        assert time.monotonic() < end
        time.sleep(0.1)
    planned = sites.run("rebalance", "--sites", sites.file, "--dry-run")
    assert "would move" in planned
    (moved,) = sites.rebalance()
    assert (moved["outcome"], moved["to"], moved["new_job"]) == ("moved", "right", 1)
    output = submitter.communicate(timeout=60)[0]
    assert "job right:1: COMPLETED 0:0" in output
    reason = sites.left.job(sites.blocker + 1).reason
    assert reason == "withdrawn by its user, to be submitted to right with the key k~1"


def test_margins_rest_and_a_job_that_has_started(sites: TwoSites) -> None:
    sites.submit_to_left("k")
    (stays,) = sites.rebalance("--least", "2:00:00")
    assert (stays["outcome"], stays["to"]) == ("stays", "right")
    cancel = (
        "from scheduler.client.api.asking import ask, list_jobs\n"
        "        from scheduler.protocol import messages as m\n"
        f"        place = {str(sites.left.directory)!r}\n"
        f"        ask(place, m.Cancel(job={sites.blocker}))\n"
        "        while list_jobs(place, job=2).jobs[0].state == 'PENDING': pass"
    )
    hook = HOOK.format(module=MOVING, name="ask_site", nth=2, action=cancel)
    (started,) = sites.rebalance(hook=hook)
    assert started["outcome"] == "has started"
    assert sites.copies("k") == ["left"]
    record = records.read("k")
    assert record is not None
    assert (record.site, record.job, record.submission) == ("left", 2, None)
    sites.submit_to_left("l")
    assert sites.rebalance("--rest", "10:00")[0]["outcome"] == "moved"
    sites.right.submit(["sleep", "600"], walltime_s=3000.0)
    sites.cancel("k")


@pytest.mark.long
def test_a_client_that_dies_at_any_step_leaves_one_copy(sites: TwoSites) -> None:
    for key, (module, name, nth) in zip("abcde", STEPS.values(), strict=True):
        sites.submit_to_left(key)
        kill = "os.kill(os.getpid(), signal.SIGKILL)"
        sites.dying_rebalance(HOOK.format(module=module, name=name, nth=nth, action=kill))
        assert len(sites.copies(key)) <= 1, key
        if key in "bd":  # either command completes the move
            found = sites.run("submit", "--sites", sites.file, "--retry", key)
            assert found.startswith("submitted job right:")
        else:
            assert [job["outcome"] for job in sites.rebalance()] == ["moved"]
        assert sites.copies(key) == ["right"], key
        sites.cancel(key)


@pytest.mark.long
def test_sites_that_die_at_any_step_get_the_job_once(sites: TwoSites) -> None:
    def stopping(served: Any) -> str:
        return f"os.kill({served.process.pid}, signal.SIGSTOP)"

    sites.submit_to_left("a")
    hook = HOOK.format(module=MOVING, name="ask_site", nth=2, action=stopping(sites.left))
    assert sites.rebalance(code=4, hook=hook)[0]["outcome"] == "unknown"
    sites.left.kill()
    assert sites.rebalance(code=4)[0]["outcome"] == "unknown"
    sites.left.start()
    assert sites.rebalance()[0]["outcome"] == "moved"
    assert sites.copies("a") == ["right"]
    sites.cancel("a")

    sites.submit_to_left("b")
    hook = HOOK.format(module=SUBMITTING, name="ask_site", nth=3, action=stopping(sites.right))
    assert sites.rebalance(code=4, hook=hook)[0]["outcome"] == "unknown"
    sites.right.kill()
    assert all(job.name != "b" for job in list_jobs(sites.left.directory).jobs)
    assert sites.rebalance(code=4)[0]["outcome"] == "unknown"
    sites.right.start()
    assert sites.rebalance()[0]["outcome"] == "moved"
    assert sites.copies("b") == ["right"]
    sites.cancel("b")

    sites.submit_to_left("c")
    kill = f"os.kill({sites.right.process.pid}, signal.SIGKILL); import time; time.sleep(1)"
    hook = HOOK.format(module=SUBMITTING, name="ask_site", nth=3, action=kill)
    back = sites.rebalance(hook=hook)[0]
    assert (back["outcome"], back["to"], back["note"]) == ("moved", "left", "right did not take it")
    sites.right.kill()  # the hook has done so already
    sites.right.start()
    assert sites.copies("c") == ["left"]
