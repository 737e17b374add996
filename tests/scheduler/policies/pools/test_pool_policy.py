"""The policy of a pool: its answers for given views, and invariants for any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import msgspec
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.events import JobSpec
from scheduler.model.job import Job
from scheduler.policies.pools.options import PoolOptions, parse_pool_options
from scheduler.policies.pools.policy import (
    WAITING,
    AllocationState,
    Growth,
    PoolAllocation,
    PoolDecision,
    PoolView,
)

S = AllocationState
HOUR = 3600.0
OPTIONS = PoolOptions(
    max_nodes=8, time_limit_s=2 * HOUR, processors=4, idle_timeout_s=300.0, margin_s=0.0
)


@dataclass(frozen=True)
class Having:
    """An allocation with its idle and its held processors."""

    allocation: PoolAllocation
    idle: int = 0
    held: int = 0


def allocation(number: int, state: AllocationState, nodes: int, **fields: Any) -> PoolAllocation:
    return PoolAllocation(number, ("n",) * nodes, state, 0.0, **fields)


def running(number: int, *, idle: int = 4, ends_at: float = 2 * HOUR, **fields: Any) -> Having:
    own = allocation(number, S.RUNNING, 1, ends_at=ends_at, **fields)
    return Having(own, idle, 4 - idle)


def queued(number: int, **fields: Any) -> Having:
    return Having(allocation(number, S.QUEUED, 1, **fields))


def job(processors: int, estimate_s: float, queued_at: float) -> Job:
    return Job(1, JobSpec(processors, estimate_s), queued_at)


def view_of(now: float, queue: list[Job], each: Sequence[Having], **fields: Any) -> PoolView:
    idle = {one.allocation.number: one.idle for one in each}
    held = {one.allocation.number: one.held for one in each}
    return PoolView(now, queue, [one.allocation for one in each], idle, held, **fields)


def actions(decision: PoolDecision) -> dict[str, list[int]]:
    """Nodes to submit, and numbers of allocations to cancel and to release, without empty lists."""
    lists = {name: getattr(decision, name) for name in ("cancel", "release", "submit")}
    return {name: numbers for name, numbers in lists.items() if numbers}


def decide(
    queue: list[tuple[int, float]],
    *allocations: Having,
    now: float = 0.0,
    queued_at: float = 0.0,
    options: PoolOptions = OPTIONS,
    **fields: Any,
) -> dict[str, list[int]]:
    jobs = [job(*each, queued_at) for each in queue]
    return actions(PoolDecision(options, view_of(now, jobs, allocations, **fields)))


def test_a_waiting_job_gets_its_nodes_by_one_allocation() -> None:
    assert decide([(10, HOUR)]) == {"submit": [3]}


def test_an_idle_pool_submits_nothing() -> None:
    assert decide([]) == {}


def test_the_backlog_limits_the_queued_allocations() -> None:
    assert decide([(4, HOUR)] * 3) == {"submit": [1]}
    assert decide([(4, HOUR)] * 3, queued(1)) == {}
    two = msgspec.structs.replace(OPTIONS, backlog=2)
    assert decide([(4, HOUR)] * 3, queued(1), options=two) == {"submit": [1]}


def test_small_allocations_are_combined_up_to_their_usual_size() -> None:
    pairs = msgspec.structs.replace(OPTIONS, allocation_nodes=2)
    assert decide([(4, HOUR)] * 3, options=pairs) == {"submit": [2]}
    assert decide([(4, HOUR)], options=pairs) == {"submit": [1]}


def test_jobs_that_share_a_node_need_one() -> None:
    three = msgspec.structs.replace(OPTIONS, backlog=3)
    assert decide([(1, HOUR)] * 4, options=three) == {"submit": [1]}


def test_a_job_longer_than_an_allocation_needs_nothing() -> None:
    assert decide([(4, 3 * HOUR)]) == {}
    assert decide([(33, HOUR)]) == {}


def test_idle_processors_serve_only_jobs_that_end_before_the_allocation() -> None:
    assert decide([(4, HOUR)], running(1), now=HOUR) == {}
    assert decide([(4, HOUR)], running(1), now=HOUR + 1) == {"submit": [1]}


def test_idle_processors_that_a_wait_would_outlast_are_not_counted_for_a_larger_job() -> None:
    assert decide([(8, HOUR)], running(1)) == {"submit": [1]}
    assert decide([(8, HOUR)], running(1), now=1800.0, wait_s=1801.0) == {"submit": [2]}


def test_a_job_for_which_there_is_no_room_keeps_what_it_can_use() -> None:
    full = [running(number, idle=0, unneeded_since=None) for number in range(1, 8)]
    idle = running(8, unneeded_since=0.0)
    assert decide([(12, HOUR)], *full, idle, now=HOUR) == {}


def test_a_large_job_that_waited_too_long_gets_its_nodes_before_those_behind_it() -> None:
    busy = [running(number, idle=0) for number in range(1, 6)]
    idle = running(6, unneeded_since=0.0, ends_at=2 * HOUR + 600)
    jobs = [(32, HOUR), (4, 60.0)]
    assert decide(jobs, *busy, idle, now=2 * HOUR) == {}
    assert decide([*jobs, (4, 900.0)], *busy, idle, now=2 * HOUR) == {"submit": [1]}
    # The large job has waited for longer than the time limit, so the short-lived node is given up.
    assert decide(jobs, *busy, idle, now=2 * HOUR + 1) == {"release": [6]}


def test_an_allocation_is_released_when_it_was_idle_for_the_timeout() -> None:
    assert decide([], running(1, unneeded_since=100.0), now=399.0) == {}
    assert decide([], running(1, unneeded_since=100.0), now=400.0) == {"release": [1]}
    assert decide([], running(1, idle=3, unneeded_since=None), now=HOUR) == {}


def test_queued_allocations_are_cancelled_before_running_ones_are_released() -> None:
    idle, young = running(1, unneeded_since=0.0), queued(2, unneeded_since=380.0)
    assert decide([], idle, young, now=400.0) == {}
    assert decide([], idle, young, now=410.0) == {"cancel": [2], "release": [1]}


def growing(processors: int, remaining_s: float = HOUR) -> list[Growth]:
    return [Growth(1, 4, processors, remaining_s)]


def test_nodes_are_planned_for_running_jobs_behind_the_queue() -> None:
    assert decide([], growing=growing(6)) == {"submit": [2]}
    assert decide([], queued(1), growing=growing(4)) == {}
    assert decide([], running(1, idle=2), growing=growing(4)) == {"submit": [1]}
    assert decide([(2, HOUR)], growing=growing(2)) == {"submit": [1]}
    three = msgspec.structs.replace(OPTIONS, backlog=3)
    both = {"submit": [1, 2]}
    assert decide([(4, HOUR)], options=three, growing=growing(8)) == both


def test_nodes_that_come_too_late_or_are_too_few_are_not_planned_for_running_jobs() -> None:
    assert decide([], growing=growing(4, 500.0), wait_s=600.0) == {}
    assert decide([], growing=growing(40)) == {}
    # A queued job that has waited for longer than a time limit comes first.
    long_ago = {"now": 3 * HOUR, "queued_at": 0.0}
    held = running(1, idle=0, ends_at=4 * HOUR)
    assert decide([(32, HOUR)], held, growing=growing(4), **long_ago) == {}


def test_an_idle_allocation_is_not_kept_for_a_running_job() -> None:
    idle = running(1, unneeded_since=0.0)
    assert decide([], idle, now=300.0, growing=growing(4)) == {"release": [1]}


def test_nothing_is_submitted_just_after_a_cancellation() -> None:
    assert decide([(4, HOUR)], now=100.0, cancelled_at=80.0) == {}
    assert decide([(4, HOUR)], now=110.0, cancelled_at=80.0) == {"submit": [1]}


def test_a_paused_pool_submits_nothing_and_still_releases() -> None:
    answer = decide([(4, HOUR)], running(1, unneeded_since=0.0), now=1.9 * HOUR, not_before=inf)
    assert answer == {"release": [1]}


def test_the_least_number_of_nodes_is_kept() -> None:
    least = msgspec.structs.replace(OPTIONS, min_nodes=1)
    assert decide([], options=least) == {"submit": [1]}
    idle = [running(number, unneeded_since=0.0) for number in (1, 2)]
    assert decide([], *idle, now=HOUR, options=least) == {"release": [2]}


def test_free_processors_outside_the_pool_serve_the_queue_first() -> None:
    assert decide([(4, HOUR)], elsewhere=8, free_elsewhere=4) == {}
    assert decide([(6, HOUR)], elsewhere=8, free_elsewhere=4) == {"submit": [1]}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nodes": "8"}, "needs time_limit"),
        ({"nodes": "0", "time_limit": "1:00:00"}, "max_nodes must be >= 1"),
        ({"nodes": "3-2", "time_limit": "1:00:00"}, "min_nodes must be from 0"),
        ({"nodes": "few", "time_limit": "1:00:00"}, "'few' is not MAX or MIN-MAX"),
        ({"nodes": "8", "time_limit": "soon"}, "time_limit: 'soon' is not a time"),
        ({"nodes": "8", "time_limits": "1:00:00"}, "did you mean"),
        ({"nodes": "8", "time_limit": "1:00:00", "backlog": "-1"}, "'-1' is not a whole number"),
        ({"nodes": "8", "time_limit": "1:00:00", "grow_running": "1"}, "neither yes nor no"),
        ({"nodes": "8", "time_limit": "1:00", "margin": "2:00"}, "time_limit_s must be > 0"),
    ],
)
def test_a_wrong_option_is_named(values: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_pool_options(values)


def test_options_are_read_from_texts() -> None:
    texts = {
        "nodes": "1-8",
        "time_limit": "2:00:00",
        "idle_timeout": "5:00",
        "processors": "4",
        "margin": "0",
    }
    assert parse_pool_options(texts) == msgspec.structs.replace(OPTIONS, min_nodes=1)


@st.composite
def some_options(draw: st.DrawFn) -> PoolOptions:
    most = draw(st.integers(1, 6))
    return PoolOptions(
        max_nodes=most,
        min_nodes=draw(st.just(0) | st.integers(0, most)),
        time_limit_s=draw(st.sampled_from([600.0, HOUR])),
        processors=draw(st.integers(1, 4)),
        backlog=draw(st.integers(1, 3)),
        idle_timeout_s=draw(st.sampled_from([0.0, 60.0, 300.0])),
        hysteresis_s=draw(st.sampled_from([0.0, 30.0])),
        allocation_nodes=draw(st.integers(1, 3)),
    )


@st.composite
def some_view(draw: st.DrawFn, options: PoolOptions) -> PoolView:
    now = 10_000.0
    allocations: list[Having] = []
    room = options.max_nodes
    for number in range(1, draw(st.integers(0, 4)) + 1):
        nodes = draw(st.integers(1, 3))
        if nodes > room:
            break
        room -= nodes
        state = draw(st.just(S.RUNNING) | st.sampled_from(S))
        is_up = state in (S.RUNNING, S.LEAVING)
        own = nodes * options.processors
        idle = draw(st.sampled_from([0, own, own]) | st.integers(0, own)) if is_up else 0
        held = own - idle if is_up else 0
        ends_at = now + draw(st.floats(0, options.time_limit_s)) if is_up else inf
        ages = st.none() | st.just(now - 1000) | st.floats(0, 1000).map(lambda age: now - age)
        one = allocation(number, state, nodes, ends_at=ends_at, unneeded_since=draw(ages))
        allocations.append(Having(one, idle, held))
    jobs = st.tuples(st.integers(1, 30), st.floats(1, 2 * HOUR), st.floats(0, now))
    queue = [job(*each) for each in draw(st.just([]) | st.lists(jobs, max_size=5))]
    growing = st.builds(Growth, *[st.integers(1, 9)] * 3, st.floats(0, HOUR))
    return view_of(
        now,
        queue,
        allocations,
        wait_s=draw(st.sampled_from([0.0, 100.0, HOUR])),
        cancelled_at=draw(st.sampled_from([-inf, now - 10, now - 100])),
        not_before=draw(st.sampled_from([-inf, now, now + 60, inf])),
        elsewhere=4,
        free_elsewhere=draw(st.integers(0, 4)),
        growing=draw(st.just([]) | st.lists(growing, max_size=3)),
    )


def test_what_holds_for_every_decision() -> None:
    seen: Counter[str] = Counter()

    @examples(2000)
    @given(st.data())
    def search(data: st.DataObject) -> None:
        options = data.draw(some_options())
        check_decision(options, data.draw(some_view(options)), seen)

    search()
    assert min(seen[kind] for kind in ("submit", "cancel", "release")) >= 3, seen


def check_decision(options: PoolOptions, view: PoolView, seen: Counter[str]) -> None:
    """Check a decision, and count its actions."""
    answer = PoolDecision(options, view)
    for kind, numbers in actions(answer).items():
        seen[kind] += len(numbers)
    assert actions(PoolDecision(options, view)) == actions(answer)
    by_number = {each.number: each for each in view.allocations}

    # Never more than asked for: nodes in all, and allocations in the queue of the batch system.
    nodes = sum(len(each.nodes) for each in view.allocations)
    assert nodes + sum(answer.submit) <= options.max_nodes
    waiting = sum(each.state in WAITING for each in view.allocations)
    assert not answer.submit or waiting + len(answer.submit) <= options.backlog
    assert all(each >= 1 for each in answer.submit)

    # Back-off, pause and hysteresis.
    if answer.submit:
        assert view.not_before <= view.now
        assert view.cancelled_at + options.hysteresis_s <= view.now
        assert not answer.cancel
    for number in answer.cancel:
        each = by_number[number]
        assert each.state is S.QUEUED
        since = view.now if each.unneeded_since is None else each.unneeded_since
        assert view.now - since >= options.hysteresis_s

    # What is released is idle; queued allocations that are not needed are cancelled first.
    for number in answer.release:
        each = by_number[number]
        assert each.state is S.RUNNING
        assert view.held[number] == 0
        since = view.now if each.unneeded_since is None else each.unneeded_since
        assert view.now - since >= options.idle_timeout_s
    if answer.release:
        waiting_in_vain = {
            each.number
            for each in view.allocations
            if each.state in WAITING and each.number in answer.unneeded
        }
        assert waiting_in_vain <= {*answer.cancel}

    # The pool keeps its least number of nodes, as far as it has them.
    gone = (*answer.cancel, *answer.release)
    left = nodes - sum(len(by_number[number].nodes) for number in gone)
    leaving = sum(len(each.nodes) for each in view.allocations if each.state is S.LEAVING)
    assert left - leaving >= min(options.min_nodes, nodes - leaving)

    # A moment at which to ask again lies in the future.
    assert answer.next_at > view.now


@given(st.data())
def test_without_demand_the_pool_shrinks_to_its_least_nodes(data: st.DataObject) -> None:
    options = data.draw(some_options())
    view = data.draw(some_view(options))
    idle = [
        Having(
            allocation(each.number, S.RUNNING, len(each.nodes), unneeded_since=0.0),
            len(each.nodes) * options.processors,
        )
        for each in view.allocations
    ]
    released = PoolDecision(options, view_of(view.now, [], idle)).release
    kept = [len(e.allocation.nodes) for e in idle if e.allocation.number not in released]
    assert not kept or sum(kept) - max(kept) < options.min_nodes
