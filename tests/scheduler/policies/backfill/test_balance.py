"""Several resources: EASY and conservative against slow twins, BL and BB, and invariants."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from second_by_second import SmallRun, drive

from scheduler.policies.backfill import balance
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.scenarios import scenario

Jobs = list[tuple[int, ...]]
CAPACITY = (8, 6, 10)
RESOURCES = {"memory": 6, "disk": 10}

job = st.tuples(
    st.integers(0, 20),
    st.integers(1, 8),
    st.integers(1, 12),
    st.integers(0, 11),
    st.integers(0, 6),
    st.integers(0, 10),
)
jobs_of = st.lists(job, min_size=1, max_size=14).map(
    lambda jobs: sorted(
        (at, n, wall, max(1, wall - less), *rest) for at, n, wall, less, *rest in jobs
    )
)


def run(jobs: Jobs, backfill: Backfill) -> SmallRun:
    return drive(jobs, backfill, CAPACITY[0], RESOURCES)


def needs(job: Sequence[int]) -> tuple[int, ...]:
    return (job[1], *job[4:])


def free_at(jobs: Jobs, starts: list[float], now: int, then: int) -> list[int]:
    """Amounts free at second `then` as expected at `now`: by ends so far, else by walltimes."""
    free = list(CAPACITY)
    for job, start in zip(jobs, starts, strict=True):
        gone = start + job[3] <= now or start + job[2] <= then
        if start <= now and not gone:
            free = [f - n for f, n in zip(free, needs(job), strict=True)]
    return free


def fits(wanted: Sequence[int], free: Sequence[int]) -> bool:
    return all(w <= f for w, f in zip(wanted, free, strict=True))


def shadow_of(jobs: Jobs, starts: list[float], head: int, now: int) -> int:
    seconds = range(now, 10**4)
    return next(t for t in seconds if fits(needs(jobs[head]), free_at(jobs, starts, now, t)))


def slow_choice(
    backfill: Backfill, jobs: Jobs, starts: list[float], now: int, able: list[int]
) -> int | None:
    """The formulas of KRES 2.2, in fractions of the capacity; None: none of them is to start."""
    free = free_at(jobs, starts, now, now)
    used = [1 - f / c for f, c in zip(free, CAPACITY, strict=True)]
    raw, idle = [], []
    for i in able:
        wanted = [n / c for n, c in zip(needs(jobs[i]), CAPACITY, strict=True)]
        after = [u + w for u, w in zip(used, wanted, strict=True)]
        idle.append(1 - sum(after) / 3)
        least = min(range(3), key=lambda i: round(used[i], 9))
        matches = wanted[least] >= max(wanted) - 1e-12
        lowest = 1 if matches else inf
        raw.append(max(after) * 3 / sum(after) if backfill.pick == "bb" else lowest)
    if backfill.pick == "first":
        return able[0]
    if min(raw) == inf:
        return None
    scores = raw
    if backfill.fullness:
        best = 1 if backfill.pick == "bb" else 0
        scores = [(score - best) * share for score, share in zip(raw, idle, strict=True)]
    return next(i for i, s in zip(able, scores, strict=True) if s <= min(scores) + 1e-12)


def slow_easy(jobs: Jobs, backfill: Backfill) -> list[float]:
    """FCFS or EASY by second, computed again in each second."""
    starts = [inf] * len(jobs)
    for now in range(400):
        waiting = [i for i, job in enumerate(jobs) if job[0] <= now and starts[i] == inf]
        while waiting and fits(needs(jobs[waiting[0]]), free_at(jobs, starts, now, now)):
            starts[waiting.pop(0)] = now
        while waiting and backfill.reservations:
            head = waiting[0]
            promised = shadow_of(jobs, starts, head, now)
            able = []
            for i in waiting[1:]:
                if fits(needs(jobs[i]), free_at(jobs, starts, now, now)):
                    starts[i] = now
                    if shadow_of(jobs, starts, head, now) == promised:
                        able.append(i)
                    starts[i] = inf
            if not able:
                break
            chosen = slow_choice(backfill, jobs, starts, now, able)
            if chosen is None:
                break
            starts[chosen] = now
            waiting.remove(chosen)
    return starts


@pytest.mark.parametrize("pick", ["first", "bb", "bl"])
@given(jobs=jobs_of)
def test_easy_equals_its_twin(pick: str, jobs: Jobs) -> None:
    backfill = Backfill(1, pick=pick)  # type: ignore[arg-type]
    starts = run(jobs, backfill).starts
    assert starts == slow_easy(jobs, backfill)


@pytest.mark.parametrize("pick", ["bb", "bl"])
@settings(max_examples=30)
@given(jobs=jobs_of)
def test_without_the_fullness_it_equals_its_twin(pick: Literal["bb", "bl"], jobs: Jobs) -> None:
    backfill = Backfill(1, pick=pick, fullness=False)
    assert run(jobs, backfill).starts == slow_easy(jobs, backfill)


@given(jobs_of)
def test_fcfs_equals_its_twin(jobs: Jobs) -> None:
    assert run(jobs, Backfill(0)).starts == slow_easy(jobs, Backfill(0))


def slow_conservative(jobs: Jobs) -> list[float]:
    """Conservative backfilling by a table of seconds, compressed in queue order after ends."""
    free = [list(CAPACITY) for _ in range(900)]
    place: dict[int, int] = {}
    starts = [inf] * len(jobs)

    def hold(job: int, sign: int, first: int, last: int) -> None:
        for second in range(first, last):
            free[second] = [
                f - sign * n for f, n in zip(free[second], needs(jobs[job]), strict=True)
            ]

    def put(job: int, now: int) -> None:
        length = jobs[job][2]
        place[job] = next(
            t
            for t in range(now, 800)
            if all(fits(needs(jobs[job]), free[s]) for s in range(t, t + length))
        )
        hold(job, 1, place[job], place[job] + length)

    for now in range(400):
        ended = [i for i, job in enumerate(jobs) if starts[i] + job[3] == now]
        for i in ended:
            hold(i, -1, now, int(starts[i]) + jobs[i][2])
        for i in sorted(place) if ended else []:
            if starts[i] == inf:
                hold(i, -1, place[i], place[i] + jobs[i][2])
                put(i, now)
        for i, job in enumerate(jobs):
            if job[0] == now:
                put(i, now)
        for i, at in place.items():
            if at == now and starts[i] == inf:
                starts[i] = now
    return starts


@given(jobs_of)
def test_conservative_equals_its_twin(jobs: Jobs) -> None:
    assert run(jobs, Backfill(None)).starts == slow_conservative(jobs)


@pytest.mark.parametrize("reservations", [1, 3, None])
@pytest.mark.parametrize("pick", ["first", "bl", "bb"])
@given(jobs=jobs_of)
def test_reservations_and_capacities(reservations: int | None, pick: str, jobs: Jobs) -> None:
    """No reservation is delayed, no capacity is exceeded, and every job starts."""
    ran = run(jobs, Backfill(reservations, pick=pick))  # type: ignore[arg-type]
    assert all(start < inf for start in ran.starts)
    for number, promised in ran.reserved.items():
        assert promised == sorted(promised, reverse=True), "a promise moved back"
        assert ran.starts[number] <= promised[-1]
    for now in range(int(max(ran.starts)) + 1):
        held = [
            needs(job)
            for job, start in zip(jobs, ran.starts, strict=True)
            if start <= now < start + job[3]
        ]
        together = [sum(column) for column in zip(*held, strict=True)] or [0, 0, 0]
        assert fits(together, CAPACITY)


@pytest.mark.parametrize("reservations", [0, 1, 2, 4, None])
@given(jobs=jobs_of)
def test_a_resource_like_the_processors_changes_nothing(
    reservations: int | None, jobs: Jobs
) -> None:
    """K = 1: without resources, with one that no job needs, with one that mirrors processors."""
    plain = [job[:4] for job in jobs]
    backfill = Backfill(reservations)
    starts = drive(plain, backfill, 8).starts
    assert drive(plain, backfill, 8, {"memory": 5}).starts == starts
    mirrored = [(*job, job[1]) for job in plain]
    assert drive(mirrored, backfill, 8, {"memory": 8}).starts == starts


def test_the_example_of_figure_1() -> None:
    """KRES figure 1: 16 processors, 32 GB, six jobs of equal run time, submitted together."""
    wanted = [(8, 4), (4, 2), (7, 16), (11, 20), (1, 12), (1, 10)]
    jobs = [(0, processors, 1, 1, memory) for processors, memory in wanted]
    fcfs, first_fit = (drive(jobs, Backfill(k), 16, {"memory": 32}).starts for k in (0, 1))
    assert fcfs == [0, 0, 1, 2, 2, 3]
    assert first_fit == [0, 0, 1, 2, 0, 0]


def test_measures() -> None:
    """Computed by hand: half of one resource in use, a tenth of the other."""
    used = [0.5, 0.1]
    assert balance.balance(used, [0.0, 0.4]) == pytest.approx(1.0)
    assert balance.balance(used, [0.3, 0.1]) == pytest.approx(0.8 / 0.5)
    assert balance.lowest(used, [0.1, 0.2]) == 1.0
    assert balance.lowest(used, [0.2, 0.1]) == inf
    assert balance.idleness(used, [0.3, 0.1]) == pytest.approx(0.5)


def chosen(backfill: Backfill) -> list[int]:
    """Jobs backfilled before the head while processors are used more than memory."""
    jobs = [
        (0, 4, 100, 100, 1, 0),  # holds half of the processors, a sixth of the memory
        (1, 8, 100, 100, 6, 0),  # the head
        (2, 3, 50, 50, 1, 0),
        (2, 1, 50, 50, 4, 0),
    ]
    starts = run(jobs, backfill).starts
    return [i for i in (2, 3) if starts[i] == 2]


def test_fullness_and_picks() -> None:
    """First-Fit takes the first job, BB and BL the one that requests the idle memory."""
    assert chosen(Backfill(1)) == [2, 3]
    busy = [
        (0, 4, 100, 100, 2, 9),
        (1, 8, 100, 100, 6, 0),
        (2, 3, 50, 50, 1, 0),
        (2, 2, 50, 50, 4, 0),
    ]
    for pick, first in (("first", 2), ("bl", 3), ("bb", 3)):
        ran = run(busy, Backfill(1, pick=pick))  # type: ignore[arg-type]
        assert [i for i in (2, 3) if ran.starts[i] == 2] == [first]
        if pick != "first":
            assert f"{pick.upper()} (KRES 2.2) takes it of 2 that may: score" in ran.reasons[3]
    assert "2 processors, 4 memory, 0 disk for 50" in ran.reasons[3]
    idle_disk = [(0, 4, 100, 100, 2, 0), *busy[1:]]
    assert min(run(idle_disk, Backfill(1, pick="bl")).starts[2:]) > 2, "nobody wants the disk"


def test_as_options() -> None:
    set_so = scenario("easy", {"backfill.pick": "bb", "backfill.fullness": "false"})
    assert set_so.backfill == Backfill(1, pick="bb", fullness=False)


@given(st.lists(st.tuples(st.floats(0, 0.5), st.floats(0.01, 0.5)), min_size=1, max_size=8))
def test_the_balance_lies_between_1_and_k(pairs: list[tuple[float, float]]) -> None:
    used, wanted = zip(*pairs, strict=True)
    assert 1 - 1e-9 <= balance.balance(used, wanted) <= len(pairs) + 1e-9
