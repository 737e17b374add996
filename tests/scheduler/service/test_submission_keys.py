"""Submission keys: a repeated submission creates no second job, across turns and restarts."""

from __future__ import annotations

from pathlib import Path

import msgspec
from desk import OWNER, Desk

from reshape.wire.codec import encode
from scheduler.protocol import messages as m
from scheduler.service.permissions import owner


def submission(**changes: object) -> m.Submission:
    base = m.Submission(argv=["true"], processors=2, walltime_s=60.0, key="k1")
    return msgspec.structs.replace(base, **changes)


def submit(desk: Desk, sent: m.Submission, sender: object = OWNER) -> m.Message:
    (answer,) = desk.ask(b"client", m.Submit(submission=sent), sender)  # type: ignore[arg-type]
    return answer


def test_a_repeated_submission_is_answered_with_the_same_job(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert submit(desk, submission()) == m.Submitted(job=1)
    assert submit(desk, submission(environment={"A": "b"})) == m.Submitted(job=1)
    assert submit(desk, submission(key="k2")) == m.Submitted(job=2)
    assert submit(desk, submission(key="")) == m.Submitted(job=3)
    assert submit(desk, submission(key="")) == m.Submitted(job=4)


def test_a_repetition_in_one_turn_creates_no_second_job(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for peer in (b"a", b"b"):
        desk.handler.handle(peer, encode(m.Submit(submission=submission())), OWNER)
    desk.turn()
    assert [answer for _, answer in desk.sent] == [m.Submitted(job=1), m.Submitted(job=1)]


def test_a_key_holds_after_a_restart_of_the_service(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    submit(desk, submission())
    desk.components.journal.close()
    assert submit(Desk(tmp_path), submission()) == m.Submitted(job=1)


def test_a_key_holds_after_the_end_of_its_job(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    submit(desk, submission())
    desk.ask(b"client", m.ChangeJobs.one(1, m.CancelJob()))
    desk.turn()
    assert submit(desk, submission()) == m.Submitted(job=1)


def test_users_have_keys_of_their_own(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert submit(desk, submission()) == m.Submitted(job=1)
    assert submit(desk, submission(), owner("ann")) == m.Submitted(job=2)


def test_a_key_of_another_request_is_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    submit(desk, submission())
    answer = submit(desk, submission(processors=3))
    assert isinstance(answer, m.Failure)
    assert "'k1' belongs to job 1, which has another request" in answer.message
    answer = submit(desk, submission(key="x" * 201))
    assert isinstance(answer, m.Failure)
    assert "at most 200 are accepted" in answer.message
