"""The simulator: a small run to read, conservation, costs, determinism, and known schedules."""

from __future__ import annotations

import gzip
from collections import Counter
from itertools import count, pairwise
from math import inf
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import SHARED

from reshape.speedup import Amdahl, Prio
from reshape.topology import Topology
from scheduler.core.core import Core
from scheduler.model.events import Event, JobSpec, ResizePoint
from scheduler.model.machine import Machine
from scheduler.model.orders import Order
from scheduler.policies.queue_orders.aging import CLASSES
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from simulator.engine.costs import Costs, ProcessStarts, ResizeCost, StepTime
from simulator.engine.engine import Engine
from simulator.engine.jobs import SimJob
from simulator.results.schedule import Schedule
from simulator.workload_models.workload import PrioWorkload

SMALL_RUN = Path(__file__).parent / "golden" / "small_run.txt"
KNOWN = SHARED / "golden"
STEP_2 = Topology("arbitrary", step=2)
COST = ResizeCost(start_s=4.0, join_s=0.25, bytes_per_s=1e9)


def simulate(chosen: Scenario, jobs: list[SimJob], processors: int, **options: object) -> Schedule:
    core = Core(chosen, Machine([("node", processors)]))
    return Engine(core, jobs, **options).run()  # type: ignore[arg-type]


def grows(at: float, start: int, most: int, iterations: int, seconds: float = 10.0) -> SimJob:
    """Build a job that scales perfectly and moves 0.5 s' worth of data."""
    spec = JobSpec(start, 1000.0, most, STEP_2)
    return SimJob(at, spec, iterations * seconds, iterations, Amdahl(0.0), data_bytes=500_000_000)


def small_workload() -> list[SimJob]:
    return [
        grows(0.0, 2, 6, 9),
        SimJob(1.0, JobSpec(3, 100.0), 15.0),
        SimJob(30.0, JobSpec(5, 50.0), 20.0),
        SimJob(31.0, JobSpec(2, 5.0), 60.0),  # outlives its walltime
        SimJob(32.0, JobSpec(9, 5.0), 1.0),  # larger than the machine
    ]


def diary(jobs: list[SimJob], **options: object) -> str:
    lines: list[str] = []

    def watch(now: float, events: list[Event], orders: list[Order]) -> None:
        for event in events:
            facts = msgspec.to_builtins(event)
            told = {k: v for k, v in facts.items() if k in ("job", "serial", "iteration")}
            lines.append(
                f"{now:8.3f}  {facts['type']} {' '.join(map(str, told.values()))}".rstrip()
            )
        for order in orders:
            facts = msgspec.to_builtins(order)
            told = [facts[k] for k in ("job", "serial", "to", "groups", "at") if k in facts]
            reason = f"  | {order.reason}" if hasattr(order, "reason") else ""
            lines.append(f"{'':8}    -> {facts['type']} {' '.join(map(str, told))}{reason}")

    found = simulate(
        scenario("fcfs-pr"), jobs, 8, costs=Costs.constant(COST), watch=watch, **options
    )
    for number, held in found.sizes.items():  # in the order of their ends
        sizes = " ".join(f"{size}@{time:g}" for time, size in held)
        state = "TIMEOUT" if found.killed[number - 1] else "COMPLETED"
        lines.append(
            f"job {number} {state} wait {found.wait[number - 1]:g} "
            f"execution {found.run_s[number - 1]:g} sizes {sizes}"
        )
    lines += [f"{name} {value}" for name, value in msgspec.to_builtins(found.metrics()).items()]
    return "\n".join(lines) + "\n"


def test_a_small_run_to_read(rewrite: bool) -> None:
    text = diary(small_workload())
    if rewrite:
        SMALL_RUN.write_text(text)
    assert text == SMALL_RUN.read_text(), "the run is another; see --rewrite"


def test_the_same_input_gives_the_same_bytes() -> None:
    assert diary(small_workload()) == diary(small_workload())
    first, second = (
        simulate(scenario("fcfs-pr"), PrioWorkload().generate(np.random.default_rng(5)), 400)
        for _ in range(2)
    )
    assert repr(first) == repr(second)


