"""Commands on several live services: quotes, the choice, and acceptance by exactly one site."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from waiting import LIMIT_S

from reshape.errors import ServiceUnavailable
from scheduler import Client

pytestmark = pytest.mark.usefixtures("records_folder")

#: The client dies when it calls this function for the nth time.
DIES = """
import os, signal, sys
from scheduler.client.sites import submitting
name, count = {name!r}, [0]
original = getattr(submitting, name)
def dying(*arguments, **options):
    count[0] += 1
    if count[0] == {nth}:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments, **options)
setattr(submitting, name, dying)
from reshape.__main__ import main
main(sys.argv[1:])
"""


#: Seconds within which a site answers; a test waits for as long where one stands still.
DEADLINE_S = 12


class Sites:
    """Two services and the sites file that names them."""

    def __init__(self, folder: Path, left: Any, right: Any) -> None:
        self.left, self.right = left, right
        self.file = folder / "sites.yaml"
        self.file.write_text(
            f"deadline_s: {DEADLINE_S}\nsites:\n"
            f"  - {{name: left, directory: {left.directory}, cost_per_unit: 5}}\n"
            f"  - {{name: right, directory: {right.directory}, cost_per_unit: 1}}\n"
        )

    def reshape(self, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        return invoke(*words, code=code)

    def submit(self, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        program = ("--", "sleep", "600")
        options = ("--sites", self.file, "--output", "/dev/null", *words)
        return self.reshape("submit", *options, *program, code=code)

    def jobs(self) -> dict[str, int]:
        """Number of jobs that each site has ever had."""
        found = {}
        for name, served in (("left", self.left), ("right", self.right)):
            with Client(served.directory) as client:
                info = client.info()
            found[name] = info.queued + info.running + info.ended
        return found


@pytest.fixture
def records_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESHAPE_SUBMISSIONS", str(tmp_path / "records"))


@pytest.fixture
def sites(tmp_path: Path, new_served: Callable[[Path], Any]) -> Sites:
    left, right = new_served(tmp_path / "left"), new_served(tmp_path / "right")
    left.start("--processors", "2", "--scenario", "easy")
    right.start("--processors", "4", "--scenario", "easy")
    return Sites(tmp_path, left, right)


def test_the_best_site_by_each_metric_gets_the_job(sites: Sites) -> None:
    assert "submitted job left:1" in sites.submit("-n", 2).stdout  # ties go to the first site
    assert "submitted job right:1" in sites.submit("-n", 2).stdout  # left is full
    table = sites.submit("-n", 1, "--metric", "cost", "--test-only", "--json").stdout
    found = json.loads(table)
    assert found["chosen"] == "right"
    assert [each["cost"] for each in found["sites"]] == [1.0, 5.0]
    refused = sites.submit("-n", 4, "--max-cost", 1, code=3)
    assert "no site takes the job" in refused.stderr
    assert "site left is passed over: the job asks for 4 processors" in refused.stderr
    assert "site right is passed over: the job would cost 4, above 1" in refused.stderr
    assert sites.jobs() == {"left": 1, "right": 1}
    listing = sites.reshape("queue", "--sites", sites.file).stdout.splitlines()
    assert [line.split()[:2] for line in listing[1:]] == [["left", "1"], ["right", "1"]]
    explained = sites.reshape("explain", "--sites", sites.file, "right:1").stdout
    assert "job 1" in explained
    cancelled = sites.reshape("cancel", "--sites", sites.file, "left:1", "right:last").stdout
    assert cancelled == "cancelled job left:1\ncancelled job right:1\n"
    ended = sites.reshape("wait", "--sites", sites.file, "left:1", "right:1", code=128 + 15)
    assert [line.split()[:3] for line in ended.stdout.splitlines()] == [
        ["job", "left:1:", "CANCELLED"],
        ["job", "right:1:", "CANCELLED"],
    ]
    unknown = sites.reshape("cancel", "--sites", sites.file, "elsewhere:1", code=1)
    assert "has no site 'elsewhere'" in unknown.stderr


def test_a_site_that_is_away_is_passed_over_with_a_note(sites: Sites) -> None:
    sites.left.kill()
    done = sites.submit("-n", 1)
    assert "submitted job right:1" in done.stdout
    assert "site left is passed over" in done.stderr
    sites.right.kill()
    assert "no site takes the job" in sites.submit("-n", 1, code=3).stderr
    for served in (sites.left, sites.right):
        served.start()
    assert sites.jobs() == {"left": 0, "right": 1}


@pytest.mark.parametrize(
    ("name", "nth", "sent"),
    [
        # Before anything is noted.
        pytest.param("write_record", 1, False, marks=pytest.mark.long),
        ("connect", 1, True),  # the record is on disk, nothing is sent
        # Accepted, and the acceptance is not noted.
        pytest.param("write_record", 2, True, marks=pytest.mark.long),
    ],
)
def test_a_client_that_dies_leaves_one_job_at_most_and_retry_finds_it(
    sites: Sites, name: str, nth: int, sent: bool
) -> None:
    script = DIES.format(name=name, nth=nth)
    words = ["submit", "--sites", str(sites.file), "--key", "k", "-n", "1"]
    words += ["--output", "/dev/null", "--", "sleep", "600"]
    done = subprocess.run([sys.executable, "-c", script, *words], timeout=LIMIT_S, check=False)
    assert done.returncode == -signal.SIGKILL
    assert sum(sites.jobs().values()) == (1 if nth == 2 else 0)
    again = sites.reshape("submit", "--sites", sites.file, "--retry", "k", code=0 if sent else 1)
    if sent:
        assert again.stdout == "submitted job left:1, key k\n"
        more = sites.reshape("submit", "--sites", sites.file, "--retry", "k")
        assert more.stdout == again.stdout
    else:
        assert "no submission with the key k was sent from here" in again.stderr
    assert sum(sites.jobs().values()) == (1 if sent else 0)


def test_a_job_whose_acceptance_cannot_be_noted_is_sent_to_no_other_site(sites: Sites) -> None:
    script = """
