"""Job arrays in a service without processes: numbers, records, restarts, commands."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from desk import OWNER, Desk

from scheduler.journal.journal_reader import reading
from scheduler.journal.replay import compare
from scheduler.model.job import JobState
from scheduler.protocol import messages as m
from scheduler.service.permissions import Sender


def ask(desk: Desk, message: m.Message) -> m.Message:
    (answer,) = desk.ask(b"client", message, OWNER)
    return answer


def submit(desk: Desk, array: str = "", **more: object) -> m.Message:
    fields = {"argv": ["solve"], "processors": 1, "walltime_s": 60.0, "array": array} | more
    return ask(desk, m.Submit(submission=m.Submission(**fields)))  # type: ignore[arg-type]


def started(desk: Desk) -> dict[int, m.StartGroup]:
    return {order.job: order for _, order in desk.sent if isinstance(order, m.StartGroup)}


def labels(desk: Desk) -> dict[int, tuple[str, str]]:
    answer = ask(desk, m.ListJobs())
    assert isinstance(answer, m.JobListing)
    return {job.job: (job.label, job.code) for job in answer.jobs}


def restarted(desk: Desk, folder: Path) -> Desk:
    desk.turn()
    desk.components.journal.close()
    return Desk(folder)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_task_whose_record_was_lost_starts_by_the_same_order(tmp_path: Path) -> None:
    """By that order an agent knows a task that has run already (`ended_jobs`)."""
    folder = tmp_path / "service"
    desk = Desk(folder)
    submit(desk, "0-2")
    desk.turn()
    copy = tmp_path / "copy"
    copy.mkdir(mode=0o700)
    for path in folder.glob("journal.db*"):
        shutil.copy(path, copy)
    orders = []
    for service in (desk, Desk(copy)):
        service.hello()
        orders.append(started(service))
        service.components.journal.close()
    tokens = [{n: order.environment["RESHAPE_TOKEN"] for n, order in own.items()} for own in orders]
    assert tokens[0] == tokens[1]
    assert len({*tokens[0].values()}) == 3


def test_the_largest_array_is_a_setting(tmp_path: Path) -> None:
    desk = Desk(tmp_path, max_array_tasks=4)
    assert submit(desk, "1-9:3") == m.Submitted(job=1)
    told = submit(desk, "0-4")
    assert isinstance(told, m.Failure)
    assert "'0-4' has 5 tasks: an array of this service has at most 4" in told.message


def test_an_array_is_one_job_until_its_tasks_start(desk: Desk, tmp_path: Path) -> None:
    assert submit(desk, "5-95:10%3", output="%A-%a.out", name="sweep") == m.Submitted(job=1)
    assert submit(desk) == m.Submitted(job=12)
    assert labels(desk) == {1: ("1_[15-95:10%3]", "PD"), 2: ("1_5", "PD"), 12: ("", "PD")}
    assert info(desk, 1).output == "1-%a.out"
    desk.hello()
    starts = started(desk)
    assert info(desk, 2).output == "1-5.out"
    assert labels(desk) == {
        **{1: ("1_[35-95:10%3]", "PD"), 2: ("1_5", "CF"), 3: ("1_15", "CF"), 4: ("1_25", "CF")},
        12: ("", "CF"),
    }
    again = restarted(desk, tmp_path)
    assert labels(again)[1] == ("1_[35-95:10%3]", "PD")
    again.hello([m.GroupStatus(job=3, group=1, alive=False)])
    starts |= started(again)
    assert labels(again)[5] == ("1_35", "CF"), "the next task, when one has ended"
    assert starts.keys() == {2, 3, 4, 5, 12}
    del starts[12]
    for job, start in starts.items():
        index = 5 + 10 * (job - 2)
        assert start.bounds.output == f"1-{index}.out"
        variables = {k: v for k, v in start.environment.items() if k.startswith("RESHAPE_ARRAY_")}
        assert variables == {
            **{"RESHAPE_ARRAY_JOB_ID": "1", "RESHAPE_ARRAY_TASK_ID": str(index)},
            **{"RESHAPE_ARRAY_TASK_COUNT": "10", "RESHAPE_ARRAY_TASK_STEP": "10"},
            **{"RESHAPE_ARRAY_TASK_MIN": "5", "RESHAPE_ARRAY_TASK_MAX": "95"},
        }
    assert len({start.environment["RESHAPE_TOKEN"] for start in starts.values()}) == len(starts)
    assert submit(again) == m.Submitted(job=13)


def test_a_large_array_is_accepted_at_once_and_costs_one_job(desk: Desk, tmp_path: Path) -> None:
    began = time.thread_time()
    assert submit(desk, "0-9999") == m.Submitted(job=1)
    assert time.thread_time() - began < 0.2
    assert list(desk.components.core.jobs) == [1, 2], "one task waits at the head of the queue"
    answer = ask(desk, m.ServerInfo())
    assert isinstance(answer, m.Info)
    assert (answer.queued, answer.ended, answer.last) == (2, 0, 1)
    assert submit(restarted(desk, tmp_path)) == m.Submitted(job=10002)


@pytest.mark.parametrize(
    ("array", "why"),
    [
        ("0-999999999", "--array: '0-999999999' has 1000000000 tasks: an array has at most 100000"),
        ("1-", "--array: '1-' is no index or range"),
    ],
)
def test_an_array_that_is_invalid_is_refused(desk: Desk, array: str, why: str) -> None:
    answer = submit(desk, array)
    assert isinstance(answer, m.Failure)
    assert why in answer.message
    assert desk.components.core.jobs == {}


def test_a_task_and_an_array_are_cancelled_and_held(desk: Desk) -> None:
    submit(desk, "0-9")
    assert ask(desk, m.ChangeJobs.one(1, m.HoldJob())) == m.Done()
    desk.hello()
    assert {code for _, code in labels(desk).values()} == {"PD"}
    assert ask(desk, m.ChangeJobs.one(1, m.ReleaseJob())) == m.Done()
    jobs = desk.components.core.jobs
    assert [jobs[n].state for n in (2, 3, 4, 5)] == [JobState.STARTING] * 4
    assert ask(desk, m.ChangeJobs.one(6, m.CancelJob())) == m.Done()
    assert labels(desk)[1] == ("1_[6-9]", "PD"), "the next one takes its place"
    answer = ask(desk, m.ChangeJobs.one(1, m.UpdateJob(name="x")))
    assert answer == m.Failure(message="tasks of array 1 have begun: change each of them by itself")
    assert ask(desk, m.ChangeJobs.one(1, m.CancelJob())) == m.Done()
    assert {code for _, code in labels(desk).values()} == {"PD", "CG"}
    ends = [m.GroupStatus(job=n, group=1, alive=False, signal=15) for n in (2, 3, 4, 5)]
    desk.ask(b"x", m.Wait(job=1))
    desk.hello(ends)
    desk.turn()
    assert jobs.keys() <= {1, 2, 3, 4, 5}
    ended = ask(desk, m.ListJobs(job=1))
    assert isinstance(ended, m.JobListing)
    assert ended.jobs[0].state == "CANCELLED"


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_task_that_is_changed_remains_a_task_of_its_array(
    desk: Desk, tmp_path: Path, state: str
) -> None:
    submit(desk, "0-1%1")
    if state == "running":
        desk.hello()
    changes = m.UpdateJob(walltime_s=50.0, name="longer")
    assert ask(desk, m.ChangeJobs.one(2, changes)) == m.Done()
    assert labels(desk)[2] == ("1_0", "CF" if state == "running" else "PD")
    desk = restarted(desk, tmp_path)
    desk.hello()
    desk.hello([m.GroupStatus(job=2, group=1, alive=False)])
    assert labels(desk) == {1: ("", "PD"), 3: ("1_1", "CF")}
    desk.hello([m.GroupStatus(job=3, group=1, alive=False)])
    ended = ask(desk, m.ListJobs(job=1))
    assert isinstance(ended, m.JobListing)
    assert ended.jobs[0].state == "COMPLETED"


def told(desk: Desk, job: int) -> list[str]:
    answer = ask(desk, m.Explain(job=job))
    assert isinstance(answer, m.Explanation)
    return [line.text for line in answer.lines]


def info(desk: Desk, job: int) -> m.JobInfo:
    answer = ask(desk, m.ListJobs(job=job))
    assert isinstance(answer, m.JobListing)
    return answer.jobs[0]


@pytest.fixture
def running(desk: Desk) -> Desk:
    """Array 1 of 100 tasks, of which the first four run and the fifth waits."""
    submit(desk, "0-99", name="sweep", argv=["solve", "x"])
    desk.hello()
    return desk


def test_a_task_that_has_not_come_is_described_and_explained(running: Desk) -> None:
    task = info(running, 53)
    assert (task.label, task.state, task.name, task.argv) == (
        *("1_51", "PENDING", "sweep"),
        ["solve", "x"],
    )
    place = "its place among the tasks of array 1 that are to come is 47"
    assert task.reason == f"{place}; each comes as soon as it could start [Array]"
    assert told(running, 53) == [
        "submitted for 1 processor, 60 s",
        f"waits: {place}; each comes as soon as it could start [Array]",
    ]
    unknown = ask(running, m.ListJobs(job=102))
    assert unknown == m.Failure(message="there is no job 102: numbers go from 1 to 101")


def test_tasks_that_have_not_come_are_held_and_released(running: Desk, tmp_path: Path) -> None:
    assert ask(running, m.ChangeJobs.one(53, m.HoldJob())) == m.Done()
    assert ask(running, m.ChangeJobs.one(1, m.HoldJob(), "4-9,90")) == m.Done()
    array = info(running, 1)
    assert (array.label, array.held_tasks) == ("1_[5-9,11-99]", "5-9,51,90")
    assert "JobHeldUser" in info(running, 53).reason
    assert told(running, 53)[1:] == [
        "is held by its user",
        "waits: task 51 of array 1 is held by its user [JobHeldUser]",
    ]
    assert "tasks 4-9,90 are held by its user" in told(running, 1)
    assert info(running, 6).reason == "held by its user until it is released [JobHeldUser]"
    again = restarted(running, tmp_path)
    assert info(again, 1).held_tasks == "5-9,51,90"
    assert ask(again, m.ChangeJobs.one(55, m.ReleaseJob())) == m.Failure(
        message="job 55 is not held"
    )
    refused = ask(again, m.ChangeJobs.one(1, m.ReleaseJob(), "60-62"))
    assert refused == m.Failure(message="tasks 60-62 of array 1 are not held")
    assert ask(again, m.ChangeJobs.one(1, m.ReleaseJob(), "9-51")) == m.Done()
    assert info(again, 1).held_tasks == "5-8,90"
    assert ask(again, m.ChangeJobs.one(1, m.ReleaseJob())) == m.Done()
    assert info(again, 1).held_tasks == ""


def test_what_an_administrator_holds_its_user_does_not_release(running: Desk) -> None:
    ann = Sender("ann", frozenset(("user",)))
    submission = m.Submission(argv=["x"], processors=1, walltime_s=60.0, array="0-9")
    (answer,) = running.ask(b"ann", m.Submit(submission=submission), ann)
    assert answer == m.Submitted(job=102)
    assert ask(running, m.ChangeJobs.one(102, m.HoldJob(), "5-6")) == m.Done()
    for message in (
        m.ChangeJobs.one(108, m.ReleaseJob()),
        m.ChangeJobs.one(102, m.ReleaseJob(), "5"),
        m.ChangeJobs.one(102, m.ReleaseJob()),
    ):
        (answer,) = running.ask(b"ann", message, ann)
        assert isinstance(answer, m.Failure)
        assert "an administrator holds" in answer.message
    assert running.ask(b"ann", m.ChangeJobs.one(102, m.HoldJob(), "4-7"), ann) == [m.Done()]
    assert running.ask(b"ann", m.ChangeJobs.one(102, m.ReleaseJob(), "4,7"), ann) == [m.Done()]
    assert info(running, 102).held_tasks == "5-6"
    (answer,) = running.ask(
        b"bob", m.ChangeJobs.one(110, m.CancelJob()), Sender("bob", frozenset(("user",)))
    )
    assert isinstance(answer, m.Failure)
    assert "job 110 belongs to user ann" in answer.message


def test_tasks_that_have_not_come_are_cancelled(running: Desk, tmp_path: Path) -> None:
    for peer, number in ((b"a", 53), (b"b", 72), (b"c", 92)):
        assert running.ask(peer, m.Wait(job=number)) == []
    running.sent.clear()
    assert ask(running, m.ChangeJobs.one(53, m.CancelJob())) == m.Done()
    (told_of,) = [answer for to, answer in running.sent if to == b"a"]
    assert isinstance(told_of, m.JobListing)
    assert (told_of.jobs[0].job, told_of.jobs[0].state) == (53, "CANCELLED")
    assert ask(running, m.ChangeJobs.one(1, m.CancelJob(), "60-79")) == m.Done()
    assert [to for to, _ in running.sent] == [b"client", b"b"]
    assert ask(running, m.ChangeJobs.one(53, m.CancelJob())) == m.Failure(
        message="job 53 has ended already (CANCELLED)"
    )
    assert ask(running, m.ChangeJobs.one(1, m.CancelJob(), "51,60-65")) == m.Failure(
        message="tasks 51,60-65 of array 1 have ended already"
    )
    assert ask(running, m.ChangeJobs.one(1, m.CancelJob(), "99-100")) == m.Failure(
        message="array 1: it has no task 100: it has 0-99"
    )
    assert ask(running, m.ChangeJobs.one(2, m.CancelJob(), "1")) == m.Failure(
        message="job 2 is no array, and has no tasks 1"
    )
    again = restarted(running, tmp_path)
    assert info(again, 1).pending_tasks == "5-50,52-59,80-99"
    task = info(again, 72)
    assert (task.label, task.state, task.reason) == ("1_70", "CANCELLED", "cancelled by its user")
    assert task.argv == ["solve", "x"]
    assert task.ended_at is not None
    assert told(again, 72)[1:] == ["is to be cancelled: cancelled by its user"]
    assert ask(again, m.Wait(job=72)).jobs[0].state == "CANCELLED"  # type: ignore[union-attr]
    answer = ask(again, m.ServerInfo())
    assert isinstance(answer, m.Info)
    assert (answer.queued, answer.running, answer.ended) == (2, 4, 21)
    # With the array its last tasks end, and remain known after it.
    assert ask(again, m.ChangeJobs.one(1, m.CancelJob())) == m.Done()
    ends = [m.GroupStatus(job=n, group=1, alive=False, signal=15) for n in (2, 3, 4, 5)]
    again.hello(ends)
    again.turn()
    assert info(again, 1).state == info(again, 101).state == "CANCELLED"
    assert info(again, 101).reason == "cancelled by its user"


def test_a_task_gets_a_request_of_its_own_before_it_has_come(running: Desk, tmp_path: Path) -> None:
    changes = m.UpdateJob(walltime_s=30.0, name="one", processors=2)
    assert ask(running, m.ChangeJobs.one(53, m.HoldJob())) == m.Done()
    assert ask(running, m.ChangeJobs.one(53, changes)) == m.Done()
    for again in (False, True):
        desk = restarted(running, tmp_path) if again else running
        task = info(desk, 53)
        assert (task.label, task.name, task.requested, task.walltime_s) == ("1_51", "one", 2, 30.0)
        assert task.reason == "held by its user until it is released [JobHeldUser]"
    assert ask(desk, m.ChangeJobs.one(53, m.ReleaseJob())) == m.Done()
    ended = [m.GroupStatus(job=n, group=1, alive=False) for n in (2, 3, 4, 5)]
    assert ask(desk, m.ChangeJobs.one(1, m.CancelJob(), "4-50,52-99")) == m.Done()
    desk.hello(ended)
    start = started(desk)[53]
    assert start.environment["RESHAPE_ARRAY_TASK_ID"] == "51"
    assert start.bounds.output == "reshape-1_51.out"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (m.ChangeJobs.one(53, m.RequeueJob()), "job 53 is PENDING: only a running job is requeued"),
        (
            m.ChangeJobs.one(53, m.SignalJob(number=10)),
            "job 53 is PENDING: only running jobs get a signal",
        ),
        (m.ChangeJobs.one(1, m.RequeueJob(), "5-9"), "none of the tasks 5-9 of array 1 is running"),
        (
            m.ChangeJobs.one(53, m.UpdateJob(dependency="afterok:1_200")),
            "--dependency afterok:1_200: there is no task 1_200: job 1 has the tasks 0-99",
        ),
        (
            m.ChangeJobs.one(53, m.UpdateJob(processors=5)),
            "the job asks for 5 processors, the machine has 4: ask for fewer",
        ),
    ],
)
def test_what_a_task_that_has_not_come_refuses(running: Desk, message: m.Message, why: str) -> None:
    assert ask(running, message) == m.Failure(message=why)
    assert running.components.core.jobs.keys() == {1, 2, 3, 4, 5, 6}


def test_running_tasks_of_a_set_are_requeued_and_get_signals(running: Desk) -> None:
    assert ask(running, m.ChangeJobs.one(1, m.SignalJob(number=10), "0-50")) == m.Done()
    assert ask(running, m.ChangeJobs.one(1, m.RequeueJob(), "2-99")) == m.Done()
    jobs = running.components.core.jobs
    assert [jobs[n].requeue_asked for n in (2, 3, 4, 5)] == [False, False, True, True]


def test_jobs_depend_on_tasks_that_have_not_come(running: Desk, tmp_path: Path) -> None:
    for dependency in ("afterok:1_51", "afternotok:1_60:1_61", "afterany:1_4", "afterany:1_99"):
        submit(running, dependency=dependency)
    assert (
        told(running, 103)[-1] == "waits: waits for job 1_60 to fail, and for 1 more [Dependency]"
    )
    assert ask(running, m.ChangeJobs.one(1, m.CancelJob(), "50-61")) == m.Done()
    again = restarted(running, tmp_path)
    reasons = {n: info(again, n).reason.rpartition(" [")[2] for n in (102, 103, 104, 105)}
    assert reasons == {
        102: "DependencyNeverSatisfied]",
        103: "Priority]",
        104: "Dependency]",
        105: "Dependency]",
    }
    later = submit(again, dependency="afternotok:1_55,afterany:1_70")
    assert later == m.Submitted(job=106)
    assert info(again, 106).reason.startswith("waits for job 1_70 to end [")
    answer = submit(again, dependency="afterok:1_100")
    assert answer == m.Failure(
        message="--dependency afterok:1_100: there is no task 1_100: job 1 has the tasks 0-99"
    )
    cycle = ask(again, m.ChangeJobs.one(1, m.UpdateJob(dependency="afterok:105")))
    assert isinstance(cycle, m.Failure)


def test_a_dependency_on_a_task_of_the_array_that_waits_is_a_circle(desk: Desk) -> None:
    first = submit(desk)
    assert first == m.Submitted(job=1)
    submit(desk, "0-3", dependency="afterok:1")
    told = ask(desk, m.ChangeJobs.one(1, m.UpdateJob(dependency="afterok:2_3")))
    assert isinstance(told, m.Failure)
    assert told.message == "job 1 would wait for itself: 1 -> 2 -> 1"


def test_the_sets_of_an_array_do_not_grow_without_bound(running: Desk) -> None:
    submit(running, "0-99999")
    tasks = ",".join(str(index) for index in range(1, 20_001, 2))
    answer = ask(running, m.ChangeJobs.one(102, m.CancelJob(), tasks))
    assert isinstance(answer, m.Failure)
    assert "name whole ranges of tasks" in answer.message
    assert ask(running, m.ChangeJobs.one(102, m.CancelJob(), "1-99999")) == m.Done()


def test_a_replay_of_what_was_done_with_tasks_decides_the_same(
    running: Desk, tmp_path: Path
) -> None:
    for message in (
        m.ChangeJobs.one(1, m.HoldJob(), "10-19"),
        m.ChangeJobs.one(1, m.CancelJob(), "15-80"),
        m.ChangeJobs.one(12, m.ReleaseJob()),
        m.ChangeJobs.one(92, m.UpdateJob(name="own")),
    ):
        assert ask(running, message) == m.Done()
    submit(running, dependency="afterany:1_70,afterok:1_85")
    again = restarted(running, tmp_path)
    again.hello([m.GroupStatus(job=n, group=1, alive=False) for n in (2, 3, 4, 5)])
    again.turn()
    again.components.journal.close()
    with reading(tmp_path) as journal:
        compared = compare(journal.batches())
    assert compared.difference is None
    assert compared.decisions > 20
