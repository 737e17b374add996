"""Backfilling against slow twins, and the guarantees of each kind."""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from second_by_second import drive

from scheduler.core.core import Core
from scheduler.model.events import JobSpec, JobSubmitted
from scheduler.model.interfaces import QueueOrder
from scheduler.model.job import Job
from scheduler.model.machine import Machine
from scheduler.model.orders import Start
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.queue_orders.aging import Aging
from scheduler.policies.queue_orders.basic import Lxwf
from scheduler.policies.scenarios import scenario

PROCESSORS = 8


def jobs_of(processors: int = PROCESSORS) -> st.SearchStrategy[list[tuple[int, int, int, int]]]:
    """Jobs of (submitted, processors, walltime, run time <= walltime), in order of submission."""
    job = st.tuples(
        st.integers(0, 30), st.integers(1, processors), st.integers(1, 15), st.integers(0, 14)
    )
    return st.lists(job, min_size=1, max_size=14).map(
        lambda jobs: sorted((at, n, wall, max(1, wall - less)) for at, n, wall, less in jobs)
    )


def run(
    jobs: list[tuple[int, int, int, int]], reservations: int | None, depth: int | None = None
) -> tuple[list[float], dict[int, list[float]]]:
    """Start time of each job, and its reservations over time."""
    ran = drive(jobs, Backfill(reservations, max_jobs=depth), PROCESSORS)
    return ran.starts, ran.reserved


def slow_easy(
    jobs: list[tuple[int, int, int, int]], reservations: int, depth: int | None = None
) -> list[float]:
    """FCFS (0 reservations) or EASY (1), computed again in each second with an event."""
    starts = [inf] * len(jobs)

    def fits(job: int, now: int) -> bool:
        return jobs[job][1] <= free_at(jobs, starts, now, now)

    for now in range(1000):
        happens = any(now in (job[0], starts[i] + job[3]) for i, job in enumerate(jobs))
        while happens:
            waiting = [i for i, job in enumerate(jobs) if job[0] <= now and starts[i] == inf]
            examined = waiting[:depth]
            while waiting and fits(waiting[0], now):
                starts[waiting.pop(0)] = now
            for i in [i for i in examined if i in waiting[1:]] if reservations else []:
                promised = shadow_of(jobs, starts, waiting[0], now)
                if fits(i, now):
                    starts[i] = now
                    if shadow_of(jobs, starts, waiting[0], now) > promised:
                        starts[i] = inf
            happens = bool(waiting and examined) and all(starts[i] <= now for i in examined)
    return starts


def free_at(jobs: list[tuple[int, int, int, int]], starts: list[float], now: int, then: int) -> int:
    """Processors free at second `then` as expected at `now`: by ends so far, else by walltimes."""
    held = 0
    for (_, processors, walltime, run_time), start in zip(jobs, starts, strict=True):
        gone = start + run_time <= now or start + walltime <= then
        held += 0 if start > now or gone else processors
    return PROCESSORS - held


def shadow_of(
    jobs: list[tuple[int, int, int, int]], starts: list[float], head: int, now: int
) -> int:
    return next(t for t in range(now, 10**4) if free_at(jobs, starts, now, t) >= jobs[head][1])


@given(jobs_of())
def test_fcfs_equals_its_twin(jobs: list[tuple[int, int, int, int]]) -> None:
    assert run(jobs, 0)[0] == slow_easy(jobs, 0)


@given(jobs_of())
def test_easy_equals_its_twin(jobs: list[tuple[int, int, int, int]]) -> None:
    assert run(jobs, 1)[0] == slow_easy(jobs, 1)


@given(jobs_of())
def test_easy_never_delays_the_reservation_of_the_head(
    jobs: list[tuple[int, int, int, int]],
) -> None:
    starts, reserved = run(jobs, 1)
    for job, promised in reserved.items():
        assert promised == sorted(promised, reverse=True), "a promise moved back"
        assert starts[job] <= promised[-1]


@pytest.mark.parametrize("reservations", [None, 3])
@given(jobs=jobs_of())
def test_a_reservation_is_kept(
    reservations: int | None, jobs: list[tuple[int, int, int, int]]
) -> None:
    starts, reserved = run(jobs, reservations)
    assert all(start < inf for start in starts)
    for job, promised in reserved.items():
        assert promised == sorted(promised, reverse=True), "a promise moved back"
        assert starts[job] <= promised[-1]


@given(jobs_of())
def test_conservative_places_each_job_at_the_earliest_time(
    jobs: list[tuple[int, int, int, int]],
) -> None:
    """With exact walltimes each job starts in the first gap between the jobs before it."""
    exact = [(at, n, wall, wall) for at, n, wall, _ in jobs]
    free = [PROCESSORS] * 1000
    expected = []
    for at, processors, walltime, _ in exact:
        start = next(t for t in range(at, 1000) if min(free[t : t + walltime]) >= processors)
        for t in range(start, start + walltime):
            free[t] -= processors
        expected.append(start)
    assert run(exact, None)[0] == expected


