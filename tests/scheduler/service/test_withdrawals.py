"""Withdrawals of queued jobs, which are moved to another site, and their submissions."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from desk import OWNER, Desk

from reshape.wire.codec import encode
from scheduler.model.job import JobState
from scheduler.protocol import messages as m
from scheduler.service.permissions import Sender, owner

SUBMISSION = m.Submission(
    argv=["solve"], processors=2, walltime_s=60.0, environment={"A": "b"}, user="root"
)
WITHDRAW = m.Withdraw(job=1, key="k~1", to="right")


def ask(desk: Desk, message: m.Message, sender: Sender = OWNER) -> m.Message:
    (answer,) = desk.ask(b"client", message, sender)
    return answer


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A service with one queued job."""
    made = Desk(tmp_path)
    ask(made, m.Submit(submission=SUBMISSION))
    return made


def state(desk: Desk) -> str:
    answer = ask(desk, m.ListJobs(job=1))
    assert isinstance(answer, m.JobListing)
    return answer.jobs[0].state


def start(desk: Desk) -> None:
    """Let the node come up, so that the queued job starts."""
    desk.hello([])
    assert desk.components.core.jobs[1].state is JobState.STARTING


def test_a_queued_job_is_withdrawn_and_a_repetition_is_answered_alike(desk: Desk) -> None:
    assert ask(desk, WITHDRAW) == m.Done()
    assert ask(desk, WITHDRAW) == m.Done()
    answer = ask(desk, m.ListJobs(job=1))
    assert isinstance(answer, m.JobListing)
    assert answer.jobs[0].state == "CANCELLED"
    assert answer.jobs[0].reason == (
        "withdrawn by its user, to be submitted to right with the key k~1"
    )


def test_a_repetition_is_answered_alike_after_a_restart(desk: Desk, tmp_path: Path) -> None:
    ask(desk, WITHDRAW)
    desk.turn()
    desk.components.journal.close()
    assert ask(Desk(tmp_path), WITHDRAW) == m.Done()


def test_a_job_that_has_started_is_not_withdrawn(desk: Desk) -> None:
    start(desk)
    answer = ask(desk, WITHDRAW)
    assert isinstance(answer, m.Failure)
    assert answer.message == "job 1 is not withdrawn: it has started or ended (STARTING)"
    assert desk.components.core.jobs[1].state is JobState.STARTING


def test_a_job_that_its_user_cancelled_is_not_withdrawn(desk: Desk) -> None:
    ask(desk, m.Cancel(job=1))
    assert isinstance(ask(desk, WITHDRAW), m.Failure)


def test_a_cancellation_of_the_same_turn_comes_first(desk: Desk) -> None:
    for message in (m.Cancel(job=1, id=1), WITHDRAW):
        desk.handler.handle(b"client", encode(message), OWNER)
    desk.turn()
    refused = [answer for _, answer in desk.sent if isinstance(answer, m.Failure)]
    assert [answer.message for answer in refused] == [
        "job 1 is not withdrawn: it has started or ended (CANCELLED)"
    ]


def test_another_withdrawal_of_a_withdrawn_job_is_refused(desk: Desk) -> None:
    ask(desk, WITHDRAW)
    other = msgspec.structs.replace(WITHDRAW, key="k~2")
    assert isinstance(ask(desk, other), m.Failure)


def test_the_submission_of_a_queued_job_is_for_its_user_alone(desk: Desk) -> None:
    answer = ask(desk, m.ReadSubmission(job=1))
    assert isinstance(answer, m.RecordedSubmission)
    assert answer.submission == SUBMISSION
    refused = ask(desk, m.ReadSubmission(job=1), owner("ann"))
    assert isinstance(refused, m.Failure)
    assert "is for root alone" in refused.message


def test_the_submission_of_a_job_that_has_started_is_not_answered(desk: Desk) -> None:
    start(desk)
    refused = ask(desk, m.ReadSubmission(job=1))
    assert isinstance(refused, m.Failure)
    assert "is not queued" in refused.message
