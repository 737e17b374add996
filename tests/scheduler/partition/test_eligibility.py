"""Dependencies of any shape: no job starts before its own is met, and each that is met starts."""

from __future__ import annotations

from heapq import heappop, heappush

import msgspec
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.core import Core
from scheduler.model.arrays import TaskArray
from scheduler.model.events import JobEnded, JobSpec, JobSubmitted, JobUpdated
from scheduler.model.job import FINAL, JobState
from scheduler.model.machine import Machine
from scheduler.model.orders import Drop, Start
from scheduler.model.requests import Conditions, Dependency
from scheduler.policies.scenarios import scenario

KINDS = ("after", "afterany", "afterok", "afternotok", "singleton")


@st.composite
def jobs(draw: st.DrawFn) -> list[tuple[JobSpec, int, int]]:
    """Request, run time and exit code of some jobs; each may name earlier ones."""
    made: list[tuple[JobSpec, int, int]] = []
    for number in range(1, draw(st.integers(2, 9)) + 1):
        words = []
        if number > 1:
            for kind in draw(st.lists(st.sampled_from(KINDS), max_size=3)):
                other = draw(st.integers(1, number - 1))
                words.append(kind if kind == "singleton" else f"{kind}:{other}")
        text = draw(st.sampled_from(",?")).join(words)
        conditions = None
        if words:
            strict = draw(st.booleans())
            conditions = Conditions(dependency=Dependency.parse(text), kill_on_invalid=strict)
        name = draw(st.sampled_from("ab"))
        spec = JobSpec(draw(st.integers(1, 3)), 100, name=name, conditions=conditions)
        made.append((spec, draw(st.integers(1, 9)), draw(st.integers(0, 1))))
    return made


def holds(core: Core, number: int, spec: JobSpec) -> bool | None:
    """Whether the dependency of a job holds by the states of the others, told in the slow way."""
    assert spec.conditions is not None
    dependency = spec.conditions.dependency
    assert dependency is not None
    values: list[bool | None] = []
    for term in dependency.terms:
        if term.kind == "singleton":
            earlier = (core.jobs[other] for other in core.jobs if other < number)
            open_ones = [
                other
                for other in earlier
                if other.spec.name == spec.name and other.state not in FINAL
            ]
            values.append(None if open_ones else True)
            continue
        state = core.jobs[term.job].state
        ended, well = state in FINAL, state is JobState.COMPLETED
        values.append(
            {
                "after": True if state is not JobState.PENDING else None,
                "afterany": True if ended else None,
                "afterok": well if ended else None,
                "afternotok": not well if ended else None,
            }[term.kind]
        )
    if dependency.any_of:
        return True if True in values else None if None in values else False
    return False if False in values else None if None in values else True


@pytest.mark.parametrize("name", ["easy", "conservative"])
@examples(150)
@given(made=jobs())
def test_jobs_start_when_their_dependencies_are_met(
    name: str, made: list[tuple[JobSpec, int, int]]
) -> None:
    core = Core(scenario(name), Machine([("n", 4)]))
    ends: list[tuple[float, int]] = []
    specs = {number: spec for number, (spec, _, _) in enumerate(made, 1)}
    events: list[JobSubmitted | JobEnded] = [
        JobSubmitted(0.0, number, spec) for number, spec in specs.items()
    ]
    while events:
        for order in core.handle(events):
            if not isinstance(order, Start | Drop):
                continue
            spec = specs[order.job]
            if spec.conditions is not None:
                assert holds(core, order.job, spec) is isinstance(order, Start)
            if isinstance(order, Start):
                heappush(ends, (core.now + made[order.job - 1][1], order.job))
        if not ends:
            break
        at, number = heappop(ends)
        events = [JobEnded(at, number, made[number - 1][2])]
    for number, job in core.jobs.items():
        if job.state is not JobState.PENDING:
            continue
        rule = core.reason_pending(number).rule
        if holds(core, number, job.spec) is False:
            assert rule == "DependencyNeverSatisfied"
            assert job.spec.conditions is not None
            assert not job.spec.conditions.kill_on_invalid
        else:  # it waits for a job that will never start
            assert rule == "Dependency"
            assert core.jobs[int(core.reason_pending(number).facts["other"])].state not in FINAL


@pytest.mark.parametrize("text", ["afterok:1:2,after:3", "afterany:4?singleton", "singleton"])
def test_a_dependency_is_written_as_it_is_read(text: str) -> None:
    again = Dependency.parse(str(Dependency.parse(text)))
    assert again == Dependency.parse(text)


@pytest.mark.parametrize("text", ["", "afterok:", "afterok:0", "afterok:-1", "after:1?x", "ok:1"])
def test_what_is_no_dependency_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write afterok:ID"):
        Dependency.parse(text)


def test_a_dependency_has_a_largest_number_of_jobs() -> None:
    with pytest.raises(ValueError, match="at most 1000 jobs, got 1001"):
        Dependency.parse("afterok:" + ":".join(map(str, range(1, 1002))))


def test_an_array_ends_with_a_task_whose_dependency_cannot_be_met() -> None:
    """The task got the dependency when it had come to the queue."""
    core = Core(scenario("easy"), Machine([("n1", 2)]))
    core.handle([JobSubmitted(0.0, 1, JobSpec(2, 100.0))])
    core.handle([JobSubmitted(0.0, 2, JobSpec(2, 100.0, array=TaskArray.parse("0-0")))])
    needs = Conditions(dependency=Dependency.parse("afterok:1"), kill_on_invalid=True)
    spec = msgspec.structs.replace(core.jobs[3].spec, conditions=needs)
    core.handle([JobUpdated(1.0, 3, spec)])
    assert core.jobs[3].state is JobState.PENDING
    core.handle([JobEnded(2.0, 1, 1)])
    assert core.jobs[3].state is JobState.CANCELLED
    assert core.jobs[2].state is JobState.FAILED