import sys
from reshape.errors import ReshapeError
from scheduler.client.sites import submitting
original, count = submitting.write_record, [0]
def failing(record):
    count[0] += 1
    if count[0] == 2:
        raise ReshapeError("the disk is full")
    original(record)
submitting.write_record = failing
from reshape.__main__ import main
main(sys.argv[1:])
"""
    words = ["submit", "--sites", str(sites.file), "--key", "k", "-n", "1"]
    words += ["--output", "/dev/null", "--", "sleep", "600"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "submitted job left:1, key k\n")
    again = sites.reshape("submit", "--sites", sites.file, "--retry", "k")
    assert again.stdout == done.stdout
    assert sites.jobs() == {"left": 1, "right": 0}


def test_a_site_that_dies_before_its_answer_gets_the_job_once(sites: Sites) -> None:
    process = sites.left.process
    script = """
import os, signal, sys
from scheduler.client.sites import submitting
original = submitting.write_record
def stopping(record):
    original(record)
    os.kill(int(sys.argv[1]), signal.SIGSTOP)  # the site stands still while it is sent the job
submitting.write_record = stopping
from reshape.__main__ import main
main(sys.argv[2:])
"""
    words = ["submit", "--sites", str(sites.file), "--key", "k", "-n", "1"]
    words += ["--output", "/dev/null", "--", "sleep", "600"]
    done = subprocess.run(
        [sys.executable, "-c", script, str(process.pid), *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "--retry k' finds out" in done.stderr
    sites.left.kill()
    away = sites.reshape("submit", "--sites", sites.file, "--retry", "k", code=4)
    assert "no other site has the job" in away.stderr
    with pytest.raises(ServiceUnavailable):
        Client(sites.left.directory).info()
    sites.left.start()
    again = sites.reshape("submit", "--sites", sites.file, "--retry", "k")
    assert again.stdout == "submitted job left:1, key k\n"
    assert sites.jobs() == {"left": 1, "right": 0}
