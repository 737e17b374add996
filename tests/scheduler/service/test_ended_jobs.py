"""Jobs that have ended: the journal answers for them, the core does not keep them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from desk import Desk

from scheduler.protocol import messages as m
from scheduler.service.permissions import owner

JOB = m.Submission(
    argv=["true"], processors=1, walltime_s=60.0, name="a", user="ann", environment={"LONG": "x"}
)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "service")
    yield desk
    desk.components.journal.close()


def end(desk: Desk, number: int, user: str = "ann", name: str = "a") -> None:
    """Submit a job and cancel it."""
    job = m.Submission(argv=["true"], processors=1, walltime_s=60.0, name=name, user=user)
    submit = m.Submit(submission=job)
    assert desk.ask(b"x", submit, owner(user)) == [m.Submitted(job=number)]
    desk.ask(b"x", m.ChangeJobs.one(number, m.CancelJob()))
    desk.turn()


def listed(desk: Desk, **fields: object) -> m.JobListing:
    query = m.ListJobs(ended=True, live=False, **fields)  # type: ignore[arg-type]
    (answer,) = desk.ask(b"x", query)
    assert isinstance(answer, m.JobListing), answer
    return answer


def numbers(desk: Desk, **fields: object) -> list[int]:
    return [job.job for job in listed(desk, **fields).jobs]


def test_an_ended_job_is_answered_from_the_journal(desk: Desk) -> None:
    end(desk, 1)
    assert not desk.components.core.jobs
    (info,) = desk.ask(b"x", m.ListJobs(job=1))
    assert isinstance(info, m.JobListing)
    assert (info.jobs[0].state, info.jobs[0].user) == ("CANCELLED", "ann")
    (waited,) = desk.ask(b"x", m.Wait(job=1))
    assert isinstance(waited, m.JobListing)
    assert waited.jobs == info.jobs
    (refused,) = desk.ask(b"x", m.ChangeJobs.one(1, m.CancelJob()))
    assert isinstance(refused, m.Failure)
    assert "job 1 has ended already (CANCELLED)" in refused.message
    (explanation,) = desk.ask(b"x", m.Explain(job=1))
    assert isinstance(explanation, m.Explanation)
    assert explanation.lines[0].text.startswith("submitted for 1")
    (state,) = desk.ask(b"x", m.ServerInfo())
    assert isinstance(state, m.Info)
    assert (state.queued, state.running, state.ended) == (0, 0, 1)


def test_a_message_of_an_ended_job_is_checked_and_changes_nothing(desk: Desk) -> None:
    desk.ask(b"x", m.Submit(submission=JOB))
    (token,) = next(desk.components.journal.rows("SELECT token FROM jobs WHERE job=1"))
    desk.ask(b"x", m.ChangeJobs.one(1, m.CancelJob()))
    desk.turn()
    point = m.AtResizePoint(
        job=1, token=token, epoch=0, size=1, registered_bytes=0, iteration=1, iteration_s=0.1
    )
    assert desk.ask(b"a", point) == [m.Proceed()]
    point.token = "wrong"
    (refused,) = desk.ask(b"a", point)
    assert isinstance(refused, m.Failure)
    assert not desk.components.core.jobs


def test_the_numbers_of_jobs_continue(tmp_path: Path) -> None:
    for life in range(2):
        desk = Desk(tmp_path / "service")
        end(desk, life + 1)
        assert not desk.components.core.jobs
        desk.components.journal.close()


def test_the_environment_of_an_ended_job_is_not_kept(desk: Desk) -> None:
    desk.ask(b"x", m.Submit(submission=JOB))
    journal = desk.components.journal
    (part,) = journal.parts()
    assert journal.part(part) == b'{"LONG":"x"}'
    desk.ask(b"x", m.ChangeJobs.one(1, m.CancelJob()))
    desk.turn()  # with which the job is forgotten
    assert journal.parts() == set()
    (blob,) = next(journal.rows("SELECT submission FROM jobs"))
    assert part.encode() not in blob


def test_the_remains_of_an_ended_job_are_removed(desk: Desk) -> None:
    end(desk, 1)
    agent = desk.hello(groups=[m.GroupStatus(job=1, group=1, alive=True, pid=1)])
    assert any(isinstance(command, m.KillGroup) for command in agent)
    agent = desk.hello(groups=[m.GroupStatus(job=1, group=1, alive=False)])
    agent += desk.hello(groups=[m.GroupStatus(job=1, group=1, alive=False)])
    assert m.SweepJob(job=1) in agent


def test_pages_of_ended_jobs(desk: Desk) -> None:
    for number in range(1, 8):
        end(desk, number)
    assert numbers(desk) == [1, 2, 3, 4, 5, 6, 7]
    page = listed(desk, limit=3)
    assert ([job.job for job in page.jobs], page.before) == ([5, 6, 7], 5)
    page = listed(desk, limit=3, before=page.before)
    assert ([job.job for job in page.jobs], page.before) == ([2, 3, 4], 2)
    page = listed(desk, limit=3, before=page.before)
    assert ([job.job for job in page.jobs], page.before) == ([1], None)


def test_filters_of_ended_jobs(desk: Desk) -> None:
    for number, user, name in zip(count(1), ("ann", "bob", "ann"), ("a", "a", "b"), strict=False):
        end(desk, number, user, name)
    ends = [job.ended_at for job in listed(desk).jobs]
    assert numbers(desk, user="ann") == [1, 3]
    assert numbers(desk, name="a") == [1, 2]
    assert numbers(desk, user="ann", name="b") == [3]
    assert numbers(desk, state="ca") == [1, 2, 3]
    assert numbers(desk, state="FAILED") == []
    assert numbers(desk, since=ends[1]) == [2, 3]
    assert numbers(desk, until=ends[1]) == [1, 2]
    for query, text in (
        (m.ListJobs(ended=True, state="tired"), "'tired' is not the state of an ended job"),
        (m.ListJobs(ended=True, limit=0), "the limit must be at least 1, got 0"),
        (m.ListJobs(ended=True, before=9), "there is no ended job 9"),
    ):
        (refused,) = desk.ask(b"x", query)
        assert isinstance(refused, m.Failure)
        assert text in refused.message


def test_jobs_that_have_not_ended_are_listed_with_the_others(desk: Desk) -> None:
    end(desk, 1)
    desk.ask(b"x", m.Submit(submission=JOB))
    (answer,) = desk.ask(b"x", m.ListJobs(ended=True))
    assert isinstance(answer, m.JobListing)
    assert [(job.job, job.state) for job in answer.jobs] == [(1, "CANCELLED"), (2, "PENDING")]
    (answer,) = desk.ask(b"x", m.ListJobs())
    assert isinstance(answer, m.JobListing)
    assert [job.job for job in answer.jobs] == [2]
