"""Records of jobs: what a restored performance history knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from reshape.topology import SizeBounds, Topology
from reshape.wire.messages import ResizeTimes
from scheduler.model.arrays import TasksToCome
from scheduler.model.events import JobSpec
from scheduler.model.history import Failures, History, Moves, Timing
from scheduler.model.job import Job, JobState
from scheduler.model.orders import Reason, Resize
from scheduler.model.procset import ProcSet
from scheduler.model.requests import Conditions, SentSignal
from scheduler.state.records import JobRecord, copied, decode_job, encode_job

#: A record without a default.
EVERYTHING = JobRecord(
    id=3,
    spec=JobSpec(2, 100.0, max_processors=8),
    state=JobState.EXPANDING,
    submitted_at=1.0,
    queued_at=2.0,
    estimate_s=90.0,
    processors=1,
    topology=Topology("arbitrary"),
    groups={1: ProcSet.parse("0"), 2: ProcSet.parse("1")},
    started_at=3.0,
    ended_at=9.0,
    size=1,
    resize=Resize(3, 4.0, 1, 2, Reason("rule", "why")),
    resizes=3,
    first_group=2,
    next_group=3,
    restarts=1,
    first_estimate_s=80.0,
    misses=1,
    backfilled=True,
    sizes=((3.0, 1),),
    committed=1,
    paused_s=0.5,
    most_moved_bytes=9,
    cause=JobState.CANCELLED,
    why="cancelled",
    exit_code=1,
    signal=9,
    redirected_at=2.5,
    requeues=1,
    stalled=1,
    checkpoint=5,
    requeued_why="requeued",
    failed_starts=1,
    bounds=SizeBounds(1, 2),
    progress=(4.0, 10, 0.5),
    partition="batch",
    conditions=Conditions("user"),
    requeue_asked=True,
    tasks_queued=2,
    tasks_failed=1,
    to_come=TasksToCome(held=ProcSet.parse("1")),
    sent=SentSignal(1, 10, (1,)),
    warned=True,
    is_lent=True,
    minimum=1,
    walltime_s=120.0,
    left=(3.0, 70.0, 80.0),
    history=History(),
)
#: What a start sets, and a job that is queued again has not any more.
OF_A_START = {
    *("state", "processors", "requeue_asked", "first_group", "sizes", "started_at", "cause"),
    *(
        "history",
        "size",
        "restarts",
        "misses",
        "exit_code",
        "signal",
        "estimate_s",
        "why",
        "walltime_s",
    ),
    *("first_estimate_s", "topology", "backfilled", "bounds", "progress", "warned"),
}
#: What a history computes again when it is asked.
COMPUTED = {
    "_predicted_s",
    "lasting",
    "_potential",
    "_potential_window",
    "retry_at",
    "typical_s",
    "measured",
}


def attributes(part: object) -> Iterator[tuple[str, Any]]:
    """Attributes of a history and its parts, by path; also those that no table names."""
    for name in sorted(set(dir(part)) - COMPUTED):
        value = getattr(part, name)
        if name.startswith("__") or callable(value):
            continue
        if name == "_timings":
            for size, timing in value.items():
                yield from ((f"{name}.{size}.{path}", v) for path, v in attributes(timing))
        elif isinstance(value, History | Moves | Failures | Timing):
            yield from ((f"{name}.{path}", v) for path, v in attributes(value))
        else:
            yield name, value


@pytest.fixture
def job() -> Job:
    """A resizable job that has something in each attribute of its history."""
    job = Job(3, JobSpec(2, 100.0, max_processors=8, performance="amdahl:serial=0.1"), 1.0)
    history = job.history
    history.configured(2, 1.0)
    for at, iteration_s in enumerate((5.0, 4.0, 4.5), 2):
        history.record(iteration_s, at)
    history.failed(4, 5.0, "no node")
    history.configured(4, 9.0)
    history.record(2.5, 10.0)
    history.failed(8, 11.0, "no port")
    history.failed(2, 12.0, "the group died")
    history.failed_expansions.given_up = history.failed_contractions.given_up = True
    history.found_sweet_spot(4, 12.0, retry=True)
    history.data_bytes = 800
    history.moves.add(ResizeTimes(join_s=0.5, move_s=2.0), 800)
    return job


def test_a_restored_history_is_the_recorded_one(job: Job) -> None:
    expected = dict(attributes(job.history))
    untouched = dict(attributes(History()))
    assert [name for name, value in expected.items() if value == untouched.get(name)] == []
    assert dict(attributes(decode_job(encode_job(job)).history)) == expected
    job.history.predict_s(3)
    job.history.expand_potential(1)
    restored = decode_job(encode_job(job)).history
    assert dict(attributes(restored)) == expected, "what it has computed is no part of it"
    assert restored.predict_s(3) == job.history.predict_s(3)
    assert restored.expand_potential(1) == job.history.expand_potential(1)


@pytest.mark.parametrize(
    "damaged",
    [[1, 2], {"moves": 7}, {"_timings": [1]}, {"_timings": {2: [3]}}],
    ids=repr,
)
def test_a_damaged_history_is_refused(job: Job, damaged: object) -> None:
    record = msgspec.msgpack.decode(encode_job(job))
    whole = record["history"]
    record["history"] = whole | damaged if isinstance(damaged, dict) else damaged
    with pytest.raises(msgspec.DecodeError, match="mapping"):
        decode_job(msgspec.msgpack.encode(record, enc_hook=str))
    del whole["points"]
    record["history"] = whole
    with pytest.raises(msgspec.DecodeError, match="a History has no points"):
        decode_job(msgspec.msgpack.encode(record, enc_hook=str))


def test_a_copy_of_a_history_changes_alone(job: Job) -> None:
    expected = dict(attributes(job.history))
    copy = copied(job).history
    assert dict(attributes(copy)) == expected
    copy.record(1.0, 20.0)
    copy.failed(8, 21.0, "again")
    copy.moves.add(ResizeTimes(join_s=9.0), 1)
    copy.configured(2, 22.0)
    assert dict(attributes(job.history)) == expected


def changed(job: Job) -> set[str]:
    """Names of the recorded attributes that are not those of `EVERYTHING` any more."""
    now, names = JobRecord.of(job), JobRecord.__struct_fields__
    return {name for name in names if getattr(now, name) != getattr(EVERYTHING, name)}


def settable(job: Job) -> set[str]:
    """Names of the attributes of a job; a compiled class has neither `__dict__` nor properties."""
    names = set()
    for name in dir(job):
        with suppress(AttributeError, LookupError):  # of a method or property
            if not name.startswith("__") and not callable(value := getattr(job, name)):
                setattr(job, name, value)
                names.add(name)
    return names


def test_a_record_has_every_attribute_of_a_job() -> None:
    computed = {
        "demand",
        "queue_position",
        "resizable",
        "is_plain",
        "_limits",
        "_smaller",
        "_sums",
        "shown",
    }
    names = {name.replace("recorded_history", "history") for name in settable(EVERYTHING.job())}
    fields = set(JobRecord.__struct_fields__) - {"earlier_sizes"}
    assert names - computed == fields
    plain = JobRecord.of(Job(1, JobSpec(4, 1.0), 0.0))
    assert [name for name in fields if getattr(plain, name) == getattr(EVERYTHING, name)] == []


@pytest.mark.parametrize("state", JobState)
def test_a_copy_and_a_restored_job_lose_nothing(state: JobState) -> None:
    job = msgspec.structs.replace(EVERYTHING, state=state).job()
    assert changed(job) <= {"state"}
    assert encode_job(copied(job)) == encode_job(job)
    assert encode_job(decode_job(encode_job(job))) == encode_job(job)


def test_a_job_that_is_queued_again_loses_what_its_start_set_alone() -> None:
    job = EVERYTHING.job()
    job.requeue(20.0, "again")
    assert changed(job) == OF_A_START | {"requeues", "requeued_why", "minimum"}
    job = EVERYTHING.job()
    job.redirect(20.0, "other")
    assert changed(job) == OF_A_START | {"redirected_at", "queued_at", "partition", "minimum"}


def test_another_request_changes_what_follows_from_it_alone() -> None:
    job = EVERYTHING.job()
    job.change_limits(JobSpec(2, 50.0))
    assert changed(job) == {"spec", "walltime_s", "left"}
    job = msgspec.structs.replace(EVERYTHING, state=JobState.PENDING, started_at=None).job()
    job.change_request(JobSpec(3, 50.0, topology=Topology("power-of-2"), partition="short"))
    of_queued = {"processors", "minimum", "topology", "estimate_s", "first_estimate_s"}
    of_queued |= {"walltime_s", "partition", "conditions"}
    assert changed(job) == {"spec", "state", "started_at"} | of_queued
