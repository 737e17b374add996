"""The states of the jobs of a batch site."""

from __future__ import annotations

import pytest

from reshape.wire.messages import Submission
from scheduler.batch_sites.descriptions import LISTED_S, NOTED_S, described, updated
from scheduler.batch_sites.job_records import BatchSiteJob
from scheduler.batch_sites.script import job_script
from scheduler.batch_systems.interface import BatchState, BatchStatus

JOB = BatchSiteJob(1, "key", "name", 2, 60.0, ["true"], "/tmp", "%{JOB_ID}.out", 1000.0, "12")


def state_after(job: BatchSiteJob, status: BatchStatus | None, now: float = 1010.0) -> str:
    return described(updated(job, status, now), status).state


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (BatchStatus(BatchState.QUEUED, "PENDING"), "PENDING"),
        (BatchStatus(BatchState.RUNNING, start=1005.0), "RUNNING"),
        (BatchStatus(BatchState.ENDED, exit_code=0), "COMPLETED"),
        (BatchStatus(BatchState.ENDED, exit_code=3), "FAILED"),
        (BatchStatus(BatchState.ENDED, "TIMEOUT"), "TIMEOUT"),
        (BatchStatus(BatchState.ENDED, "NODE_FAIL"), "NODE_FAIL"),
        (BatchStatus(BatchState.ENDED, "CANCELLED"), "CANCELLED"),
        (BatchStatus(BatchState.ENDED, "COMPLETED"), "COMPLETING"),
        (BatchStatus(BatchState.UNKNOWN), "PENDING"),
        (None, "PENDING"),
    ],
)
def test_the_state_follows_from_the_batch_job(status: BatchStatus | None, expected: str) -> None:
    assert state_after(JOB, status) == expected


@pytest.mark.parametrize(
    ("state", "allowed_s"), [(BatchState.ENDED, NOTED_S), (BatchState.UNKNOWN, LISTED_S)]
)
def test_a_batch_job_without_an_exit_code_fails_after_a_while(
    state: BatchState, allowed_s: float
) -> None:
    status = BatchStatus(state)
    missing = updated(JOB, status, 1010.0)
    assert updated(missing, status, 1009.0 + allowed_s).ended is None
    ended = updated(missing, status, 1010.0 + allowed_s).ended
    assert ended is not None
    assert (ended.state, ended.exit_code) == ("FAILED", 1)
    seen_again = updated(missing, BatchStatus(BatchState.RUNNING), 1011.0)
    assert seen_again == JOB


def test_a_cancelled_job_does_not_count_as_failed() -> None:
    cancelled = BatchSiteJob(
        **{name: getattr(JOB, name) for name in ("job", "key", "name", "processors", "walltime_s")},
        argv=["true"], cwd="/tmp", output="out", submitted_at=1000.0, cancelled_at=1001.0,
    )  # fmt: skip
    for status in (None, BatchStatus(BatchState.ENDED), BatchStatus(BatchState.ENDED, exit_code=9)):
        assert state_after(cancelled, status) == "CANCELLED"


def test_the_script_keeps_the_variables_of_the_batch_job() -> None:
    environment = {"A": "it's", "SLURM_JOB_ID": "7", "PBS_JOBID": "8", "PATH": "/bin"}
    submission = Submission(["prog", "a b"], 3, 60.0, environment=environment, open_mode="append")
    assert job_script(submission, JOB.output_file) == (
        "#!/bin/sh\nexport A='it'\"'\"'s'\nexport PATH=/bin\nexec mpiexec -n 3 prog 'a b'\n"
    )
    assert str(JOB.output_file) == "/tmp/1.out"
