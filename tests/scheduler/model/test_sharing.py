"""Penalties of shared nodes: the formulas, the worked example, and a slow twin of both readings."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import inf
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.procset import ProcSet
from scheduler.model.sharing import Demand, SharedCapacity, SharedNodes, Windows

NODE = SharedCapacity(4, {"memory_bandwidth": 6000})


def test_penalty_of_full_demand() -> None:
    assert NODE.penalty((8000.0,)) == pytest.approx(8 / 6 - 1)
    assert NODE.penalty((6000.0,)) == NODE.penalty((500.0,)) == 0
    ratio = SharedCapacity(4, {"memory_bandwidth": 6000}, "ratio")
    assert ratio.penalty((8000.0,)) == pytest.approx(8 / 6)
    assert ratio.penalty((6000.0,)) == 0


def test_penalties_of_several_resources_add_up() -> None:
    node = SharedCapacity(2, {"memory_bandwidth": 100, "network": 10})
    assert node.penalty((150.0, 20.0)) == pytest.approx(0.5 + 1)
    assert node.penalty((50.0, 20.0)) == pytest.approx(1)


def test_demands_by_direction() -> None:
    both = {"memory_bandwidth.read": 300, "memory_bandwidth.write": 200, "disk": 7}
    assert NODE.demand(both) == (500.0,)
    apart = SharedCapacity(4, {"memory_bandwidth.read": 6000, "memory_bandwidth.write": 3000})
    assert apart.demand(both) == (300.0, 200.0)
    assert NODE.demand({}) == (0.0,)


def test_nodes_that_a_set_fills() -> None:
    assert NODE.processes(ProcSet.parse("0-3")) == ({}, 1)
    assert NODE.processes(ProcSet.parse("2-9 12 14-15")) == ({0: 2, 2: 2, 3: 3}, 1)
    assert NODE.processes(ProcSet.parse("0-1 3 8-19")) == ({0: 3}, 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((0, {"b": 1}), "processors_per_node must be >= 1, got 0"),
        ((4, {"b": 0}), "the capacity of b must be > 0, got 0"),
        ((4, {"b": 1}, "square"), "penalty must be excess or ratio, got 'square'"),
    ],
)
def test_wrong_capacities(wrong: tuple[int, dict[str, float], str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SharedCapacity(*wrong)  # type: ignore[arg-type]


def test_unknown_windows() -> None:
    with pytest.raises(ValueError, match="windows must be table or changes, got 'none'"):
        SharedNodes(NODE, "none")  # type: ignore[arg-type]


def test_example_of_figures_6_7_to_6_9() -> None:
    """Three jobs on two nodes of five processors, as in figure 6.3 (GUIM 6.2.2, 6.2.5).

    The figures are lost; times and demands are ours. Window 2 is that of jobs 1 and 2 on node 1,
    window 5 that of jobs 2 and 3 on node 2. Job 2 gets the larger one of their penalties.
    """
    nodes = SharedNodes(SharedCapacity(5, {"memory_bandwidth": 100}))
    assert nodes.start(1, ProcSet.span(0, 3), (30.0,), 30.0, 0.0) == [1]
    # Job 2 has two processors on each node: 90 + 40 on node 1 from 10 to 30.
    assert nodes.start(2, ProcSet.span(3, 4), (20.0,), 30.0, 10.0) == [2, 1]
    p1 = 0.3 * (30 - 10)
    assert nodes.jobs[1].ends == pytest.approx(30 + p1)
    assert nodes.jobs[2].ends == pytest.approx(40 + p1)
    # 40 + 70 on node 2 from 10 to 40, less than the penalty on node 1.
    assert nodes.start(3, ProcSet.span(9, 1), (70.0,), 60.0, 10.0) == [3]
    p2 = 0.1 * (40 - 10)
    assert nodes.jobs[3].ends == pytest.approx(70 + p2)
    assert nodes.jobs[2].ends == pytest.approx(40 + max(p1, p2))


def test_a_prolonged_job_is_a_neighbour_by_the_reading_of_changes_alone() -> None:
    ends = {}
    for windows in ("table", "changes"):
        nodes = SharedNodes(SharedCapacity(4, {"memory_bandwidth": 100}), windows)
        nodes.start(1, ProcSet.span(0, 2), (50.0,), 10.0, 0.0)
        nodes.start(2, ProcSet.span(2, 2), (50.0,), 100.0, 0.0)
        assert nodes.jobs[1].ends == 20
        nodes.end(1, 20.0)
        ends[windows] = nodes.jobs[2].ends
    assert ends == {"table": 110, "changes": 110}  # 10 s of penalty in both...
    for windows in ("table", "changes"):
        nodes = SharedNodes(SharedCapacity(4, {"memory_bandwidth": 100}), windows)
        nodes.start(1, ProcSet.span(0, 2), (50.0,), 10.0, 0.0)
        nodes.start(2, ProcSet.span(2, 1), (100.0,), 100.0, 0.0)
        nodes.start(3, ProcSet.span(3, 1), (0.0,), 100.0, 15.0)
        nodes.end(1, nodes.jobs[1].ends)
        ends[windows] = nodes.jobs[3].ends
    assert ends == {"table": 115, "changes": 117.5}  # ... but only one here


def test_a_job_that_ends_early_frees_its_neighbours() -> None:
    for windows in ("table", "changes"):
        nodes = SharedNodes(SharedCapacity(4, {"memory_bandwidth": 100}), windows)
        nodes.start(1, ProcSet.span(0, 2), (50.0,), 100.0, 0.0)
        nodes.start(2, ProcSet.span(2, 2), (50.0,), 100.0, 0.0)
        assert nodes.jobs[2].ends == 200
        assert nodes.end(1, 10.0) == [2]
        assert nodes.jobs[2].ends == (110 if windows == "table" else 105)


class Step(NamedTuple):
    """Something that happens: a job starts, or a running one is ended early."""

    wait: int
    processors: frozenset[int]
    demand: int
    run: int
    killed: int


STEPS = st.lists(
    st.builds(
        Step,
        wait=st.integers(0, 8),
        processors=st.frozensets(st.integers(0, 11), min_size=1, max_size=9),
        demand=st.integers(0, 80),
        run=st.integers(1, 30),
        killed=st.sampled_from([0, 0, 0, 0, 1, 2]),
    ),
    max_size=12,
)


class Past(NamedTuple):
    """A job of the twin: it keeps its whole past."""

    processors: frozenset[int]
    demand: int
    run: int
    begin: Fraction
    end: Fraction | None  # if it was ended early


def _penalty(jobs: list[Past], node: int, capacity: int) -> Fraction:
    demand = sum(job.demand * sum(p // 4 == node for p in job.processors) for job in jobs)
    return max(Fraction(demand, capacity), Fraction(1)) - 1


def table_end(jobs: dict[int, Past], number: int, capacity: int) -> Fraction:
    """End of a job by windows in which all jobs, also past ones, run without penalties."""
    job = jobs[number]

    def until(each: Past) -> Fraction:
        end = each.begin + each.run
        return end if each.end is None else min(end, each.end)

    sums = []
    for node in {p // 4 for p in job.processors}:
        here = [each for each in jobs.values() if any(p // 4 == node for p in each.processors)]
        times = sorted({t for each in here for t in (each.begin, until(each))})
        total = Fraction(0)
        for begin, end in pairwise(times):
            there = [each for each in here if each.begin <= begin and end <= until(each)]
            if job in there:
                total += (end - begin) * _penalty(there, node, capacity)
        sums.append(total)
    return job.begin + job.run + max(sums)


def changes_ends(jobs: dict[int, Past], capacity: int) -> dict[int, Fraction]:
    """Ends of all jobs if every node proceeds by itself: all is simulated from the beginning."""
    nodes = {n: {p // 4 for p in job.processors} for n, job in jobs.items()}
    left = {(n, node): Fraction(job.run) for n, job in jobs.items() for node in nodes[n]}
    done: dict[tuple[int, int], Fraction] = {}
    over = {n: job.begin for n, job in jobs.items() if job.end == job.begin}
    now = Fraction(0)
    while len(over) < len(jobs):
        live = [n for n, job in jobs.items() if job.begin <= now and n not in over]
        factor = {
            node: 1 + _penalty([jobs[n] for n in live if node in nodes[n]], node, capacity)
            for node in range(3)
        }
        times = [job.begin for job in jobs.values() if job.begin > now]
        times += [job.end for n, job in jobs.items() if n not in over and job.end is not None]
        open_parts = [(n, node) for n in live for node in nodes[n] if left[n, node] > 0]
        times += [now + left[part] * factor[part[1]] for part in open_parts]
        then = min(time for time in times if time > now) if live or times else now
        for part in open_parts:
            left[part] -= (then - now) / factor[part[1]]
            if left[part] <= 0:
                done[part] = then
        now = then
        for n in live:
            job = jobs[n]
            if job.end is not None and job.end <= now:
                over[n] = job.end
            elif all(left[n, node] <= 0 for node in nodes[n]):
                over[n] = max(done[n, node] for node in nodes[n])
    return over


@given(STEPS, st.sampled_from(["table", "changes"]))
def test_ends_are_those_of_the_slow_twin(steps: list[Step], windows: Windows) -> None:
    """After every start and end, each running job ends when the twin says so."""
    capacity = 128
    nodes = SharedNodes(SharedCapacity(4, {"memory_bandwidth": capacity}), windows)
    past: dict[int, Past] = {}
    now = 0.0

    ended: dict[int, float] = {}

    def check_table() -> None:
        for number, job in nodes.jobs.items() if windows == "table" else ():
            assert job.ends == pytest.approx(float(table_end(past, number, capacity)), rel=1e-9)

    def end_until(time: float) -> None:
        while nodes.jobs and min(job.ends for job in nodes.jobs.values()) <= time:
            first = min(nodes.jobs.values(), key=lambda job: job.ends)
            ended[first.number] = first.ends
            nodes.end(first.number, first.ends)

    for number, step in enumerate(steps, 1):
        now += step.wait
        end_until(now)
        if step.killed and nodes.jobs:
            victim = sorted(nodes.jobs)[step.killed % len(nodes.jobs)]
            nodes.end(victim, now)
            past[victim] = past[victim]._replace(end=Fraction(now))
            check_table()
        held = {p for n in nodes.jobs for p in past[n].processors}
        processors = step.processors - held
        if not processors:
            continue
        past[number] = Past(processors, step.demand, step.run, Fraction(now), None)
        demand: Demand = (float(step.demand),)
        changed = nodes.start(number, ProcSet.of(processors), demand, float(step.run), now)
        assert changed[0] == number
        check_table()
    end_until(inf)
    twin = changes_ends(past, capacity) if windows == "changes" else None
    for number, at in ended.items():
        expected = table_end(past, number, capacity) if twin is None else twin[number]
        assert at == pytest.approx(float(expected), rel=1e-9)
