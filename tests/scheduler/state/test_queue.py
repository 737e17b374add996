"""The index of the queue and the sums of expected releases, against slow twins."""

from __future__ import annotations

from math import inf

from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from reshape.topology import Topology
from scheduler.model.events import JobSpec
from scheduler.model.interfaces import QueueOrder
from scheduler.model.job import Job
from scheduler.policies.queue_orders.aging import Aging
from scheduler.policies.queue_orders.basic import ByPriority, Fcfs, Lxwf, Sjf
from scheduler.state.candidates import MANY, Candidates
from scheduler.state.profile import ExpectedReleases
from scheduler.state.queue import Queue

moves = st.lists(
    st.tuples(st.booleans(), st.integers(0, 40), st.integers(1, 6), st.integers(1, 30)),
    max_size=120,
)


def job_of(number: int, key: int, processors: int, estimate: int) -> Job:
    spec = JobSpec(processors, float(estimate), priority=float(key % 3))
    return Job(number, spec, float(key))


@examples(150)
@given(moves, st.integers(0, 7), st.integers(0, 31), st.integers(0, 7), st.data())
def test_candidates(
    moves: list[tuple[bool, int, int, int]], free: int, within: int, spare: int, data: st.DataObject
) -> None:
    """The first job that fits, after any insertions and removals; small blocks split often."""
    here: list[Job] = []
    there = Candidates(block_length=4)
    for number, (comes, key, processors, estimate) in enumerate(moves):
        if comes or not here:
            here.append(job_of(number, key, processors, estimate))
            here[-1].queue_position = float(key), number
            there.add(here[-1])
        else:
            gone = here.pop(data.draw(st.integers(0, len(here) - 1)))
            there.remove(gone)
        fits = [
            (job.submitted_at, job.id)
            for job in here
            if job.spec.processors <= free
            and (job.estimate_s <= within or job.spec.processors <= spare)
        ]
        found = there.next([(min(spare, free), inf), (free, within)])
        assert (found and found.id) == (min(fits)[1] if fits else None)
        assert there.smallest == min((job.spec.processors for job in here), default=MANY)


@given(moves, st.sampled_from([Fcfs(), Sjf(), ByPriority()]), st.integers(1, 6))
def test_queue(moves: list[tuple[bool, int, int, int]], order: object, at_most: int) -> None:
    """Jobs also return to the queue after they have left it, and keep their place."""
    queue = Queue(order)  # type: ignore[arg-type]
    here: list[Job] = []
    gone: list[Job] = []
    for number, (comes, key, processors, estimate) in enumerate(moves):
        if comes and gone and key % 3 == 0:
            here.append(gone.pop(key % len(gone)))
            queue.add_again(here[-1], 0.0)
        elif comes or not here:
            here.append(job_of(number, key, processors, estimate))
            queue.add(here[-1], 0.0)
            if key % 2:
                queue.index_all()
        else:
            gone.append(here.pop(key % len(here)))
            queue.remove(gone[-1])
        expected = sorted(here, key=lambda job: (order.key(job, 0.0), job.id))  # type: ignore[attr-defined]
        small = [job for job in expected if job.spec.processors <= at_most]
        assert list(queue.in_order()) == expected
        assert queue.first(at_most) is (small[0] if small else None)
        if key % 3:
            assert list(queue) == expected  # which sorts the queue
        assert len(queue) == len(here)


@examples(150)
@given(moves, st.integers(0, 5), st.integers(1, 60))
def test_expected_releases(moves: list[tuple[bool, int, int, int]], free: int, needed: int) -> None:
    here: dict[int, list[tuple[float, int]]] = {}
    there = ExpectedReleases(block_length=4)
    for number, (comes, time, processors, other) in enumerate(moves):
        if comes or not here:
            here[number] = [(float(time), processors)]
            if other % 3:
                there.expect_first(number, float(time), processors)
            else:
                there.expect(number, (float(time), processors), (float(other), 2))
                if time == other:
                    here[number] = [(float(time), processors + 2)]
                else:
                    here[number].append((float(other), 2))
        else:
            gone = sorted(here)[time % len(here)]
            del here[gone]
            there.forget(gone)
        every = sorted((t, job, p) for job, parts in here.items() for t, p in parts)
        assert list(there) == every
        assert there.any_by(10.0) == any(t <= 10 for t, _, _ in every)
        assert there.any_at(10.0) == any(t == 10 for t, _, _ in every)
        assert there.shadow(10.0, free, needed) == slow_shadow(every, 10.0, free, needed)


def slow_shadow(
    every: list[tuple[float, int, int]], now: float, free: int, needed: int
) -> tuple[float, int]:
    for at in sorted({now} | {max(now, t) for t, _, _ in every}):
        back = sum(p for t, _, p in every if t <= at) if at > now or free < needed else None
        if back is None:
            back = sum(p for t, _, p in every if t <= now)
            return now, free + back - needed
        if free + back >= needed:
            return at, free + back - needed
    return inf, 0


