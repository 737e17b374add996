"""What user-defined policies see of a job: they read it and change nothing of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from scheduler.model.events import JobSpec
from scheduler.model.job import Job
from scheduler.model.job_view import original, shown
from scheduler.model.procset import ProcSet


@pytest.fixture
def job() -> Job:
    """A running job with a performance history."""
    job = Job(3, JobSpec(2, 100.0, max_processors=8, resources={"licence": 1}), 1.0)
    job.groups = {1: ProcSet.parse("0-1")}
    job.size, job.started_at = 2, 2.0
    job.history.configured(2, 2.0)
    return job


def members(part: Any) -> list[str]:
    return [name for name in dir(type(part)) if not name.startswith("_")]


def test_no_member_of_a_shown_job_can_be_changed(job: Job) -> None:
    for part in (shown(job), shown(job).history):
        for name in members(part):
            value = getattr(part, name)
            assert not isinstance(value, dict | list | set), name
            assert not isinstance(value, Mapping) or isinstance(value, MappingProxyType), name
            with pytest.raises(AttributeError, match=f"a policy cannot change '{name}' of"):
                setattr(part, name, value)
            with pytest.raises(AttributeError, match=f"a policy cannot change '{name}' of"):
                delattr(part, name)
    with pytest.raises(TypeError):
        shown(job).spec.resources["licence"] = 2


def test_a_shown_job_has_the_values_of_the_job_at_present(job: Job) -> None:
    seen = shown(job)
    assert original(seen) is job
    assert shown(job) is seen
    assert seen.spec == job.spec
    for name in ("groups", "own_groups"):
        assert getattr(seen, name) == {1: ProcSet.parse("0-1")}, name
    assert seen.leavable == {}
    job.size = 4
    job.change_limits(JobSpec(2, 50.0, max_processors=4))
    assert (seen.size, seen.spec, seen.walltime_s) == (4, job.spec, 50.0)
    assert seen.valid_sizes == job.valid_sizes
    assert seen.history.visits == (2,)


@pytest.mark.parametrize("name", ["become", "start_on", "requeue", "shown", "_history"])
def test_a_shown_job_has_no_member_that_changes_it(job: Job, name: str) -> None:
    with pytest.raises(AttributeError):
        getattr(shown(job), name)