def test_what_a_resize_costs() -> None:
    """One job alone: its end is the sum of iterations and pauses."""
    found = simulate(scenario("fcfs-pr"), [grows(0, 2, 4, 4)], 8, costs=Costs.constant(COST))
    # Two iterations on 2 (the group comes up during the second), join and move, two on 4.
    assert found.sizes == {1: ((0.0, 2), (20.75, 4))}
    assert found.ended.tolist() == [20.75 + 2 * 5.0]
    slow = Costs.constant(msgspec.structs.replace(COST, start_s=11.0))
    found = simulate(scenario("fcfs-pr"), [grows(0, 2, 4, 4)], 8, costs=slow)
    assert found.sizes == {1: ((0.0, 2), (30.75, 4))}, "not there at 20, so it joins at 30"
    found = simulate(scenario("fcfs-pr"), [grows(0, 2, 4, 4)], 8)
    assert found.sizes == {1: ((0.0, 2), (10.0, 4))}, "without cost: at the resize point itself"
    slow_start = Costs.constant(ResizeCost(), start_s=1.5)
    found = simulate(scenario("fcfs-pr"), [grows(0, 2, 4, 4)], 8, costs=slow_start)
    assert found.ended.tolist() == [1.5 + 10 + 3 * 5]


def test_costs_by_the_number_of_processes() -> None:
    cost = Costs(
        start=StepTime(0.25, 0.5),
        end=StepTime(0.0, 0.25),
        point=StepTime(0.0, 0.0625),
        group=StepTime(1.0, 4.5),
        join=StepTime(0.0, 0.125),
    )
    rigid = SimJob(0.0, JobSpec(4, 100.0), 10.0)
    found = simulate(scenario("fcfs-pr"), [grows(0, 2, 4, 4), rigid], 8, costs=cost)
    # All 6 processes come up together, by 3.25. Two iterations on 2 of 10.125 s with their points
    # (the group of 2 takes 10 s, up at 23.375), join 0.5 s, two on 4 of 5.25 s, end of 4 processes.
    assert found.sizes[1] == ((0.0, 2), (24.0, 4))
    assert found.ended.tolist() == [24.0 + 2 * 5.25 + 1.0, 3.25 + 10.0 + 1.0]


def test_what_comes_up_together_shares_the_cores() -> None:
    coming = ProcessStarts()
    coming.begin(0.0, 2, 1.0, "first")
    assert coming.next_at() == 2.0
    coming.begin(1.0, 2, 1.0, "second")  # the first have been given half of what they need
    assert coming.next_at() == 3.0
    assert coming.up(3.0) == ["first"]
    assert coming.next_at() == 4.0, "in which the second, alone, get the rest"
    assert coming.up(4.0) == ["second"]
    assert not coming


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 16), st.floats(0.01, 2)), min_size=1))
def test_whatever_comes_up_no_core_is_idle_and_no_work_is_lost(
    launches: list[tuple[float, int, float]],
) -> None:
    coming, up, busy_until = ProcessStarts(), {}, 0.0
    for number, (at, processes, each_s) in enumerate(sorted(launches)):
        while coming and coming.next_at() <= at:
            now = coming.next_at()
            up |= dict.fromkeys(coming.up(now), now)
        coming.begin(at, processes, each_s, number)
        busy_until = max(busy_until, at) + processes * each_s
    while coming:
        now = coming.next_at()
        up |= dict.fromkeys(coming.up(now), now)
    assert max(up.values()) == pytest.approx(busy_until)
    for number, (at, processes, each_s) in enumerate(sorted(launches)):
        assert up[number] >= at + processes * each_s - 1e-6, "never faster than alone"


def test_a_job_that_is_ended_while_it_comes_up() -> None:
    cost = Costs(start=StepTime(0.0, 10.0))
    jobs = [SimJob(0.0, JobSpec(2, 5.0), 10.0), SimJob(0.0, JobSpec(4, 100.0), 1.0)]
    found = simulate(scenario("easy"), jobs, 8, costs=cost)
    first, second = found.ended.tolist()
    assert first == 5.0
    assert second == 60.0 + 1.0, "what the ended one began is not taken back"


