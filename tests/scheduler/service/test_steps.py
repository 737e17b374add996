"""Steps of job scripts in a service without processes: requests, numbers, restarts, commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from desk import OWNER, Desk

from scheduler.model.job import JobState
from scheduler.protocol import messages as m
from scheduler.service.permissions import Sender

#: A script on another host than the service has the key of jobs alone.
SCRIPT = Sender("root", frozenset({"job"}), is_remote=True)


def ask(desk: Desk, message: m.Message, sender: Sender = OWNER) -> m.Message:
    (answer,) = desk.ask(b"client", message, sender)
    return answer


def batch(desk: Desk, **more: Any) -> tuple[int, str]:
    """Submit a script; return its job and token."""
    fields: dict[str, Any] = {"argv": ["sh"], "processors": 3, "walltime_s": 60.0, "script": True}
    answer = ask(desk, m.Submit(submission=m.Submission(**fields | more)))
    assert isinstance(answer, m.Submitted)
    return answer.job, token(desk, answer.job)


def token(desk: Desk, job: int) -> str:
    return desk.components.journal.launches()[job].token


def run(desk: Desk, job: int, secret: str, key: str, **more: Any) -> m.Message:
    fields: dict[str, Any] = {"argv": ["solve"], "processors": 1, "walltime_s": 0.0}
    submission = m.Submission(**fields | more)
    request = m.RunStep(job=job, token=secret, key=key, submission=submission)
    return ask(desk, request, SCRIPT)


def starts(desk: Desk) -> dict[int, m.StartGroup]:
    return {order.job: order for _, order in desk.sent if isinstance(order, m.StartGroup)}


def info(desk: Desk, job: int) -> m.JobInfo:
    answer = ask(desk, m.ListJobs(job=job))
    assert isinstance(answer, m.JobListing)
    return answer.jobs[0]


def labels(desk: Desk, **more: Any) -> list[str]:
    answer = ask(desk, m.ListJobs(**more))
    assert isinstance(answer, m.JobListing)
    return [job.label or str(job.job) for job in answer.jobs]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_step_is_numbered_journalled_and_started_once(desk: Desk, tmp_path: Path) -> None:
    desk.hello()
    job, secret = batch(desk)
    accepted = run(desk, job, secret, "a", processors=2, output="%j-%s.out", name="first")
    assert accepted == m.Submitted(job=2, label="1.0")
    start = starts(desk)[2]
    names = ("RESHAPE_JOB", "RESHAPE_STEP", "RESHAPE_STEP_JOB", "RESHAPE_PROCESSORS")
    assert [start.environment[name] for name in names] == ["1", "0", "2", "2"]
    assert start.environment["RESHAPE_TOKEN"] == token(desk, 2) != secret
    assert (start.size, start.bounds.output) == (2, "1-0.out")
    assert run(desk, job, secret, "a", processors=2) == accepted, "a repetition"
    assert run(desk, job, secret, "b", processors=2) == m.Submitted(job=3, label="1.1")
    assert "2 processors wanted, job 1 has 1 idle of 3 [Step]" in info(desk, 3).reason
    assert labels(desk) == ["1"]
    assert labels(desk, steps=True) == ["1", "1.0", "1.1"]

    desk.components.journal.close()
    again = Desk(tmp_path)
    assert run(again, job, secret, "b", processors=2) == m.Submitted(job=3, label="1.1")
    assert run(again, job, secret, "c") == m.Submitted(job=4, label="1.2")
    assert info(again, 1).steps == [(0, 2), (1, 3), (2, 4)]
    again.hello([m.GroupStatus(job=2, group=1, alive=False, exit_code=3)])
    assert info(again, 2).state == "FAILED"
    assert (info(again, 3).state, info(again, 3).processors) == ("STARTING", "0-1")
    answer = ask(again, m.ServerInfo())
    assert isinstance(answer, m.Info)
    assert (answer.last, answer.running, answer.ended, answer.free) == (1, 1, 1, 1)


def test_a_script_waits_for_its_step_and_ends_it(desk: Desk) -> None:
    desk.hello()
    job, secret = batch(desk)
    run(desk, job, secret, "a")
    assert desk.ask(b"waits", m.WaitStep(job=job, token=secret, step=2), SCRIPT) == []
    assert ask(desk, m.EndStep(job=job, token=secret, step=2), SCRIPT) == m.Done()
    desk.hello([m.GroupStatus(job=2, group=1, alive=False, signal=15)])
    (ended,) = [answer for peer, answer in desk.sent if peer == b"waits"]
    assert isinstance(ended, m.JobListing)
    assert (ended.jobs[0].label, ended.jobs[0].state, ended.jobs[0].signal) == (
        *("1.0", "CANCELLED"),
        15,
    )
    assert ask(desk, m.EndStep(job=job, token=secret, step=2), SCRIPT) == m.Done(), "as before"
    run(desk, job, secret, "b")
    ask(desk, m.ChangeJobs.one(job, m.CancelJob()))
    assert desk.components.core.jobs[3].state is JobState.COMPLETING
    assert info(desk, 3).reason == "job 1 ends: cancelled by its user"
    answer = run(desk, job, secret, "c")
    assert answer == m.Failure(message="job 1 does not run any more: it can have no further steps")


def test_a_key_of_jobs_permits_steps_of_the_own_job_alone(desk: Desk) -> None:
    desk.hello()
    first, secret = batch(desk, processors=1)
    second, other = batch(desk, processors=1)
    run(desk, second, other, "a")
    for message in (
        m.RunStep(
            job=second,
            token=secret,
            key="k",
            submission=m.Submission(argv=["x"], processors=1, walltime_s=1.0),
        ),
        m.WaitStep(job=first, token=secret, step=3),
        m.EndStep(job=first, token=secret, step=3),
        m.EndStep(job=first, token=secret, step=second),
        m.ChangeJobs.one(first, m.CancelJob()),
        m.Submit(submission=m.Submission(argv=["x"], processors=1, walltime_s=1.0)),
    ):
        answer = ask(desk, message, SCRIPT)
        assert isinstance(answer, m.Failure), message
    assert desk.components.core.jobs[3].state is JobState.STARTING


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"processors": 4}, "the step asks for 4 processors, job 1 has 3: ask for fewer"),
        ({"processors": 2, "max_processors": 1}, "--max 1 is below the 2 processors"),
        ({"processors": 2, "min_processors": 1}, "which it keeps to its end: leave --min out"),
        ({"argv": []}, "no program to run"),
        ({"output": "%q"}, "the placeholder '%q'"),
    ],
)
def test_a_step_that_is_invalid_is_refused(desk: Desk, more: dict[str, Any], why: str) -> None:
    desk.hello()
    job, secret = batch(desk)
    answer = run(desk, job, secret, "a", **more)
    assert isinstance(answer, m.Failure)
    assert why in answer.message
    assert list(desk.components.core.jobs) == [1]
    assert run(desk, job, secret, "a") == m.Submitted(job=2, label="1.0"), "nothing half done"


def test_only_scripts_have_steps_and_users_change_the_job(desk: Desk) -> None:
    desk.hello()
    job, secret = batch(desk, script=False)
    answer = run(desk, job, secret, "a")
    assert isinstance(answer, m.Failure)
    assert "job 1 is no job script" in answer.message
    script, secret = batch(desk, processors=1)
    run(desk, script, secret, "a", max_processors=3)
    ask(desk, m.ChangeJobs.one(script, m.UpdateJob(walltime_s=7200.0)))
    step, parent = desk.components.core.jobs[3], desk.components.core.jobs[script]
    assert step.expected_end == pytest.approx(parent.expected_end)
    refused = m.Failure(message="step 2.0 is not changed by itself: change job 2")
    assert ask(desk, m.ChangeJobs.one(3, m.UpdateJob(name="x"))) == refused
    assert ask(desk, m.ChangeJobs.one(3, m.RequeueJob())) == refused
    depends = m.Submission(argv=["x"], processors=1, walltime_s=1.0, dependency="afterok:3")
    answer = ask(desk, m.Submit(submission=depends))
    assert answer == m.Failure(message="--dependency afterok:3: it is step 2.0: name its job 2")


def test_a_task_of_an_array_has_steps(desk: Desk) -> None:
    desk.hello()
    array, _ = batch(desk, array="4-5", processors=1)
    task = array + 1
    assert run(desk, task, token(desk, task), "a") == m.Submitted(job=4, label="1_4.0")
    assert labels(desk, steps=True) == ["1", "1_4", "1_5", "1_4.0"]


def test_a_step_that_has_ended_before_its_job_is_not_cancelled(desk: Desk, tmp_path: Path) -> None:
    """The service hears of both ends at once, or of that of the job first."""
    desk.hello()
    for _ in range(2):
        number, secret = batch(desk, processors=1)
        run(desk, number, secret, "a")
    groups = {job: m.GroupStatus(job=job, group=1, alive=True) for job in (1, 2, 3, 4)}
    desk.hello([*groups.values()])
    ended = {job: m.GroupStatus(job=job, group=1, alive=False) for job in groups}
    desk.hello([ended[1], ended[2], groups[3], groups[4]])
    assert [info(desk, job).state for job in (1, 2)] == ["COMPLETED", "COMPLETED"]

    desk.components.journal.close()
    again = Desk(tmp_path)
    again.hello()
    asked = [order.job for _, order in again.sent if isinstance(order, m.ReportEnd)]
    assert sorted(asked) == [3, 4], "the journal has lost their ends"
    again.hello([ended[3]])
    assert [info(again, job).state for job in (3, 4)] == ["RUNNING", "RUNNING"]
    again.hello([ended[3], ended[4]])
    again.driver.tick(start_agents=False, heard_all=False)
    again.turn()
    assert [info(again, job).state for job in (3, 4)] == ["COMPLETED", "COMPLETED"]
