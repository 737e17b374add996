"""Job arrays in a service without processes: numbers, records, restarts, commands."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from desk import OWNER, Desk

from scheduler.model.job import JobState
from scheduler.protocol import messages as m


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
    desk.hello()
    starts = started(desk)
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
        assert start.output == f"1-{index}.out"
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
    assert ask(desk, m.HoldJob(job=1, hold=True)) == m.Done()
    desk.hello()
    assert {code for _, code in labels(desk).values()} == {"PD"}
    assert ask(desk, m.HoldJob(job=1, hold=False)) == m.Done()
    jobs = desk.components.core.jobs
    assert [jobs[n].state for n in (2, 3, 4, 5)] == [JobState.STARTING] * 4
    assert ask(desk, m.Cancel(job=6)) == m.Done()
    assert labels(desk)[1] == ("1_[6-9]", "PD"), "the next one takes its place"
    answer = ask(desk, m.UpdateJob(job=1, changes=m.RequestChanges(name="x")))
    assert answer == m.Failure(message="tasks of array 1 have begun: change each of them by itself")
    assert ask(desk, m.Cancel(job=1)) == m.Done()
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
    changes = m.RequestChanges(walltime_s=50.0, name="longer")
    assert ask(desk, m.UpdateJob(job=2, changes=changes)) == m.Done()
    assert labels(desk)[2] == ("1_0", "CF" if state == "running" else "PD")
    desk = restarted(desk, tmp_path)
    desk.hello()
    desk.hello([m.GroupStatus(job=2, group=1, alive=False)])
    assert labels(desk) == {1: ("", "PD"), 3: ("1_1", "CF")}
    desk.hello([m.GroupStatus(job=3, group=1, alive=False)])
    ended = ask(desk, m.ListJobs(job=1))
    assert isinstance(ended, m.JobListing)
    assert ended.jobs[0].state == "COMPLETED"