def test_processors_are_free_when_the_processes_that_left_are_gone() -> None:
    workload = [grows(0, 2, 6, 14), SimJob(42.0, JobSpec(4, 100.0), 30.0)]
    at_once = simulate(scenario("fcfs-pr"), workload, 6)
    later = simulate(scenario("fcfs-pr"), workload, 6, costs=Costs(leave=StepTime(1.0, 0.5)))
    assert at_once.wait[1] > 0, "it waits for a contraction"
    assert later.wait[1] == pytest.approx(at_once.wait[1] + 1.0 + 2 * 0.5), "2 left last"
    assert later.ended[0] == pytest.approx(at_once.ended[0]), "the job that shrinks computes on"


def test_measured_times_are_drawn() -> None:
    cost = Costs(start=StepTime(2.0, 0.0, (0.5, 1.5)))

    def end(seed: int | None) -> float:
        rng = None if seed is None else np.random.default_rng(seed)
        found = simulate(scenario("easy"), [grows(0, 2, 2, 1)], 8, costs=cost, rng=rng)
        return found.ended.item()

    assert end(None) == 12.0
    assert {end(seed) for seed in range(20)} == {11.0, 13.0}
    assert end(3) == end(3)


measured = st.lists(st.tuples(st.integers(1, 16), st.floats(0, 100)), min_size=1, max_size=12)


@given(measured)
def test_a_fit_is_the_best_that_is_not_negative(times: list[tuple[int, float]]) -> None:
    fit = StepTime.fitted(times)

    def miss(fixed_s: float, each_s: float) -> float:
        return sum((fixed_s + each_s * n - seconds) ** 2 for n, seconds in times)

    assert fit.fixed_s >= 0 <= fit.each_s
    least = miss(fit.fixed_s, fit.each_s)
    for fixed_s in (0.0, fit.fixed_s * 0.99, fit.fixed_s * 1.01, fit.fixed_s + 0.01):
        for each_s in (0.0, fit.each_s * 0.99, fit.each_s * 1.01, fit.each_s + 0.001):
            assert miss(fixed_s, each_s) >= least * (1 - 1e-6) - 1e-6
    if fit.spread:
        assert np.mean(fit.spread) == pytest.approx(1.0)
        assert min(fit.spread) >= 0


def test_a_fit_of_a_line_is_the_line() -> None:
    fit = StepTime.fitted([(n, 0.25 + 0.125 * n) for n in (2, 4, 8)])
    assert (fit.fixed_s, fit.each_s) == pytest.approx((0.25, 0.125))
    assert fit.of(16) == pytest.approx(2.25)
    assert StepTime.fitted([]) == StepTime.fitted([(2, 0.0)]) == StepTime()


jobs = st.builds(
    lambda at, start, more, iterations, seconds, walltime_s, serial: SimJob(
        at,
        JobSpec(start, walltime_s, start + more, Topology()),
        iterations * seconds,
        iterations,
        Amdahl(serial),
        10**9,
    ),
    st.integers(0, 40).map(float),
    st.integers(1, 8),
    st.sampled_from([0, 2, 5]),
    st.integers(1, 6),
    st.sampled_from([1.0, 2.5, 10.0]),
    st.sampled_from([5.0, 30.0, 300.0]),
    st.sampled_from([0.0, 0.1, 1.0]),
)
scenarios = st.sampled_from(
    ["easy", "fcfs", "conservative", "static", "pba-pr", "fcfs-pr", "max-b-pr", "pba"]
)
costs = st.builds(
    ResizeCost,
    st.sampled_from([0.0, 3.0]),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([inf, 1e9]),
)


@given(st.lists(jobs, max_size=12), scenarios, costs)
def test_conservation(workload: list[SimJob], name: str, cost: ResizeCost) -> None:
    """Every job ends once, after its work or at its walltime; processor time adds up."""
    found = simulate(scenario(name), workload, 8, costs=Costs.constant(cost))
    assert sorted(found.sizes) == list(range(1, len(workload) + 1))
    times = zip(found.started.tolist(), found.ended.tolist(), found.run_s.tolist(), strict=True)
    held_s = 0.0
    for index, (job, (started, ended, execution_s)) in enumerate(
        zip(sorted(workload, key=lambda job: job.at), times, strict=True)
    ):
        assert job.at <= started <= ended
        sizes = found.sizes[index + 1]
        held_s += sum((b[0] - a[0]) * a[1] for a, b in pairwise([*sizes, (ended, 0)]))
        if found.killed[index]:
            assert execution_s == pytest.approx(job.spec.walltime_s)
        else:
            assert execution_s <= job.spec.walltime_s + 1e-9
            if len(sizes) == 1:
                assert execution_s == pytest.approx(job.run_s)
    if cost.start_s == 0 and cost.join_s == 0 and cost.bytes_per_s == inf:
        assert found.held_s == pytest.approx(held_s)
    else:
        assert found.held_s >= held_s - 1e-6, "a group that comes up is held, too"
    metrics = found.metrics()
    assert metrics.jobs == len(workload)
    assert not workload or 0 < metrics.utilization <= 1 + 1e-9