def slow_conservative(
    jobs: list[tuple[int, int, int, int]], depth: int | None = None
) -> list[float]:
    """Conservative backfilling by a table of seconds, compressed after ends."""
    free = [PROCESSORS] * 2000
    place: dict[int, int] = {}
    starts = [inf] * len(jobs)

    def hold(job: int, sign: int) -> None:
        for second in range(place[job], place[job] + jobs[job][2]):
            free[second] -= sign * jobs[job][1]

    def put(job: int, now: int) -> None:
        _, processors, walltime, _ = jobs[job]
        seconds = range(now, 1900)
        place[job] = next(t for t in seconds if min(free[t : t + walltime]) >= processors)
        hold(job, 1)

    for now in range(1000):
        ended = [i for i, job in enumerate(jobs) if starts[i] + job[3] == now]
        for i in ended:
            for second in range(now, int(starts[i]) + jobs[i][2]):
                free[second] += jobs[i][1]
        due = any(at == now and starts[i] == inf for i, at in place.items())
        if not (ended or due or any(job[0] == now for job in jobs)):
            continue
        while True:
            queued = [i for i, job in enumerate(jobs) if job[0] <= now and starts[i] == inf]
            for i in queued[:depth]:
                if i not in place:
                    put(i, now)
                elif ended:
                    hold(i, -1)
                    put(i, now)
            for i, at in place.items():
                if at == now and starts[i] == inf:
                    starts[i] = now
            if not queued[:depth] or any(starts[i] == inf for i in queued[:depth]):
                break
    return starts


@given(jobs_of())
def test_conservative_equals_its_twin(jobs: list[tuple[int, int, int, int]]) -> None:
    assert run(jobs, None)[0] == slow_conservative(jobs)


@given(jobs_of(), st.integers(1, 5))
def test_passes_of_limited_depth_equal_their_twins(
    jobs: list[tuple[int, int, int, int]], depth: int
) -> None:
    assert run(jobs, 1, depth)[0] == slow_easy(jobs, 1, depth)
    assert run(jobs, None, depth)[0] == slow_conservative(jobs, depth)


@given(jobs_of(), st.sampled_from([1, 3, None]))
def test_a_depth_of_all_jobs_changes_nothing(
    jobs: list[tuple[int, int, int, int]], reservations: int | None
) -> None:
    assert run(jobs, reservations, len(jobs)) == run(jobs, reservations)


def many_at_once(count: int, seed: int) -> list[tuple[int, int, int, int]]:
    """Jobs that all wait from second 0 on, in which reservations move often."""
    dice = random.Random(seed)
    requests = [(dice.randint(1, PROCESSORS), dice.randint(1, 60)) for _ in range(count)]
    return [(0, n, wall, dice.randint(1, wall)) for n, wall in requests]


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.long) for k in (1, 2))])
def test_conservative_equals_its_twin_with_a_long_queue(seed: int) -> None:
    jobs = many_at_once(60, seed)
    assert run(jobs, None)[0] == slow_conservative(jobs)
    assert run(jobs, None, 20)[0] == slow_conservative(jobs, 20)


def test_invalid_numbers() -> None:
    with pytest.raises(ValueError, match="max_jobs must be >= 1 or null for all, got 0"):
        Backfill(max_jobs=0)
    with pytest.raises(ValueError, match="reservations must be >= 0 or null for all, got -1"):
        Backfill(-1)


PASSES = [("first-fit", "profile"), ("table-first-fit", "table"), ("less-consume", "table")]


@pytest.mark.parametrize(("selection", "runs"), [*PASSES, ("contiguous", "profile")])
@pytest.mark.parametrize("reservations", [0, 1])
def test_a_scenario_says_which_pass_runs(reservations: int, selection: str, runs: str) -> None:
    assert_runs(reservations, selection, runs)


@pytest.mark.parametrize(("selection", "runs"), PASSES)
@pytest.mark.parametrize("reservations", [2, None])
def test_the_same_with_several_reservations(
    reservations: int | None, selection: str, runs: str
) -> None:
    assert_runs(reservations, selection, runs)


def assert_runs(reservations: int | None, selection: str, runs: str) -> None:
    chosen = scenario("easy", {"backfill.reservations": reservations, "selection": selection})
    start, *_ = Core(chosen, Machine([("n", 4)])).handle([JobSubmitted(0.0, 1, JobSpec(2, 10.0))])
    assert isinstance(start, Start)
    assert start.reason.rule.endswith(" by table") == (runs == "table")


def test_names() -> None:
    assert [Backfill(k).name for k in (0, 1, 2, None)] == [
        "FCFS",
        "EASY",
        "2 reservations",
        "conservative",
    ]


class EachJob(QueueOrder):
    """An aging order without the statement that jobs of equal requests keep their order."""

    ages = True

    def __init__(self, order: Lxwf | Aging) -> None:
        self._order = order

    def key(self, job: Job, now: float) -> Any:
        return self._order.key(job, now)


@pytest.mark.parametrize("order", [Lxwf(), Aging(refresh_s=0), Aging(nodes_weight=50)])
@given(st.data())
def test_groups_of_equal_requests_start_as_if_each_job_was_examined(
    order: Lxwf | Aging, data: st.DataObject
) -> None:
    requests = data.draw(st.lists(st.sampled_from(REQUESTS), min_size=2, max_size=3))
    job = st.tuples(st.integers(0, 20), st.sampled_from(requests))
    drawn = data.draw(st.lists(job, min_size=1, max_size=20))
    jobs = sorted((at, *request) for at, request in drawn)
    fast = drive(jobs, Backfill(), PROCESSORS, backfill_order=order)
    assert fast == drive(jobs, Backfill(), PROCESSORS, backfill_order=EachJob(order))


REQUESTS = [(1, 3, 2), (1, 12, 9), (2, 3, 3), (3, 8, 5), (5, 6, 6), (8, 4, 4)]


def test_the_share_of_an_adaptive_start_is_checked() -> None:
    with pytest.raises(ValueError, match="adaptive_start must be > 0 and <= 1, got 0"):
        Backfill(adaptive_start=0.0)
