"""What the parent of a rank's program reports, and how it ends."""

from __future__ import annotations

import errno
import os
import signal
import subprocess

import pytest
from rank_runs import run_rank

from scheduler.node.launching.launcher import rank_command
from scheduler.node.launching.started import RankReports
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
    reports = RankReports(1)
    done = run_rank(["sh", "-c", script], reports, PMI_RANK="3")
    code = os.waitstatus_to_exitcode(status)
    assert reports.failure == GroupEnd(exit_code=max(code, 0), signal=max(-code, 0), rank=3)
    assert list(reports.begun) == [3]
    assert reports.ended_at is not None
    assert done.returncode == code


def test_a_program_that_ends_well_is_no_failure() -> None:
    reports = RankReports(2)
    assert run_rank(["true"], reports).returncode == 0
    assert (list(reports.begun), reports.failure) == ([0], None)
    assert reports.ended_at is None, "one of two ranks has ended"
    assert reports.running() == []


def test_a_program_that_does_not_exist_is_named() -> None:
    reports = RankReports(1)
    done = run_rank(["./none"], reports)
    assert (done.returncode, done.stderr) == (
        127,
        "cannot start ./none: No such file or directory\n",
    )
    why = f"cannot start ./none: {os.strerror(errno.ENOENT)}"
    assert reports.failure == GroupEnd(exit_code=126, why=why, rank=0, fault="job")
    assert not reports.begun


def test_a_program_has_neither_the_variables_nor_the_pipe_of_its_parent() -> None:
    reports = RankReports(1)
    script = f"env | grep -e RESHAPE_REPORT -e RESHAPE_CPUS; test -e /proc/self/fd/{reports.writer}"
    assert run_rank(["sh", "-c", script], reports, RESHAPE_CPUS="").returncode == 1
    assert reports.failure == GroupEnd(exit_code=1, rank=0)


def test_a_signal_to_the_process_group_ends_the_program_and_no_other_rank() -> None:
    """The exit code of a shell is no signal for hydra, so it prints nothing about the program."""
    reports = RankReports(1)
    rank = subprocess.Popen(
        rank_command(["sh", "-c", "echo up; exec sleep 1000"]),
        env=os.environ | {"RESHAPE_REPORT": str(reports.writer)},
        pass_fds=[reports.writer],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert rank.stdout is not None
    assert rank.stdout.readline() == b"up\n"
    os.killpg(rank.pid, signal.SIGTERM)
    assert rank.wait(30) == 128 + signal.SIGTERM
    rank.stdout.close()
    reports.was_inherited()
    reports.read()
    assert reports.failure == GroupEnd(signal=signal.SIGTERM, rank=0)