def test_resizing_beats_static_on_the_papers_workload() -> None:
    """PRIO 4.2, a few mixes: the resizable runs are better on the mean of every claim."""
    static, resized = [], []
    for seed in range(4):
        workload = PrioWorkload().generate(np.random.default_rng(seed))
        static.append(simulate(scenario("easy"), workload, 400).metrics())
        resized.append(simulate(scenario("fcfs-pr"), workload, 400).metrics())
    assert all(m.jobs == 120 and m.killed == m.unstarted == 0 for m in static + resized)
    assert all(m.expansions > 50 and m.contractions > 0 for m in resized)
    assert all(m.expansions == m.contractions == 0 for m in static)

    def mean(of: list, name: str) -> float:
        return float(np.mean([getattr(m, name) for m in of]))

    assert mean(static, "mean_execution_s") == pytest.approx(140.0)  # (56 + 140 + 224) / 3
    for name in ("mean_turnaround_s", "mean_execution_s", "mean_wait_s"):
        assert mean(resized, name) < mean(static, name)
    assert mean(resized, "utilization") > mean(static, "utilization")


def known_schedule(name: str, *, exact: bool = False) -> tuple[list[SimJob], list[int]]:
    """Jobs of a schedule that others computed, and the waits they found."""
    rows = []
    with gzip.open(KNOWN / name, "rt") as file:
        for line in file:
            if not line.startswith(";"):
                number, at, wait, run_s, processors, *rest = line.split()
                walltime_s = run_s if exact else rest[3]
                rows.append((int(at), int(number), int(wait), int(run_s), processors, walltime_s))
    rows.sort()
    workload = [
        SimJob(at, JobSpec(int(processors), float(walltime_s)), min(run_s, int(walltime_s)))
        for at, _, _, run_s, processors, walltime_s in rows
    ]
    return workload, [row[2] for row in rows]


@pytest.mark.skipif(not KNOWN.is_dir(), reason="known schedules are not beside the repository")
@pytest.mark.parametrize("exact", [False, True])
def test_every_start_of_a_known_schedule(exact: bool) -> None:
    workload, waits = known_schedule(f"KTH-SP2.easy{'-exact' * exact}.swf.gz", exact=exact)
    core = Core(
        scenario("easy"), Machine([("SP2", 100)]), kill_at_walltime=False, order="sequential"
    )
    assert Engine(core, workload).run().wait.tolist() == waits


