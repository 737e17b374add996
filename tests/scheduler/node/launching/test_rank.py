"""What the parent of a rank's program reports, and how it ends."""

from __future__ import annotations

import errno
import os
import signal

import pytest
from rank_runs import run_rank, start_rank

from scheduler.protocol.messages import GroupEnd


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 11", 11 << 8),
        ("kill -SEGV $$", 11),
        ("exit 139", 139 << 8),
        ("kill -KILL $$", 9),
        ("kill -TERM $$", 15),
    ],
)
def test_a_rank_reports_the_end_of_its_program_and_ends_like_it(script: str, status: int) -> None:
    reports, done = run_rank(["sh", "-c", script], PMI_RANK="3")
    code = os.waitstatus_to_exitcode(status)
    assert reports.failed == GroupEnd(exit_code=max(code, 0), signal=max(-code, 0), rank=3)
    assert list(reports.begun) == [3]
    assert reports.ended_at is not None
    assert done.returncode == code


def test_a_program_that_ends_well_is_no_failure() -> None:
    reports, done = run_rank(["true"], size=2)
    assert done.returncode == 0
    assert (list(reports.begun), reports.failed) == ([0], None)
    assert reports.ended_at is None, "one of two ranks has ended"
    assert reports.running() == []


def test_a_program_that_does_not_exist_is_named() -> None:
    reports, done = run_rank(["./none"])
    assert (done.returncode, done.stderr) == (
        127,
        "cannot start ./none: No such file or directory\n",
    )
    why = f"cannot start ./none: {os.strerror(errno.ENOENT)}"
    assert reports.failed == GroupEnd(exit_code=126, why=why, rank=0, fault="job")
    assert not reports.begun


def test_a_program_has_neither_the_variables_nor_the_pipe_of_its_parent() -> None:
    script = "env | grep -e RESHAPE_REPORT -e RESHAPE_CPUS; test -e /proc/self/fd/$DESCRIPTOR"
    reports, done = run_rank(["sh", "-c", script], RESHAPE_CPUS="", DESCRIPTOR="{report}")
    assert (done.returncode, done.stdout) == (1, "")
    assert reports.failed == GroupEnd(exit_code=1, rank=0)


def test_a_signal_to_the_process_group_ends_the_program_and_no_other_rank() -> None:
    """The exit code of a shell is no signal for hydra, so it prints nothing about the program."""
    reports, rank = start_rank(["sh", "-c", "echo up; exec sleep 1000"])
    with rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "up\n"
        os.killpg(rank.pid, signal.SIGTERM)
        assert rank.wait(30) == 128 + signal.SIGTERM
    reports.read_reports()
    reports.close()
    assert reports.failed == GroupEnd(signal=signal.SIGTERM, rank=0)
