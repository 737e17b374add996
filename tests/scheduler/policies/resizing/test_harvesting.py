"""The list of Least-Impact-Priority against a slow version that sorts it before every step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.events import JobSpec
from scheduler.model.job import Job
from scheduler.model.procset import ProcSet
from scheduler.policies.queue_orders.aging import CLASSES
from scheduler.policies.resizing.harvesting import traverse


def grown(number: int, start: int, steps: list[tuple[int, float]], priority: float) -> Job:
    """Build a job that went up these steps (processors added, iteration time there)."""
    job = Job(number, JobSpec(start, 1000.0, start + 100, priority=priority), 0.0)
    job.started_at, job.size = 0.0, start
    job.groups[1] = ProcSet.span(0, start)
    job.history.configured(start, 0.0)
    job.history.record(10.0, 10.0)
    for added, seconds in steps:
        job.groups[len(job.groups) + 1] = ProcSet.span(job.size, added)
        job.size += added
        job.resizes += 1
        job.history.configured(job.size, 10.0)
        job.history.record(seconds, 10.0)
    return job


def slow(job: Job, listed: list[Job], wanted: int) -> tuple[int, int, int]:
    at = {other.id: other.size for other in listed}
    found, giving = 0, set()

    def impact(other: Job, to: int) -> float:
        now_s, then_s = other.history.time_s(at[other.id]), other.history.time_s(to)
        assert now_s is not None
        assert then_s is not None
        return then_s / now_s - 1

    while found < wanted:
        steps = []
        for other in listed:
            below = [size for size in other.smaller if size < at[other.id]]
            if below:
                high = other.spec.priority > 100
                steps.append((high, impact(other, below[0]), other.id, below[0]))
        if not steps:
            break
        *_, number, to = min(steps)
        found += at[number] - to
        at[number] = to
        giving.add(number)
    return at[job.id], found, len(giving)


times = st.sampled_from([2.0, 5.0, 8.0, 9.9, 10.0, 12.0])
climbs = st.lists(st.tuples(st.integers(1, 4), times), min_size=1, max_size=3)
jobs = st.lists(
    st.tuples(st.integers(1, 6), climbs, st.sampled_from([0.0, 100.0, 1000.0])),
    min_size=1,
    max_size=6,
)


@given(jobs, st.integers(1, 40), st.data())
def test_the_traversal_equals_the_slow_version(
    drawn: list[tuple[int, list[tuple[int, float]], float]], wanted: int, data: st.DataObject
) -> None:
    listed = [grown(number, *job) for number, job in enumerate(drawn)]
    job = data.draw(st.sampled_from(listed), label="job")
    assert traverse(job, listed, CLASSES["gold"], wanted) == slow(job, listed, wanted)


def test_configurations_to_which_a_job_may_contract() -> None:
    job = grown(1, 2, [(2, 8.0), (4, 5.0)], 0.0)
    assert job.smaller == (4, 2)
    whole = grown(2, 2, [(2, 8.0)], 0.0)
    whole.groups = {1: ProcSet.span(0, 4)}
    assert whole.smaller == (), "one group cannot leave in part"


def test_the_group_that_stays_is_no_part_of_a_contraction() -> None:
    """A job that has left its first group keeps the oldest of the others."""
    job = grown(1, 2, [(6, 8.0), (2, 5.0)], 0.0)
    del job.groups[1]
    job.size = 8
    job.history.configured(8, 20.0)
    assert job.contracts_within(2) is None
    assert job.smaller == (), "only the group of 6 would leave it 2"