def test_prio_readings() -> None:
    assert Prio(0.8).factor(10, 20) == pytest.approx(1.741, abs=1e-3)
    assert Prio(0.8, "printed").factor(10, 40) == pytest.approx(27.86, abs=1e-2)
    best = max(range(400, 2001, 4), key=lambda size: Prio(0.75).factor(400, size))
    assert 2.5 < best / 400 < 3.5  # figure 2: peaks near three times, then falls
    assert Amdahl(0.5).factor(1, 10**9) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Prio(0.0), "alpha must be > 0 and <= 1, got 0.0"),
        (lambda: Amdahl(1.5), "serial must be >= 0 and <= 1, got 1.5"),
        (lambda: ResizeCost(start_s=-1.0), "start_s must be >= 0 and finite, got -1.0"),
        (lambda: ResizeCost(bytes_per_s=0.0), "bytes_per_s must be > 0, got 0.0"),
        (lambda: PrioWorkload(resizable=1.5), "resizable must be >= 0 and <= 1, got 1.5"),
        (lambda: PrioWorkload(processors=100), "processors must be >= 136, got 100"),
        (lambda: PrioWorkload(jobs=-1), "jobs must be >= 0, got -1"),
        (lambda: PrioWorkload(iterations=0), "iterations must be >= 1, got 0"),
        (lambda: SimJob(0.0, JobSpec(1, 1.0), -1.0), "run_s must be >= 0, got -1.0"),
        (lambda: SimJob(0.0, JobSpec(1, 1.0), 1.0, 0), "iterations must be >= 1, got 0"),
        (lambda: JobSpec(0, 1.0), "processors must be >= 1, got 0"),
        (lambda: JobSpec(1, 0.0), "walltime_s must be > 0, got 0.0"),
        (lambda: JobSpec(4, 1.0, 2), "max_processors must be >= the 4 it starts on, got 2"),
    ],
    ids=count(),
)
def test_wrong_parameters(make: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()  # type: ignore[operator]


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.25, 1.0]))
def test_the_papers_workload(seed: int, resizable: float) -> None:
    workload = PrioWorkload(resizable=resizable).generate(np.random.default_rng(seed))
    again = PrioWorkload(resizable=resizable).generate(np.random.default_rng(seed))
    assert workload == again
    assert len(workload) == 120
    assert sum(job.spec.resizable for job in workload) == 120 * resizable
    assert [job.at for job in workload] == sorted(job.at for job in workload)
    types = Counter((job.spec.name, job.spec.topology) for job in workload)
    assert sorted(types.values()) == [4, 4, 4, 12, 12, 12, 24, 24, 24]
    for chosen, share in (
        (lambda job: job.spec.resizable, resizable),
        (lambda job: job.spec.user == "platinum", 0.5),
    ):
        some = Counter((job.spec.name, job.spec.topology) for job in workload if chosen(job))
        assert all(some[kind] == share * number for kind, number in types.items())
    everything = PrioWorkload(user_priorities=True).generate(np.random.default_rng(seed))
    assert [(job.at, job.run_s, job.spec.topology, job.spec.user) for job in everything] == [
        (job.at, job.run_s, job.spec.topology, job.spec.user) for job in workload
    ]
    assert {job.spec.priority for job in workload} == {0.0}
    assert {(j.spec.user, j.spec.priority) for j in everything} == {*CLASSES.items()}
    names = [job.spec.name for job in workload]
    assert {name: names.count(name) for name in names} == {"small": 40, "medium": 40, "large": 40}
    kinds = [job.spec.topology.kind for job in workload if job.spec.topology is not None]
    assert (kinds.count("arbitrary"), kinds.count("nearly-square")) == (72, 36)
    for job in workload:
        assert job.spec.topology is not None
        size = job.spec.processors
        assert size in job.spec.topology.valid_sizes(size, size)
        assert job.run_s + 100 == job.spec.walltime_s


malleable_jobs = st.builds(
    lambda at, request, more, iterations, seconds, walltime_s: SimJob(
        at,
        JobSpec(request, walltime_s, request * more, Topology(), min_processors=1),
        iterations * seconds,
        iterations,
        Amdahl(0.02),
    ),
    st.integers(0, 100).map(float),
    st.integers(1, 8),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 60),
    st.sampled_from([0.25, 1.0, 10.0]),
    st.sampled_from([60.0, 1000.0]),
)


@given(
    st.lists(malleable_jobs, max_size=10),
    st.sampled_from([("malleable", {}), ("malleable", {"order": "fcfs"}), ("steady", {})]),
    st.sampled_from([ResizeCost(pause_s=2.0), ResizeCost(start_s=3.0, join_s=0.5)]),
)
def test_points_that_pass_without_events_change_no_schedule(
    jobs: list[SimJob], chosen: tuple[str, dict[str, str]], cost: ResizeCost
) -> None:
    """A watched run has an event for each resize point."""
    points = Counter[int]()

    def watch(now: float, events: list[Event], orders: list[Order]) -> None:
        points.update(event.job for event in events if isinstance(event, ResizePoint))

    costs = Costs.constant(cost)
    alone = simulate(scenario(*chosen), jobs, 8, costs=costs)
    watched = simulate(scenario(*chosen), jobs, 8, costs=costs, watch=watch)
    assert watched.sizes == alone.sizes
    assert watched.started.tolist() == alone.started.tolist()
    assert watched.ended.tolist() == alone.ended.tolist()
    assert watched.held_s == alone.held_s
    in_order = sorted(jobs, key=lambda job: job.at)
    for number, job in enumerate(in_order, start=1):
        if job.spec.resizable and not watched.killed[number - 1]:
            assert points[number] == job.iterations - 1
