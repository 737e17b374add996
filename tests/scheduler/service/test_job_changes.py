"""Holds, updates and dependencies in a service without processes: checks, records, restarts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from desk import OWNER, Desk
from example_counts import examples
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from reshape.topology import Topology
from reshape.wire.codec import encode
from scheduler.config.partitions import PartitionConfig
from scheduler.config.settings import NodeConfig, QueueConfig
from scheduler.model.arrays import StepOf, TaskArray, TaskOf
from scheduler.model.events import JobSpec
from scheduler.model.job import JobState
from scheduler.model.requests import Conditions, Dependency, EndSignal, NodeRequest, Term
from scheduler.protocol import messages as m
from scheduler.protocol.job_requests import LONGEST_WALLTIME_S
from scheduler.service.permissions import Sender
from scheduler.text.formats import format_moment

ANN = Sender("ann", frozenset(("user",)), is_remote=True)
SOLVE = m.Submission(argv=["solve"], processors=1, walltime_s=60.0)
FULL = m.Submission(argv=["solve"], processors=4, walltime_s=60.0)


def ask(desk: Desk, message: m.Message, sender: Sender = OWNER) -> m.Message:
    (answer,) = desk.ask(b"client", message, sender)
    return answer


def submit(desk: Desk, sender: Sender = OWNER, base: m.Submission = SOLVE, **more: object) -> int:
    fields = {name: getattr(base, name) for name in base.__struct_fields__} | more
    answer = ask(desk, m.Submit(submission=m.Submission(**fields)), sender)
    assert isinstance(answer, m.Submitted), answer
    return answer.job


def refusal(desk: Desk, message: m.Message, sender: Sender = OWNER) -> str:
    desk.turn()
    before = desk.components.core.record(), dict(desk.components.core.jobs)
    answer = ask(desk, message, sender)
    assert isinstance(answer, m.Failure), answer
    assert (desk.components.core.record(), dict(desk.components.core.jobs)) == before
    return answer.message


def info(desk: Desk, job: int) -> m.JobInfo:
    answer = ask(desk, m.ListJobs(job=job))
    assert isinstance(answer, m.JobListing)
    return answer.jobs[0]


def update(job: int, **changes: object) -> m.ChangeJobs:
    return m.ChangeJobs.one(job, m.UpdateJob(**changes))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "service"


@pytest.fixture
def desk(folder: Path) -> Desk:
    return Desk(folder, queues={"main": QueueConfig(), "short": QueueConfig(max_walltime_s=120)})


def restarted(desk: Desk, folder: Path) -> Desk:
    desk.turn()
    desk.components.journal.commit()
    desk.components.journal.close()
    return Desk(folder, queues={"main": QueueConfig(), "short": QueueConfig(max_walltime_s=120)})


def test_conditions_survive_a_restart(desk: Desk, folder: Path) -> None:
    """What has ended before the restart counts after it, although its records are ended ones."""
    first, second = submit(desk), submit(desk, hold=True)
    both = submit(desk, dependency=f"afterany:{first}:{second}")
    early = submit(desk, begin=4e9)
    ask(desk, m.ChangeJobs.one(first, m.CancelJob()))
    again = restarted(desk, folder)
    assert again.components.core.jobs.keys() == {second, both, early}
    assert "JobHeldUser" in info(again, second).reason
    assert f"waits for job {second} to end" in info(again, both).reason
    assert "it begins at 2096-10-02" in info(again, early).reason
    ask(again, m.ChangeJobs.one(second, m.CancelJob()))
    assert "Dependency" not in info(again, both).reason
    later = submit(again, dependency=f"afterok:{first}", kill_on_invalid=True)
    assert info(again, later).state == "CANCELLED"
    assert "DependencyNeverSatisfied" in info(again, submit(again, dependency="afterok:1")).reason


def test_submissions_of_one_turn_may_name_each_other(desk: Desk) -> None:
    for job in (1, 2):
        more = {"dependency": "afterok:1"} if job == 2 else {}
        message = m.Submit(
            submission=m.Submission(argv=["solve"], processors=1, walltime_s=60.0, **more)  # type: ignore[arg-type]
        )
        desk.handler.handle(b"client", encode(message), OWNER)
    desk.turn()
    assert "waits for job 1 to complete" in info(desk, 2).reason


@pytest.mark.parametrize(
    ("dependency", "why"),
    [
        ("afterok:7", "--dependency afterok:7: there is no job 7"),
        ("afterok:x", "'x' in 'afterok:x' is not the number of a job"),
        ("afterok", "afterok needs the number of a job"),
        ("later:1", "'later:1' is no dependency"),
        ("afterok:1,afterok:1?afterok:1", "has both , (all) and ? (any)"),
        ("singleton:1", "singleton has no job numbers"),
    ],
)
def test_a_dependency_that_is_invalid_is_refused(desk: Desk, dependency: str, why: str) -> None:
    submit(desk)
    message = m.Submit(
        submission=m.Submission(
            argv=["solve"], processors=1, walltime_s=60.0, dependency=dependency
        )
    )
    assert why in refusal(desk, message)
    assert why in refusal(desk, update(1, dependency=dependency))


def test_a_job_cannot_wait_for_itself(desk: Desk) -> None:
    for dependency in ("", "afterok:1", "after:2", "afterok:1,afternotok:3"):
        submit(desk, dependency=dependency)
    assert "job 1 would wait for itself: 1 -> 1" in refusal(desk, update(1, dependency="after:1"))
    why = refusal(desk, update(1, dependency="afterany:4"))
    assert why in (
        "job 1 would wait for itself: 1 -> 4 -> 1",
        "job 1 would wait for itself: 1 -> 4 -> 3 -> 2 -> 1",
    )
    assert ask(desk, update(4, dependency="")) == m.Done()
    assert ask(desk, update(1, dependency="afterany:4")) == m.Done()


def test_a_job_that_is_named_often_is_changed_once(desk: Desk) -> None:
    job, other = submit(desk), submit(desk)
    names = [m.JobTasks(number) for number in [job, other] * 500]
    assert isinstance(ask(desk, m.ChangeJobs(jobs=names, change=m.HoldJob())), m.Done)
    held = desk.components.journal.rows("SELECT job FROM events WHERE kind='HoldChanged'")
    assert [number for (number,) in held] == [job, other]
    many = m.ChangeJobs(jobs=[m.JobTasks(job)] * 100_001, change=m.CancelJob())
    assert "Expected `array` of length <= 100000 - at `$.jobs`" in refusal(desk, many)


def test_tasks_that_are_named_one_by_one_are_changed_together(desk: Desk) -> None:
    array, job = submit(desk, array="0-9999"), submit(desk)
    names = [m.JobTasks(array, str(2 * n)) for n in range(2500, 4000)]
    names[700:700] = [m.JobTasks(job), m.JobTasks(array, "20000")]
    answer = ask(desk, m.ChangeJobs(jobs=names, change=m.CancelJob()))
    assert isinstance(answer, m.UnchangedJobs)
    assert [place for place, _ in answer.refused] == [701]
    assert info(desk, job).state == "CANCELLED"
    left = info(desk, array).pending_tasks  # task 0 has come to the queue
    assert (left[:17], left[-20:]) == ("1-4999,5001,5003,", ",7995,7997,7999-9999")
    events = desk.components.journal.rows("SELECT job FROM events WHERE kind='JobCancelled'")
    assert [number for (number,) in events] == [job, array]


def test_a_long_chain_of_jobs_is_named_in_part(desk: Desk) -> None:
    first = submit(desk, hold=True)
    for number in range(first, first + 40):
        submit(desk, dependency=f"afterok:{number}")
    text = refusal(desk, update(first, dependency=f"afterok:{first + 40}"))
    assert text.startswith("job 1 would wait for itself: 1 -> 41 -> 40 -> ")
    assert text.endswith(" -> 34 -> 33 -> ... -> 10 -> 9 -> 8 -> 7 -> 6 -> 5 -> 4 -> 3 -> 2 -> 1")


def test_only_administrators_release_what_they_have_held(desk: Desk) -> None:
    job = submit(desk, ANN)
    assert ask(desk, m.ChangeJobs.one(job, m.HoldJob()), ANN) == m.Done()
    assert "JobHeldUser" in info(desk, job).reason
    assert ask(desk, m.ChangeJobs.one(job, m.HoldJob())) == m.Done()
    assert "JobHeldAdmin" in info(desk, job).reason
    assert ask(desk, m.ChangeJobs.one(job, m.HoldJob()), ANN) == m.Done(), "and does not replace it"
    assert "only an administrator" in refusal(desk, m.ChangeJobs.one(job, m.ReleaseJob()), ANN)
    assert ask(desk, m.ChangeJobs.one(job, m.ReleaseJob())) == m.Done()
    assert "is not held" in refusal(desk, m.ChangeJobs.one(job, m.ReleaseJob()))
    other = submit(desk)
    assert "belongs to user root" in refusal(desk, m.ChangeJobs.one(other, m.HoldJob()), ANN)


def test_an_update_of_a_queued_job_is_checked_like_a_submission(desk: Desk, folder: Path) -> None:
    job = submit(desk, name="first", hold=True)
    for changes, why in (
        ({}, "nothing is to be changed"),
        ({"walltime_s": 0.0}, "must be above 0"),
        ({"walltime_s": LONGEST_WALLTIME_S}, "has to have an end"),
        ({"queue": "shrot"}, "there is no queue 'shrot'"),
        ({"queue": "short", "walltime_s": 600.0}, "walltimes of 00:02:00 at most"),
        ({"max_processors": 2, "processors": 3}, "--max 2 is below the 3"),
        ({"min_processors": 4, "processors": 3}, "--min 4 is above the 3"),
        ({"partition": "batch"}, "there is no partition 'batch'"),
        ({"name": "a" * 300}, "name"),
    ):
        assert why in refusal(desk, update(job, **changes))
    changes = {"walltime_s": 100.0, "queue": "short", "processors": 2, "priority": 5.0}
    changes |= {"name": "second", "min_processors": 1, "max_processors": 4}
    assert ask(desk, update(job, **changes)) == m.Done()
    for is_again in (False, True):
        desk = restarted(desk, folder) if is_again else desk
        new = info(desk, job)
        assert (new.name, new.requested) == ("second", 2)
        assert (new.min_processors, new.max_processors) == (1, 4)
        assert (new.walltime_s, new.queue, new.priority) == (100, "short", 5)
        assert "JobHeldUser" in new.reason, "an update releases nothing"
    assert ask(desk, update(job, walltime_s=LONGEST_WALLTIME_S)) == m.Done()
    assert info(desk, job).walltime_s == 120, "the longest of its queue"
    assert ask(desk, update(job, min_processors=2)) == m.Done()
    assert info(desk, job).min_processors is None, "as many as it requests"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"processors": 2}, "its processors can be changed only while it is queued"),
        ({"queue": "short"}, "its queue can be changed only while it is queued"),
        ({"dependency": "singleton"}, "its dependency can be changed only while it is queued"),
        ({"min_processors": 1}, "its minimum can be changed only while it is queued"),
        ({"max_processors": 4}, "cannot become resizable"),
        ({"walltime_s": 61.0}, "only an administrator can raise its walltime"),
        ({"walltime_s": LONGEST_WALLTIME_S}, "only an administrator can raise its walltime"),
    ],
)
def test_what_cannot_be_changed_of_a_running_job(
    desk: Desk, changes: dict[str, object], why: str
) -> None:
    desk.hello()
    job = submit(desk, ANN)
    assert desk.components.core.jobs[job].state is JobState.STARTING
    assert why in refusal(desk, update(job, **changes), ANN)


def test_limits_of_a_running_job(desk: Desk) -> None:
    desk.hello()
    job = submit(desk, ANN, max_processors=4)
    assert ask(desk, update(job, walltime_s=30.0, name="short"), ANN) == m.Done()
    assert ask(desk, update(job, walltime_s=90.0, max_processors=2)) == m.Done()
    now = desk.components.core.jobs[job]
    assert (now.walltime_s, now.spec.max_processors, now.spec.name) == (90, 2, "short")
    assert now.estimated_end - (now.started_at or 0) == 90


def test_the_limit_of_a_job_that_started_on_fewer_processors(desk: Desk) -> None:
    """It is prolonged as long as the job has them, and so is another one."""
    desk.hello()
    submit(desk, processors=2)
    job = submit(desk, ANN, processors=4, min_processors=1)
    now = info(desk, job)
    assert (now.size, now.requested, now.walltime_s) == (2, 4, 120)
    assert ask(desk, update(job, walltime_s=30.0), ANN) == m.Done()
    assert info(desk, job).walltime_s == 60
    assert ask(desk, update(job, walltime_s=90.0)) == m.Done()
    assert info(desk, job).walltime_s == 180
    explained = ask(desk, m.Explain(job=job))
    assert isinstance(explained, m.Explanation)
    assert explained.lines[0].text == "submitted for 1 to 4 processors, preferably 4, 60 s"


def test_a_running_job_with_a_minimum_gets_another_maximum(desk: Desk) -> None:
    """It remains resizable, whatever its maximum is."""
    desk.hello()
    job = submit(desk, ANN, processors=2, min_processors=1)
    for most in (4, 2):
        assert ask(desk, update(job, max_processors=most), ANN) == m.Done()
        assert desk.components.core.jobs[job].spec.largest == most
    assert desk.components.core.jobs[job].resizable


@pytest.mark.parametrize(
    "change",
    [
        lambda job: m.ChangeJobs.one(job, m.HoldJob()),
        lambda job: m.ChangeJobs.one(job, m.RequeueJob()),
        lambda job: update(job, name="x"),
    ],
    ids=["hold", "requeue", "update"],
)
def test_an_ended_job_is_not_changed(desk: Desk, change: Callable[[int], m.Message]) -> None:
    job = submit(desk)
    ask(desk, m.ChangeJobs.one(job, m.CancelJob()))
    assert f"job {job} has ended already" in refusal(desk, change(job))
    assert "there is no job 9" in refusal(desk, change(9))


def test_what_does_not_run_is_not_requeued_and_what_runs_is_not_held(desk: Desk) -> None:
    assert "only a running job is requeued" in refusal(
        desk, m.ChangeJobs.one(submit(desk), m.RequeueJob())
    )
    desk.hello()
    assert "only queued jobs are held" in refusal(desk, m.ChangeJobs.one(1, m.HoldJob()))
    assert ask(desk, m.ChangeJobs.one(1, m.RequeueJob())) == m.Done()
    assert desk.components.core.jobs[1].requeue_asked


def test_a_job_that_is_queued_again_shows_why_it_waits_and_no_node(desk: Desk) -> None:
    submit(desk)
    desk.hello([])
    assert ask(desk, m.ChangeMachine(change=m.DrainNode("local", "a new disk"))) == m.Done()
    assert ask(desk, m.ChangeJobs.one(1, m.RequeueJob())) == m.Done()
    desk.hello([m.GroupStatus(job=1, group=1, alive=False, signal=15)])
    answer = ask(desk, m.ListJobs(job=1))
    assert isinstance(answer, m.JobListing)
    [job] = answer.jobs
    assert (job.state, job.nodes) == ("PENDING", "")
    assert "local drains (a new disk)" in job.reason


def test_the_explanation_says_what_a_job_waited_for(desk: Desk) -> None:
    first = submit(desk)
    job = submit(desk, dependency=f"afterany:{first}", begin=4e9)
    ask(desk, m.ChangeJobs.one(first, m.CancelJob()))
    ask(desk, update(job, begin=1.0))
    answer = ask(desk, m.Explain(job=job))
    assert isinstance(answer, m.Explanation)
    texts = [line.text for line in answer.lines]
    assert texts[0].endswith(", not before 2096-10-02T07:06:40Z, dependency afterany:1")
    assert "is not eligible: it begins at 2096-10-02T07:06:40Z [BeginTime]" in texts
    assert texts[-1].startswith("waits: 1 processor wanted")


def test_a_signal_is_sent_until_the_agent_has_it(desk: Desk, folder: Path) -> None:
    """Also by a service that starts after the decision; what a group has had is not repeated."""

    def signals(desk: Desk, *groups: m.GroupStatus) -> list[m.Message]:
        desk.hello(groups)
        return [message for _, message in desk.sent if isinstance(message, m.SignalGroup)]

    desk.hello()
    desk.driver.tick(start_agents=False, heard_all=False)  # the first one wakes no job up
    job = submit(desk, signal="USR1@60", walltime_s=60.0)
    ask(desk, m.Explain(job=job))
    desk.driver.tick(start_agents=False, heard_all=False)  # all of the walltime is left
    desk.turn()
    status = m.GroupStatus(job=job, group=1, alive=True)
    expected = m.SignalGroup(job=job, group=1, serial=1, number=10)
    assert signals(desk, status) == [expected]
    again = restarted(desk, folder)
    assert signals(again, status) == [expected]
    assert signals(again, replace(status, signalled=1)) == []
    again.driver.tick(start_agents=False, heard_all=False)
    assert again.components.core.jobs[job].warned
    ask(again, m.ChangeJobs.one(job, m.SignalJob(number=12)))
    sent = [message for _, message in again.sent if isinstance(message, m.SignalGroup)]
    assert sent == [replace(expected, serial=2, number=12)]
    told = ask(again, m.Explain(job=job))
    assert isinstance(told, m.Explanation)
    told = [line.text for line in told.lines if "signal" in line.text]
    assert "its processes get the signal USR2: sent by its user [signal]" in told[1]


def test_signals_that_are_refused(desk: Desk) -> None:
    job = submit(desk)
    assert "is PENDING: only running jobs get a signal" in refusal(
        desk, m.ChangeJobs.one(job, m.SignalJob(number=10))
    )
    desk.hello()
    assert "'99' is no signal" in refusal(desk, m.ChangeJobs.one(job, m.SignalJob(number=99)))
    signal = m.ChangeJobs.one(job, m.SignalJob(number=10, to_script=True))
    assert f"job {job} has no script" in refusal(desk, signal)
    denied = refusal(desk, m.ChangeJobs.one(job, m.SignalJob(number=10)), ANN)
    assert "belongs to" in denied or "may not" in denied
    wrong = m.Submission(argv=["solve"], processors=1, walltime_s=60.0, signal="B:USR1")
    assert "B: is for a job script" in refusal(desk, m.Submit(submission=wrong))


def test_the_hook_of_a_job_runs_before_its_remains_are_removed(desk: Desk, folder: Path) -> None:
    """A service that starts after the end lets it run, too, as long as the agent knows the job."""

    def hooks(desk: Desk) -> list[m.RunHook]:
        sent = [message for _, message in desk.sent if isinstance(message, m.RunHook | m.SweepJob)]
        assert [type(message) for message in sent[1:]] == [m.SweepJob] * len(sent[1:])
        return [message for message in sent if isinstance(message, m.RunHook)]

    desk.hello()
    environment = {"PATH": "/bin"}
    more = {"hook_end": "notify", "output": "o-%N-%j", "name": "lu", "environment": environment}
    job = submit(desk, **more)
    end = m.GroupStatus(job=job, group=1, alive=False, exit_code=3)
    desk.hello([end])
    (hook,) = hooks(desk)
    assert (hook.command, hook.environment) == (
        "notify",
        {
            **environment,
            **{"RESHAPE_JOB": "1", "RESHAPE_JOB_NAME": "lu", "RESHAPE_JOB_STATE": "FAILED"},
            **{"RESHAPE_EXIT_CODE": "3", "RESHAPE_EXIT_SIGNAL": "0"},
        },
    )
    assert "%" not in hook.bounds.output
    desk.hello([end])
    assert hooks(desk) == [], "it is under way"
    again = restarted(desk, folder)
    again.hello([end])
    (hook,) = hooks(again)
    assert hook.environment["RESHAPE_EXIT_CODE"] == "3"
    assert "PATH" not in hook.environment, "the journal does not keep it"
    again.hello()
    assert (
        ask(again, m.ChangeJobs.one(submit(again, hold=True, hook_end="x"), m.CancelJob()))
        == m.Done()
    )
    assert hooks(again) == [], "it has never started"


def test_a_job_that_has_ended_is_submitted_anew(desk: Desk) -> None:
    """Its record is complete and has no environment; the error names the command."""
    size = {"processors": 2, "min_processors": 1, "max_processors": 3}
    job = submit(desk, argv=["solve", "a b"], hold=True, cwd="/tmp", **size)
    script = submit(desk, hold=True, script=True, text="#!/bin/sh\n", argv=["job.sh", "a b"])
    wrapped = submit(desk, hold=True, script=True, argv=["/bin/sh", "-c", "ls *", "wrap"])
    ask(desk, m.ChangeJobs.one(job, m.CancelJob()))
    ask(desk, m.ChangeJobs.one(script, m.CancelJob()))
    ask(desk, m.ChangeJobs.one(wrapped, m.CancelJob()))
    command = "reshape submit -n 2 --min 1 --max 3 --walltime 60s --chdir /tmp -- solve 'a b'"
    told = refusal(desk, m.ChangeJobs.one(job, m.RequeueJob()))
    assert told.startswith(f"job {job} has ended already (CANCELLED)")
    assert told.endswith(f"submit it anew, as by {command}")
    command = "reshape batch -n 1 --walltime 60s --chdir ."
    assert refusal(desk, m.ChangeJobs.one(script, m.RequeueJob())).endswith(
        f"{command} -- job.sh 'a b'"
    )
    assert refusal(desk, m.ChangeJobs.one(wrapped, m.RequeueJob())).endswith(
        f"{command} --wrap 'ls *'"
    )


#: A request without a default.
EVERYTHING = JobSpec(
    processors=2,
    walltime_s=50.0,
    max_processors=3,
    topology=Topology("arbitrary"),
    name="first",
    user="ann",
    queue="short",
    priority=7.0,
    resources={"gpus": 1},
    shared={"network": 3},
    group="physics",
    executable="solve",
    memory_kib=9,
    requeue=True,
    performance="amdahl,0.5",
    reservation="night",
    partition="batch",
    conditions=Conditions("user", 4e9, Dependency((Term("afterany", 1),)), kill_on_invalid=True),
    array=TaskArray.parse("0-4"),
    task_of=TaskOf(90, 4),
    nodes=NodeRequest((("fast",),)),
    end_signal=EndSignal(10, 30),
    step_of=StepOf(1, 0),
    min_processors=1,
)
#: Fields of a request that follow from a part of a submission.
OF_PART = {
    "walltime_s": {"walltime_s"},
    "processors": {"processors", "max_processors", "min_processors"},
    "max_processors": {"max_processors"},
    "min_processors": {"min_processors"},
    "priority": {"priority"},
    "name": {"name"},
    "queue": {"queue", "priority"},
    "partition": {"partition", "processors", "max_processors", "nodes"},
    "dependency": {"conditions"},
    "begin": {"conditions"},
}
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "walltime_s": st.sampled_from([20.0, 40.0]),
        "processors": st.sampled_from([1, 2]),
        "max_processors": st.sampled_from([3, 4]),
        "min_processors": st.sampled_from([1, 2]),
        "priority": st.sampled_from([1.0, 2.0]),
        "name": st.sampled_from(["second", "third"]),
        "queue": st.sampled_from(["main", "short"]),
        "partition": st.sampled_from(["batch", "other"]),
        "dependency": st.sampled_from(["", "afterany:1", "after:1"]),
        "begin": st.sampled_from([1.0, 4e9, 4.1e9]),
    },
)
ACTIONS = st.one_of(CHANGES.filter(bool), st.sampled_from(["hold", "release"]))


def desk_of_partitions(folder: str) -> Desk:
    nodes = NodeConfig("a", 4), NodeConfig("b", 4)
    parts = {"batch": PartitionConfig(nodes=["a"]), "other": PartitionConfig(nodes=["b"])}
    queues = {"main": QueueConfig(), "short": QueueConfig(priority=3)}
    return Desk(Path(folder), nodes, partitions=parts, queues=queues)


def entered(desk: Desk, spec: JobSpec) -> int:
    """Enter a job with any request; its submission agrees with that where it is to change."""
    submission = m.Submission(
        **{name: f"the {name}" for name in ("argv", "cwd", "output", "error", "key", "hook_end")},
        **{"processors": 2, "min_processors": 1, "max_processors": 3, "walltime_s": 50.0},
        kill_on_invalid=True,
        **{"name": "first", "user": "ann", "queue": "short", "environment": {"X": "1"}},
    )
    submission.argv = ["solve"]
    event = desk.components.applications.add(submission, spec)
    desk.driver.decide([event])
    return event.job


def act(desk: Desk, job: int, action: str | dict[str, Any]) -> bool:
    """Carry out an action; return whether the service accepted it."""
    hold = action == "hold"
    message = (
        m.ChangeJobs.one(job, m.HoldJob() if hold else m.ReleaseJob())
        if isinstance(action, str)
        else update(job, **action)
    )
    answer = ask(desk, message)
    assert isinstance(answer, m.Done | m.Failure)
    return isinstance(answer, m.Done)


def test_the_request_of_these_tests_has_no_default() -> None:
    plain = asdict(JobSpec(1, 1.0))
    assert not [name for name, value in asdict(EVERYTHING).items() if value == plain[name]]


@pytest.mark.parametrize("lost", ["array", "task_of"])
@given(st.lists(ACTIONS, max_size=4))
@example([{"walltime_s": 20.0}])
@example([{"begin": 1.0, "dependency": ""}, "release", {"dependency": "after:1"}])
@examples(60, deadline=None)
def test_no_change_of_a_queued_job_loses_a_part_of_its_request(
    lost: str, actions: list[str | dict[str, Any]]
) -> None:
    """A job is an array or a task, and no step; all else of its request has no default."""
    with TemporaryDirectory() as folder:
        desk = desk_of_partitions(folder)
        submit(desk, hold=True)
        job = entered(desk, replace(EVERYTHING, step_of=None, **{lost: None}))
        jobs, applications = desk.components.core.jobs, desk.components.applications
        for action in actions:
            before, submission = asdict(jobs[job].spec), asdict(applications.submission_of(job))
            changes = action if isinstance(action, dict) and act(desk, job, action) else {}
            if not isinstance(action, dict):
                act(desk, job, action)
            after, may_change = jobs[job].spec, {name for part in changes for name in OF_PART[part]}
            if changes:  # the conditions of a request are those that are left
                assert after.conditions == jobs[job].conditions
                may_change |= {"conditions"}
            kept = {name: value for name, value in before.items() if name not in may_change}
            assert {name: getattr(after, name) for name in kept} == kept
            assert asdict(applications.submission_of(job)) == submission | changes
            for part in changes.keys() - {"priority", "dependency", "begin"}:
                is_none = part == "min_processors" and changes[part] == after.processors
                assert getattr(after, part) == (None if is_none else changes[part])
            if after.conditions is not None:
                assert after.conditions.kill_on_invalid
        desk.components.journal.close()


def test_a_redirected_job_that_is_changed_waits_where_it_is(folder: Path) -> None:
    parameters = {"redirection.theta": 0, "redirection.processors": 2}
    desk = Desk(folder, scenario="easy", parameters=parameters)
    desk.hello()
    jobs = [submit(desk, processors=2) for _ in range(2)]
    for job in jobs:  # the first one starts again in the redirection group, and occupies it
        desk.hello([m.GroupStatus(job=job, group=1, alive=False, signal=15)])
        submit(desk, processors=2)
    redirected = desk.components.core.jobs[job]
    place = redirected.state, redirected.partition
    assert place == (JobState.PENDING, "redirection")
    assert ask(desk, update(job, name="other")) == m.Done()
    assert (redirected.state, redirected.partition) == place
    assert redirected.spec.name == "other"


def test_a_walltime_is_not_raised_into_a_reservation_of_others(desk: Desk) -> None:
    desk.hello()
    first, second = submit(desk, processors=2), submit(desk, processors=2)
    start = desk.components.clock.wall() + 300
    reserve = m.ChangeMachine(
        change=m.CreateReservation(name="night", start=start, duration_s=600, processors=2)
    )
    assert isinstance(ask(desk, reserve), m.Reservations)
    held = desk.components.core.jobs[first].groups[1]
    reserved = desk.components.core.exclusions["night"].processors
    inside, outside = (first, second) if held & reserved else (second, first)
    why = refusal(desk, update(inside, walltime_s=400.0))
    assert f"processors {reserved}, which it has to leave at {format_moment(start)}" in why
    assert "because of reservation night: raise its walltime to 00:05:00 at most, or cancel" in why
    assert ask(desk, update(inside, walltime_s=299.0, name="until night")) == m.Done()
    assert ask(desk, update(outside, walltime_s=4000.0)) == m.Done()
    ask(desk, m.ChangeMachine(change=m.CancelReservation("night")))
    assert ask(desk, update(inside, walltime_s=400.0)) == m.Done()


def test_a_walltime_is_not_raised_beyond_the_expiry_of_a_node(folder: Path) -> None:
    desk = Desk(folder, [NodeConfig("local", 4, until=time.time() + 300)])
    desk.hello()
    job = submit(desk)
    why = refusal(desk, update(job, walltime_s=400.0))
    assert "because of expiry of node local: raise its walltime to 00:04:" in why
    assert ask(desk, update(job, walltime_s=290.0)) == m.Done()


def test_a_running_job_of_a_reservation_is_changed_until_its_end(desk: Desk) -> None:
    """Neither its length nor its end concerns the job, which is there already."""
    desk.hello()
    reserve = m.CreateReservation(name="night", start=None, duration_s=7200, processors=2)
    ask(desk, m.ChangeMachine(change=reserve))
    job = submit(desk, reservation="night")
    assert desk.components.core.jobs[job].state is JobState.STARTING
    assert ask(desk, update(job, walltime_s=7201.0)) == m.Done()
    ask(desk, m.ChangeMachine(change=m.CancelReservation("night")))
    assert ask(desk, update(job, name="other")) == m.Done()
    assert desk.components.core.jobs[job].spec.reservation == "night"