def test_a_job_that_cannot_start_is_tested_once_until_that_may_have_changed() -> None:
    queue, tested = Queue(Fcfs()), list[int]()

    def can_start(job: Job) -> bool:
        tested.append(job.id)
        return job.spec.processors == 1

    for number, processors in enumerate([9, 9, 1, 9, 1, 1]):
        queue.add(job_of(number, number, processors, 1), 0.0)
    assert [job.id for job in queue.first_jobs(2, can_start)] == [2, 4]
    assert tested == [0, 1, 2, 3, 4]
    tested.clear()
    queue.remove(queue.jobs[3])
    queue.add(job_of(6, 6, 9, 1), 0.0)
    assert [job.id for job in queue.first_jobs(4, can_start)] == [2, 4, 5]
    assert tested == [2, 4, 5, 6]
    tested.clear()
    queue.examine_all()
    assert [job.id for job in queue.first_jobs(1, can_start)] == [2]
    assert tested == [0, 1, 2]


@examples(150)
@given(moves, st.sampled_from([Aging(refresh_s=20.0), Lxwf(), Aging()]), st.integers(1, 6))
def test_a_queue_that_ages(
    moves: list[tuple[bool, int, int, int]], order: QueueOrder, at_most: int
) -> None:
    """The keys of the latest sort count, and for jobs that arrived later those of their arrival."""
    queue, now, sorted_at = Queue(order), 0.0, 0.0
    here: list[Job] = []
    gone: list[Job] = []
    for number, (comes, key, processors, estimate) in enumerate(moves):
        now += key % 8
        if queue.sort_is_due(now):
            sorted_at = now
        queue.sort(now)
        if comes and gone and key % 3 == 0:
            here.append(gone.pop(key % len(gone)))
            queue.add_again(here[-1], now)
        elif comes or not here:
            spec = JobSpec(processors % 3 + 1, float(estimate % 3 + 1))
            here.append(Job(number, spec, now))
            queue.add(here[-1], now)
        else:
            gone.append(here.pop(key % len(here)))
            queue.remove(gone[-1])
        expected = sorted(
            here, key=lambda job: (order.key(job, max(sorted_at, job.submitted_at)), job.id)
        )
        small = [job for job in expected if job.spec.processors <= at_most]
        assert list(queue.in_order()) == expected
        if key % 5 == 0:
            assert list(queue) == expected
        assert queue.first(at_most) is (small[0] if small else None)
        assert (
            queue.first_jobs(2, lambda job: job.spec.processors > 1)
            == [job for job in expected if job.spec.processors > 1][:2]
        )
        queue.examine_all()


class Ageing(QueueOrder):
    """Order that ages, and whose jobs of equal requests may change their order."""

    ages = True

    def key(self, job: Job, now: float) -> float:
        return (job.id * 7 + now) % 5


def malleable(number: int, key: int, processors: int, estimate: int) -> Job:
    least = 1 + key % processors if key % 3 else None
    spec = JobSpec(
        processors, float(estimate % 3 + 1), processors, Topology(), min_processors=least
    )
    return Job(number, spec, float(key))


@examples(150)
@given(
    moves,
    st.sampled_from([Fcfs(), Sjf(), ByPriority(), Aging(), Lxwf(), Ageing()]),
    st.tuples(st.integers(0, 7), st.integers(0, 9), st.integers(0, 4)),
)
def test_jobs_that_fit(
    moves: list[tuple[bool, int, int, int]], order: QueueOrder, limits: tuple[int, int, int]
) -> None:
    """Jobs that fit come in backfill order; of equal ones, none behind a refused one."""
    processors, longest_s, extra = limits
    queue, now = Queue(Fcfs(), order), 50.0
    here: list[Job] = []
    for number, (comes, key, size, estimate) in enumerate(moves):
        if comes or not here:
            here.append(malleable(number, key, size, estimate))
            queue.add(here[-1], now)
        else:
            queue.remove(here.pop(key % len(here)))
        if key % 4:
            continue
        fit = [
            job
            for job in sorted(here, key=lambda job: (order.key(job, now), job.id))
            if job.start_least <= processors
            and (job.start_least <= extra or job.estimate_on_s(job.start_least) <= longest_s)
        ]
        assert list(queue.fitting(processors, longest_s, extra, now)) == fit
        some = here[::2]
        among = list(queue.fitting(processors, longest_s, extra, now, some))
        assert among == [job for job in fit if job in some]
        taken = {job.id for job in fit if job.id % 3}
        given_out = list(queue.fitting(processors, longest_s, extra, now, None, taken))
        assert given_out == (fit if isinstance(order, Ageing) else until_refused(fit, taken))


def until_refused(jobs: list[Job], taken: set[int]) -> list[Job]:
    """Jobs before which no job of an equal request was refused."""
    refused: set[tuple[float, ...]] = set()
    left = []
    for job in jobs:
        spec = job.spec
        request = spec.processors, spec.walltime_s, spec.priority, spec.min_processors or 0
        if request not in refused:
            left.append(job)
            if job.id not in taken:
                refused.add(request)
    return left
