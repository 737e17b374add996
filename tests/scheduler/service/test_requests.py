"""Requests without sockets and processes: waits, long answers, messages that raise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from desk import Desk

from reshape.errors import ReshapeError
from reshape.wire.codec import encode
from scheduler.config.settings import QueueConfig
from scheduler.protocol import messages as m
from scheduler.service.driver import RECHECK_TICKS
from scheduler.service.later_answers import Reads
from scheduler.service.permissions import Sender, log_change, owner

OWNER = owner("root")
JOB = m.Submission(argv=["true"], processors=1, walltime_s=60.0)


def numbered(message: m.Message, request: int) -> m.Message:
    """Return a copy of a message with the number of a request."""
    return msgspec.structs.replace(message, id=request)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "service")
    yield desk
    desk.components.journal.close()


def test_without_room_questions_are_answered_commands_refused_and_reports_held(desk: Desk) -> None:
    desk.handler.room.note_failure("the disk is full")
    (refused,) = desk.ask(b"x", numbered(m.Submit(submission=JOB), 7))
    assert isinstance(refused, m.Failure)
    assert (refused.id, refused.message.partition(";")[0]) == (7, "the disk is full")
    (info,) = desk.ask(b"x", m.ServerInfo())
    assert isinstance(info, m.Info)
    assert info.halted == "the disk is full"
    assert not desk.handler.room.holds
    assert desk.hello() == []
    assert desk.handler.room.holds


def test_only_the_first_group_of_a_job_empties_its_output(desk: Desk) -> None:
    desk.hello()
    job = msgspec.structs.replace(JOB, max_processors=4, open_mode="truncate")
    desk.ask(b"x", m.Submit(submission=job))
    starts = [order for _, order in desk.sent if isinstance(order, m.StartGroup)]
    desk.hello([m.GroupStatus(job=1, group=1, alive=True)])
    (token,) = next(desk.components.journal.rows("SELECT token FROM jobs WHERE job=1"))
    point = m.AtResizePoint(
        job=1, token=token, epoch=0, size=1, registered_bytes=0, iteration=1, iteration_s=0.1
    )
    desk.ask(b"a", point)
    starts += [order for _, order in desk.sent if isinstance(order, m.StartGroup)]
    groups = [(start.group, start.bounds.truncate) for start in starts]
    assert groups == [(1, True), (2, False), (3, False)]


def test_an_ended_job_keeps_no_record_and_takes_no_time_of_ticks(desk: Desk) -> None:
    """It is not forgotten yet, because its agent still reports a folder of it, and many others."""
    folders = list(range(1, 10 * RECHECK_TICKS))
    desk.hello()
    desk.ask(b"x", m.Submit(submission=JOB))
    desk.hello([m.GroupStatus(job=1, group=1, alive=True)])
    (token,) = next(desk.components.journal.rows("SELECT token FROM jobs WHERE job=1"))
    fault = m.ProgramFault(job=1, group=1, token=token, why="it failed")
    desk.ask(b"a", fault)
    assert desk.components.remap.kept.keys() == {1}
    desk.hello([m.GroupStatus(job=1, group=1, alive=False, exit_code=1)], folders=folders)
    assert 1 in desk.components.core.jobs
    desk.ask(b"a", fault)
    assert not desk.components.remap.kept
    compared = 0
    for _ in range(10 * RECHECK_TICKS):
        desk.driver.tick(start_agents=False, heard_all=False)
        compared += 1 in desk.driver.changed_jobs
        desk.turn()
    assert 0 < compared <= 11  # with its share of all jobs
    desk.hello()
    desk.turn()
    assert 1 not in desk.components.core.jobs


def test_a_job_that_starts_again_at_once_begins_with_iteration_0(desk: Desk) -> None:
    desk.hello()
    desk.ask(b"x", m.Submit(submission=msgspec.structs.replace(JOB, requeue=True)))
    desk.hello([m.GroupStatus(job=1, group=1, alive=True)])
    (token,) = next(desk.components.journal.rows("SELECT token FROM jobs WHERE job=1"))
    point = m.AtResizePoint(
        job=1, token=token, epoch=0, size=1, registered_bytes=0, iteration=7, iteration_s=0.1
    )
    for field in ("iteration", "iteration_s", "registered_bytes"):
        (refused,) = desk.ask(b"a", msgspec.structs.replace(point, **{field: -1}))
        assert isinstance(refused, m.Failure)
        assert refused.message.endswith(f"- at `$.{field}`")
    assert desk.components.remap.kept[1].point is None
    desk.ask(b"a", point)
    assert desk.components.remap.kept[1].point is not None
    desk.ask(b"x", m.ChangeJobs.one(1, m.RequeueJob()))
    desk.hello([m.GroupStatus(job=1, group=1, alive=False, exit_code=1)])
    job = desk.components.core.jobs[1]
    assert (job.requeues, job.state.name) == (1, "STARTING")
    assert 1 not in desk.components.remap.kept or desk.components.remap.kept[1].point is None


def test_a_wait_is_answered_once(desk: Desk) -> None:
    assert desk.ask(b"a", m.Submit(submission=JOB)) == [m.Submitted(job=1)]
    assert desk.ask(b"a", m.Wait(job=1, id=4)) == []
    assert desk.ask(b"a", m.Wait(job=1, id=5)) == []
    answers = desk.ask(b"a", numbered(m.ChangeJobs.one(1, m.CancelJob()), 6))
    assert sorted(answer.id for answer in answers) == [5, 6]
    desk.sent.clear()
    desk.driver.changed_jobs.add(1)
    desk.turn()
    assert desk.sent == []
    (ended,) = desk.ask(b"b", m.Wait(job=1, id=7))
    assert isinstance(ended, m.JobListing)
    assert ended.jobs[0].state == "CANCELLED"


#: Of 4 processors the first job has 2; the second waits for all, and the others for the second.
SIZES = {1: 2, 2: 4, 3: 2, 4: 1}


@pytest.fixture
def waiting(desk: Desk) -> Desk:
    """Desk with the jobs of `SIZES`, of which the later ones would start after the second."""
    desk.hello()
    for size in SIZES.values():
        job = msgspec.structs.replace(JOB, processors=size, walltime_s=60.0 * (3 - size // 2))
        desk.ask(b"a", m.Submit(submission=job))
    desk.hello([m.GroupStatus(job=1, group=1, alive=True)])
    return desk


def starts(desk: Desk) -> list[int]:
    """Jobs for which the last request started processes."""
    return [order.job for _, order in desk.sent if isinstance(order, m.StartGroup)]


def test_no_job_starts_while_all_are_cancelled(waiting: Desk) -> None:
    everything = [m.JobTasks(number) for number in SIZES]
    answer = waiting.ask(b"a", m.ChangeJobs(jobs=everything, change=m.CancelJob()))
    assert answer == [m.Done()]
    assert starts(waiting) == []
    jobs = waiting.components.core.jobs
    assert {number: jobs[number].state.value for number in SIZES if number in jobs} == {
        **{1: "CG", 2: "CA", 3: "CA", 4: "CA"},
    }


def test_a_job_starts_when_only_those_before_it_are_cancelled(waiting: Desk) -> None:
    answer = waiting.ask(
        b"a", m.ChangeJobs(jobs=[m.JobTasks(2), m.JobTasks(3), m.JobTasks(2)], change=m.CancelJob())
    )
    assert answer == [m.Done()]
    assert starts(waiting) == [4]


def test_of_many_jobs_those_that_cannot_be_cancelled_are_named(waiting: Desk) -> None:
    ann = Sender("ann", frozenset(("user",)))
    waiting.ask(b"ann", m.Submit(submission=JOB), ann)
    named = [m.JobTasks(number) for number in (3, 5, 77)] + [m.JobTasks(5, "1-2")]
    (answer,) = waiting.ask(b"ann", m.ChangeJobs(jobs=named, change=m.CancelJob()), ann)
    assert isinstance(answer, m.UnchangedJobs)
    assert {place: why.partition(":")[0] for place, why in answer.refused} == {
        0: "job 3 belongs to user root, and this connection to user ann",
        2: "there is no job 77",
        3: "job 5 is no array, and has no tasks 1-2",
    }
    assert waiting.components.core.jobs[3].state.value == "PD"


def test_a_message_that_raises_is_answered_and_the_next_one_too(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(self: object, submission: object) -> None:
        raise KeyError("injected")

    with monkeypatch.context() as patch:
        patch.setattr(type(desk.components.applications), "submit", explode)
        (answer,) = desk.ask(b"a", m.Submit(submission=JOB, id=3))
    assert isinstance(answer, m.Failure)
    assert answer.id == 3
    assert "internal error of the service: KeyError('injected')" in answer.message
    assert desk.ask(b"a", m.Submit(submission=JOB)) == [m.Submitted(job=1)]


def test_a_refused_message_is_answered_with_its_number(desk: Desk) -> None:
    frames = encode(m.Submit(submission=JOB, id=9))
    desk.handler.handle(b"a", [frames[0], frames[1].replace(b"walltime_s", b"walltime_x")], OWNER)
    ((_, answer),) = desk.sent
    assert isinstance(answer, m.Failure)
    assert answer.id == 9


def user(name: str) -> Sender:
    return Sender(name, frozenset(("user",)), is_remote=True)


def test_the_user_of_a_job_is_that_of_the_connection(desk: Desk) -> None:
    forged = msgspec.structs.replace(JOB, user="root")
    assert desk.ask(b"a", m.Submit(submission=forged), user("ann")) == [m.Submitted(job=1)]
    assert desk.ask(b"a", m.Submit(submission=forged)) == [m.Submitted(job=2)]
    (listed,) = desk.ask(b"b", m.ListJobs(), user("bob"))
    assert isinstance(listed, m.JobListing)
    assert [job.user for job in listed.jobs] == ["ann", "root"]


@pytest.mark.parametrize("message", [m.ChangeJobs.one(1, m.CancelJob()), m.Explain(job=1)])
def test_a_job_of_another_user_is_refused_and_counted(desk: Desk, message: m.Message) -> None:
    desk.ask(b"a", m.Submit(submission=JOB), user("ann"))
    (answer,) = desk.ask(b"b", numbered(message, 5), user("bob"))
    assert answer == m.Failure(
        id=5,
        message="job 1 belongs to user ann, and this connection to user bob: ask ann or an"
        " administrator",
    )
    (info,) = desk.ask(b"b", m.ServerInfo(), user("bob"))
    assert isinstance(info, m.Info)
    assert (info.queued, info.refused) == (1, {"permission": 1})
    (answer,) = desk.ask(b"a", message, user("ann"))
    assert isinstance(answer, m.Done | m.Explanation)


def test_a_job_without_a_walltime_gets_that_of_its_queue(tmp_path: Path) -> None:
    queues = {
        "main": QueueConfig(),
        "short": QueueConfig(max_walltime_s=600.0),
        "long": QueueConfig(max_walltime_s=86400.0),
        "own": QueueConfig(max_walltime_s=86400.0, default_walltime_s=7200.0),
    }
    desk = Desk(tmp_path / "other", queues=queues)
    for name in ("", *queues):
        request = msgspec.structs.replace(JOB, walltime_s=0.0, queue=name, key=f"of {name}")
        number = desk.ask(b"a", m.Submit(submission=request))
        assert desk.ask(b"a", m.Submit(submission=request)) == number  # the same key
    (listed,) = desk.ask(b"a", m.ListJobs())
    assert isinstance(listed, m.JobListing)
    assert [job.walltime_s for job in listed.jobs] == [3600, 3600, 600, 3600, 7200]
    too_long = msgspec.structs.replace(JOB, walltime_s=601.0, queue="short")
    (refused,) = desk.ask(b"a", m.Submit(submission=too_long))
    assert isinstance(refused, m.Failure)
    assert "queue short has walltimes of 00:10:00 at most" in refused.message
    desk.components.journal.close()


def test_a_token_permits_the_messages_of_its_job_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = iter(("first", "second"))
    monkeypatch.setattr("secrets.token_hex", lambda _size: next(tokens))
    for _ in range(2):
        desk.ask(b"a", m.Submit(submission=JOB))
    process = Sender("root", frozenset(("job",)), is_remote=True)

    def hello(job: int) -> m.Message:
        return m.Hello(job=job, group=1, token="first", size=1, pid=1)

    assert isinstance(desk.ask(b"p", hello(1), process)[0], m.Welcome)
    for message in (
        hello(2),
        m.Submit(submission=JOB),
        m.ChangeJobs.one(1, m.CancelJob()),
        m.Stop(kill=True),
    ):
        (answer,) = desk.ask(b"p", message, process)
        assert isinstance(answer, m.Failure)
    (info,) = desk.ask(b"a", m.ServerInfo())
    assert isinstance(info, m.Info)
    assert (info.queued, info.refused) == (2, {"permission": 4})


def test_a_long_answer_takes_several_turns_and_delays_no_other() -> None:
    sent: list[tuple[bytes, m.Message]] = []
    reads = Reads(lambda *message: sent.append(message))
    taken: list[int] = []

    def answer(peer: bytes, steps: int) -> Iterator[None]:
        yield from map(taken.append, range(steps))
        sent.append((peer, m.Done()))

    reads.add(b"long", 1, answer(b"long", 1000))
    reads.add(b"short", 2, answer(b"short", 0))
    turns = 0
    while reads.pending:
        reads.advance(0.0)  # one step
        turns += 1
    assert taken == list(range(1000))
    assert sent == [(b"short", m.Done()), (b"long", m.Done())]
    assert turns == 1002


def test_a_long_answer_that_fails_is_answered() -> None:
    sent: list[tuple[bytes, m.Message]] = []
    reads = Reads(lambda *message: sent.append(message))
    reads.add(b"a", 1, (1 // zero for zero in [0]))
    reads.advance()
    assert not reads.pending
    ((_, answer),) = sent
    assert isinstance(answer, m.Failure)
    assert answer.id == 1


def test_the_questions_of_one_peer_leave_room_for_those_of_others() -> None:
    sent: list[tuple[bytes, m.Message]] = []
    reads = Reads(lambda *message: sent.append(message))

    def answer(peer: bytes, request: int) -> Iterator[None]:
        yield
        sent.append((peer, m.Done(id=request)))

    for request in range(1000):
        reads.add(b"many", request, answer(b"many", request))
    refused = [message for _, message in sent if isinstance(message, m.Failure)]
    sent.clear()
    assert len(refused) == 990
    assert {failure.message for failure in refused} == {"too many questions: ask again later"}
    reads.add(b"one", 1, answer(b"one", 1))
    while reads.pending:
        reads.advance(0.0)  # one step
    assert sorted(sent, key=lambda each: each[0]) == [
        *((b"many", m.Done(id=request)) for request in range(10)),
        (b"one", m.Done(id=1)),
    ]


def test_the_reason_of_a_cancellation_says_who_cancelled(desk: Desk) -> None:
    ann, bob = user("ann"), Sender("bob", frozenset(("administrator",)), "192.0.2.7:1 with key 4")
    for _ in range(2):
        desk.handler.handle(b"a", encode(m.Submit(submission=JOB)), ann)
    desk.turn()
    desk.handler.handle(b"a", encode(m.ChangeJobs.one(1, m.CancelJob())), bob)
    desk.handler.handle(b"a", encode(m.ChangeJobs.one(2, m.CancelJob())), ann)
    desk.turn()
    reasons = [desk.components.applications.job(number).why for number in (1, 2)]
    assert reasons == ["cancelled by bob, an administrator", "cancelled by its user"]


def test_changes_and_refusals_are_logged_with_address_and_key(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bob = Sender("bob", frozenset(("administrator",)), "192.0.2.7:40 with key 4")
    eve = Sender("eve", frozenset(("user",)), "192.0.2.9:50 with key 5")
    drain = m.ChangeMachine(change=m.DrainNode("local", "hot"))
    for message, sender in (
        (drain, bob),
        (drain, eve),
        (m.Stop(), eve),
        (m.ChangeMachine(change=m.RemoveNode("x")), bob),
    ):
        desk.handler.handle(b"a", encode(message), sender)
    desk.handler.handle(b"a", [b"?"], eve)
    lines = [record.getMessage() for record in caplog.records]
    assert "DrainNode node=local why=hot: by bob, from 192.0.2.7:40 with key 4" in lines
    refused = [line for line in lines if line.startswith("refused a message")]
    assert len(refused) == 3
    assert all("from 192.0.2.9:50 with key 5: " in line for line in refused)
    assert not any("RemoveNode" in line for line in lines), "there is no node x"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (m.ChangeJobs.one(3, m.SignalJob(number=10), "2-4"), "job=3_[2-4] SignalJob number=10"),
        (m.ChangeJobs.one(3, m.UpdateJob(walltime_s=60.0)), "job=3 UpdateJob walltime_s=60.0"),
        (m.ChangeJobs.one(3, m.UpdateJob(dependency="")), "job=3 UpdateJob dependency=''"),
        (m.ChangeMachine(change=m.PausePool("p", "two\nlines")), r"PausePool name=p why=two\nl"),
        (m.EndStep(job=3, token="", step=2), "job=3 EndStep step=2"),
        (m.Stop(kill=True), "Stop kill=True"),
    ],
)
def test_a_change_is_logged_with_its_fields(
    message: m.Message, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    log_change(message, user("ann"), None)
    log_change(message, user("ann"), m.Failure(message="refused"))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(text)
    assert ": by ann, from " in line


def test_the_log_names_the_first_of_many_jobs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    many = m.ChangeJobs(jobs=[m.JobTasks(n) for n in range(1, 25)], change=m.CancelJob())
    log_change(many, user("ann"), None)
    assert f"job={','.join(map(str, range(1, 21)))},... CancelJob: by ann" in caplog.text


@pytest.mark.parametrize(
    ("why", "fault"),
    [
        ("two\nlines", r"the reason 'two\nlines' holds a control character"),
        ("\x1b[2J", "holds a control character"),
        ("x" * 1001, "has 1001 characters, at most 1000 are accepted"),
    ],
)
def test_a_reason_is_one_short_line(desk: Desk, why: str, fault: str) -> None:
    (answer,) = desk.ask(b"a", m.ChangeMachine(change=m.DrainNode("local", why)))
    assert isinstance(answer, m.Failure)
    assert fault in answer.message


@pytest.mark.parametrize(
    "facts",
    [{"x" * 257: 1}, {"text": "x" * 1001}, {f"fact {number}": number for number in range(201)}],
    ids=["name", "text", "number"],
)
def test_facts_are_bounded(desk: Desk, facts: dict[str, bool | int | float | str]) -> None:
    desk.ask(b"a", m.Submit(submission=JOB))
    applications = desk.components.applications
    with pytest.raises(ReshapeError, match="at most"):
        applications.add_facts(applications.job(1), facts)
    applications.add_facts(applications.job(1), {"verified": True})


def test_every_message_that_a_role_may_send_is_handled(desk: Desk) -> None:
    declared = {kind for kind in get_args(m.Message) if kind.senders}
    assert desk.handler.handled == declared


@pytest.mark.parametrize(
    ("name", "fault"),
    [("r" * 257, "has 257 characters, at most 256 are accepted"), ("a\nb", "a control character")],
)
def test_the_name_of_a_reservation_has_limits(desk: Desk, name: str, fault: str) -> None:
    wanted = m.CreateReservation(duration_s=60.0, name=name, processors=1)
    (answer,) = desk.ask(b"a", m.ChangeMachine(change=wanted))
    assert isinstance(answer, m.Failure)
    assert fault in answer.message
