"""Records of jobs: what a restored performance history knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from reshape.wire.messages import ResizeTimes
from scheduler.model.events import JobSpec
from scheduler.model.history import Failures, History, Moves, Timing
from scheduler.model.job import Job
from scheduler.state.records import copied, decode_job, encode_job

#: What a history computes again when it is asked.
COMPUTED = {"_predicted_s", "_potential", "_potential_window", "retry_at", "typical_s", "measured"}


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
    history.sweet_spot, history.data_bytes = 4, 800
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
    record["history"] = damaged
    with pytest.raises(msgspec.DecodeError, match="mapping"):
        decode_job(msgspec.msgpack.encode(record))


def test_a_copy_of_a_history_changes_alone(job: Job) -> None:
    expected = dict(attributes(job.history))
    copy = copied(job.history)
    assert dict(attributes(copy)) == expected
    copy.record(1.0, 20.0)
    copy.failed(8, 21.0, "again")
    copy.moves.add(ResizeTimes(join_s=9.0), 1)
    copy.configured(2, 22.0)
    assert dict(attributes(job.history)) == expected
