"""Output files of jobs that exist before the jobs start."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from reshape.checkpoints.directory import RESTART_VARIABLE
from reshape.errors import ReshapeError
from scheduler.client.requests.submission import check_places, prepare
from scheduler.protocol import messages as m


@pytest.mark.parametrize(
    ("options", "expected"),
    [([], "old\nnew\n"), (["--output", "reshape-%j.out"], "new\n")],
    ids=["default", "named"],
)
def test_the_output_of_an_earlier_service_is_appended_to_unless_it_is_named(
    service: Any, options: list[str], expected: str
) -> None:
    """A new service numbers its jobs from 1 and finds the file of an earlier one."""
    (service.work / "reshape-1.out").write_text("old\n")
    command = [sys.executable, "-m", "reshape", "submit", "--dir", str(service.directory)]
    done = subprocess.run(
        [*command, "-n", "1", "--wait", *options, "--", "echo", "new"],
        cwd=service.work,
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert service.output(1) == expected
    told = f"its output is appended to {service.work / 'reshape-1.out'}, which exists"
    assert (told in done.stdout) == (not options)


def test_the_folders_of_the_service_are_closed_to_jobs(service: Any) -> None:
    """A client that names them otherwise gets past the service, not past the agent."""
    journal = service.place.journal
    for name, more in (
        ("output", {"output": str(journal)}),
        ("working directory", {"cwd": str(service.directory / "access"), "output": "/dev/null"}),
        ("directory to restart from", {"environment": {RESTART_VARIABLE: str(journal.parent)}}),
    ):
        submission = m.Submission(["true"], 1, 60.0, **({"cwd": str(service.work)} | more))
        with pytest.raises(ReshapeError, match=f"the {name} .* a folder of the service: choose"):
            service.ask(m.Submit(submission=submission))
    (service.work / "link").symlink_to(service.directory)
    before = service.place.read_secret()
    job = service.wait(service.submit(["echo", "x"], output="link/secret"))
    assert (job.state, job.exit_code) == ("FAILED", 126)
    assert f"it is in {service.directory}, a folder of the service" in job.reason
    assert service.place.read_secret() == before
    there = service.wait(service.submit(["pwd"], output="%x-%N-%j-%A-%a-%t-%u%%.txt", name="a/b"))
    host = socket.gethostname().partition(".")[0]
    expected = f"a_b-{host}-{there.job}-{there.job}-0-0-{service.place.owner}%.txt"
    assert (service.work / expected).read_text() == f"{service.work}\n"


def test_the_standard_error_may_have_a_file_of_its_own(service: Any) -> None:
    """Its last lines are those that explain a failure; the option of the output is for both."""
    words = ["sh", "-c", "echo out; echo wrong $RESHAPE_JOB >&2; exit 3"]
    (service.work / "a-2.err").write_text("old\n")
    job = service.wait(service.submit(words, error="a-%j.err"))
    assert (service.output(job.job), job.error) == ("out\n", str(service.work / "a-1.err"))
    assert job.reason.endswith("exit code 3:0: wrong 1")
    command = [sys.executable, "-m", "reshape", "output", "--dir", str(service.directory)]
    told = subprocess.run([*command, "--error", "1"], capture_output=True, text=True, check=True)
    assert told.stdout == "wrong 1\n"
    service.wait(service.submit(words, error="a-%j.err", script=True, open_mode="append"))
    assert (service.work / "a-2.err").read_text() == "old\nwrong 2\n"
    place = str(service.directory / "x")
    with pytest.raises(ReshapeError, match=r"the error output .* a folder of the service: choose"):
        service.submit(words, error=place)


def test_the_last_line_of_a_killed_program_is_no_reason(service: Any) -> None:
    job = service.wait(service.submit(["sh", "-c", "echo step 7; kill -9 $$"]))
    assert job.reason == "group 1 ended with exit code 0:9; its last line: step 7"


def test_an_output_that_links_to_a_file_of_another_kind_is_not_emptied(service: Any) -> None:
    (service.work / "reshape-1.out").symlink_to("/dev/null")
    assert service.wait(service.submit(["echo", "x"])).state == "COMPLETED"


def test_a_job_has_the_umask_and_the_limits_of_the_process_that_submits_it(service: Any) -> None:
    program = "import os, resource as r; print(oct(os.umask(0)), r.getrlimit(r.RLIMIT_NOFILE)[0])"
    submit = [sys.executable, "-m", "reshape", "submit", "--dir", str(service.directory)]
    command = [*submit, "-n", "1", "--wait", "--hook-end", "umask > hook"]
    command += ["--", sys.executable, "-c", program]
    subprocess.run(
        ["sh", "-c", 'umask 077; ulimit -Sn 234; exec "$@"', "sh", *command],
        cwd=service.work,
        check=True,
        timeout=60,
        capture_output=True,
    )
    assert service.output(1) == "0o77 234\n"
    assert (service.work / "reshape-1.out").stat().st_mode & 0o777 == 0o600
    hook = service.work / "hook"
    wait_until(lambda: hook.exists() and hook.read_text() == "0077\n")
    assert hook.stat().st_mode & 0o777 == 0o600


def test_an_output_is_checked_by_the_account_that_opens_it(service: Any, tmp_path: Path) -> None:
    """A client on TCP may run as another user, on a host with other folders."""
    elsewhere = str(tmp_path / "none" / "x.out")
    submission = prepare(["true"], 1, walltime_s=60.0, output=elsewhere)
    with pytest.raises(ReshapeError, match=r"the output's directory .*/none does not exist"):
        check_places(submission, service.directory)
    check_places(submission, service.directory / "access" / "ann.json")
    job = service.wait(service.ask(m.Submit(submission=submission)).job)
    assert f"cannot write the output {elsewhere}: No such file or directory" in job.reason
