"""Advance reservations in simulations: who holds their processors, for all strategies."""

from __future__ import annotations

import json
from collections import Counter
from math import isnan
from pathlib import Path

import msgspec
import pytest
from command_line import invoke
from example_counts import examples
from hypothesis import example, given
from hypothesis import strategies as st
from one_machine import run
from paths import SMALL_TRACE as SMALL

from reshape.errors import ConfigError
from reshape.speedup import parse
from reshape.topology import Topology
from scheduler.core.core import Core
from scheduler.model.events import Event, JobSpec
from scheduler.model.job import JobState
from scheduler.model.orders import Order
from scheduler.model.procset import ProcSet
from scheduler.policies.scenarios import scenario
from scheduler.text.located import Located
from simulator.engine.engine import Engine
from simulator.engine.jobs import SimJob
from simulator.results.schedule import Schedule
from simulator.traces.normalise import Rules
from simulator.traces.swf import read as read_trace
from simulator.workload_models.advance_reservations import (
    PlannedReservation,
    described,
    in_list,
)
from simulator.workload_models.workload import Workload

SCENARIOS = {
    "fcfs": scenario("fcfs"),
    "easy": scenario("easy"),
    "three": scenario("easy", {"backfill.reservations": 3}),
    "conservative": scenario("conservative"),
    "table": scenario("easy", {"selection": "table-first-fit"}),
    "contiguous": scenario("easy", {"selection": "contiguous"}),
    "aging": scenario("easy", {"order": "aging"}),
    "bb": scenario("easy", {"backfill.pick": "bb"}),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_only_jobs_of_the_reservation_run_on_its_processors(name: str) -> None:
    """A part of a trace whose requests are limits of the run times."""
    trace = read_trace(SMALL)
    jobs = run(trace, 64, scenario("easy"), first=150).jobs
    middle = float(jobs.submitted[75])
    own = ProcSet.of(
        int(number)
        for number, size, estimate in zip(
            jobs.numbers[60:90], jobs.processors[60:90], jobs.estimate[60:90], strict=True
        )
        if size <= 20 and estimate < 20000
    )
    planned = [
        PlannedReservation("a", middle, 30000.0, processors=20, jobs=str(own)),
        PlannedReservation("b", middle + 10000, 5000.0, processors=10),
    ]
    schedule = run(trace, 64, SCENARIOS[name], Rules(), first=150, counted=False, advance=planned)
    a, b = schedule.advance
    assert (a.begin, a.end, len(a.processors)) == (middle, middle + 30000, 20)
    assert not a.processors & b.processors
    assert schedule.allocated is not None
    inside = 0
    for place, held in schedule.allocated.items():
        start, end = schedule.started[place - 1], schedule.ended[place - 1]
        if schedule.jobs.numbers[place - 1] in own:
            assert a.begin <= start
            assert end <= a.end
            assert not held - a.processors
            inside += 1
            continue
        for each in (a, b):
            if held & each.processors:
                assert end <= each.begin or start >= each.end
    assert inside > 3
    missing = [n for n, s in zip(jobs.numbers, schedule.started, strict=True) if isnan(s)]
    assert set(missing) <= set(own), "jobs without a reservation run before or after it"


JOBS = st.lists(
    st.tuples(st.integers(0, 80), st.integers(1, 6), st.integers(1, 6), st.booleans()),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("policy", ["fcfs-pr", "pba-pr", "max-b-pr"])
def test_resizable_jobs_leave_a_reservation_before_it_begins(policy: str) -> None:
    """At its begin, its processors are held by its own jobs and by overdue ones alone."""
    seen: Counter[str] = Counter()

    @examples(60)
    @given(
        jobs=JOBS, start=st.integers(50, 200), processors=st.integers(1, 8), chosen=st.booleans()
    )
    @example(jobs=[(0, 2, 1, False), (1, 2, 6, True)], start=60, processors=4, chosen=True)
    def search(
        jobs: list[tuple[int, int, int, bool]], start: int, processors: int, chosen: bool
    ) -> None:
        check_reservation(policy, jobs, start, processors, chosen, seen)

    search()
    assert seen["begun"], "a reservation has begun"
    assert seen["job in it"], "a job has run in its reservation"


def check_reservation(
    policy: str,
    jobs: list[tuple[int, int, int, bool]],
    start: int,
    processors: int,
    chosen: bool,
    seen: Counter[str],
) -> None:
    """Check who holds the processors of a reservation, and count what happens in it."""
    planned = PlannedReservation("r", float(start), 100.0, processors, requested=40.0)
    single = [
        SimJob(
            float(at),
            JobSpec(
                size,
                80.0 * seconds,
                2 * size if resizes else None,
            ),
            40.0 * seconds,
            40,
            parse("amdahl:serial=0.1"),
        )
        for at, size, seconds, resizes in sorted(jobs)
    ]
    if chosen and single[0].spec.processors <= processors:
        planned = PlannedReservation("r", float(start), 100.0, processors, requested=40.0, jobs="1")
        single = in_list(single, [planned])
    core = Core(scenario(policy))
    core.machine.join("n", 8)

    def watch(now: float, events: list[Event], orders: list[Order]) -> None:
        own = core.exclusions.get("r")
        if own is None or not own.begin <= now < own.end:
            return
        seen["begun"] += 1
        for job in core.live.values():
            held = ProcSet.union(job.groups.values()) & own.processors
            is_late = job.estimated_end <= now or job.state is JobState.CONTRACTING
            assert not held or job.spec.reservation == "r" or is_late

    engine = Engine(
        core,
        single,
        watch=watch,
        requests=[planned.request(single[0].at)],
    )
    began = engine.run().started.tolist()
    for job, started in zip(single, began, strict=True):
        if job.spec.reservation and not isnan(started):
            seen["job in it"] += 1
            assert start <= started < start + 100


#: Submission (s), processors, seconds on them, whether it is resizable.
ADAPTIVE_JOBS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 8), st.integers(1, 30), st.booleans()),
    min_size=1,
    max_size=12,
)


def adaptive_run(
    jobs: list[tuple[int, int, int, bool]],
    reservations: int,
    planned: list[PlannedReservation],
    selection: str = "first-fit",
) -> Schedule:
    """Jobs without resize points, which may start on a quarter of their requests."""
    single = [
        SimJob(
            float(at),
            JobSpec(size, 2.0 * seconds, 2 * size if resizes else None, Topology()),
            float(seconds),
            speedup=parse("amdahl:serial=0"),
        )
        for at, size, seconds, resizes in sorted(jobs)
    ]
    fields = {"backfill.adaptive_start": 0.25, "backfill.reservations": reservations}
    rules = scenario("easy", {**fields, "selection": selection})
    return run(Workload(8, single), 8, rules, counted=False, advance=planned)


@pytest.mark.parametrize("reservations", [0, 1])
@given(jobs=ADAPTIVE_JOBS)
def test_a_reservation_after_all_jobs_changes_no_adaptive_start(
    reservations: int, jobs: list[tuple[int, int, int, bool]]
) -> None:
    late = PlannedReservation("late", 1e6, 10.0, 8)
    plain, excluding = (adaptive_run(jobs, reservations, planned) for planned in ([], [late]))
    assert plain.started.tolist() == excluding.started.tolist()
    assert plain.sizes == excluding.sizes


@pytest.mark.parametrize("selection", ["first-fit", "contiguous", "table-first-fit"])
@pytest.mark.parametrize("reservations", [0, 1])
@given(
    jobs=ADAPTIVE_JOBS, begin=st.integers(1, 60), processors=st.integers(1, 7), own=st.booleans()
)
def test_adaptive_starts_honour_a_reservation(
    reservations: int,
    selection: str,
    jobs: list[tuple[int, int, int, bool]],
    begin: int,
    processors: int,
    own: bool,
) -> None:
    """By the estimate, which is prolonged with the run time; also of the reservation's own jobs."""
    if own:
        at, size, seconds, resizes = min(jobs)
        jobs = [(at, min(size, processors), seconds, resizes), *sorted(jobs)[1:]]
    names = "1" if own else ""
    planned = PlannedReservation("r", float(begin), 50.0, processors, requested=0.0, jobs=names)
    schedule = adaptive_run(jobs, reservations, [planned], selection)
    (granted,) = schedule.advance
    assert schedule.allocated is not None
    for number, held in schedule.allocated.items():
        at, size, seconds, resizes = sorted(jobs)[number - 1]
        start = schedule.started[number - 1]
        assert size / 4 <= len(held) <= size
        assert resizes or len(held) == size
        if number == 1 and own:
            assert granted.begin <= start
            assert start + 2 * seconds * size / len(held) <= granted.end
            assert not held - granted.processors
        elif held & granted.processors:
            until = start + 2 * seconds * size / len(held)
            assert until <= granted.begin or start >= granted.end


def test_the_head_starts_on_the_processors_that_no_reservation_needs() -> None:
    """On eight it would end at 130; on four, in 120 s, it needs none of the reserved ones."""
    jobs = [(0, 2, 10, False), (60, 8, 30, True)]
    planned = PlannedReservation("r", 100.0, 100.0, 4, requested=0.0)
    schedule = adaptive_run(jobs, 1, [planned])
    assert schedule.allocated is not None
    assert [str(held) for held in schedule.allocated.values()] == ["0-1", "4-7"]
    assert schedule.started.tolist() == [0, 60]
    assert schedule.ended.tolist() == [10, 120]


def test_jobs_of_users_that_can_run_in_a_reservation_are_submitted_to_it(tmp_path: Path) -> None:
    """Users of traces have numbers, those of workload files names."""
    trace = read_trace(SMALL)
    jobs = run(trace, 64, scenario("easy"), first=150).jobs
    middle, users = float(jobs.submitted[75]), jobs.users.tolist()
    mine = max(set(users), key=users.count)
    file = tmp_path / "advance.yaml"
    file.write_text(
        f"reservations: [{{name: a, start: {middle}, duration: 40000, processors: 40,"
        f" requested: {jobs.submitted[40]}, users: [{mine}, ann]}}]"
    )
    planned = described(Located.read(file))
    schedule = run(trace, 64, scenario("easy"), first=150, counted=False, advance=planned)
    (granted,) = schedule.advance
    assert schedule.allocated is not None
    taken = [
        place
        for place, (at, size, limit) in enumerate(
            zip(jobs.submitted, jobs.processors, jobs.estimate, strict=True)
        )
        if users[place] == mine
        and at >= jobs.submitted[40]
        and max(at, middle) + limit <= granted.end
        and size <= 40
    ]
    assert len(taken) > 3
    ran = [place for place in taken if place + 1 in schedule.allocated]
    assert ran
    for place in ran:
        assert schedule.started[place] >= granted.begin
        assert not schedule.allocated[place + 1] - granted.processors
    of_ann = [SimJob(at, JobSpec(4, 50.0, user="ann"), 10.0) for at in (0.0, 5.0)]
    later = msgspec.structs.replace(planned[0], start=20.0, duration=55.0, requested=1.0)
    single = in_list(of_ann, [later])
    assert [job.spec.reservation for job in single] == ["", "a"]
    on_nodes = msgspec.structs.replace(later, processors=0, nodes=("n1",), requested=None)
    assert [job.spec.reservation for job in in_list(of_ann, [on_nodes], 3)] == ["", ""]
    assert [job.spec.reservation for job in in_list(of_ann, [on_nodes], 4)] == ["a", "a"]


def test_a_file_of_reservations(tmp_path: Path) -> None:
    file = tmp_path / "advance.yaml"
    file.write_text(
        "reservations:\n"
        '  - {name: course, start: 100000, duration: "2:00:00", processors: 16, jobs: 3-4}\n'
    )
    (planned,) = described(Located.read(file))
    assert (planned.name, planned.start, planned.duration_s) == ("course", 100000.0, 7200.0)
    assert (planned.processors, planned.numbers) == (16, ProcSet.span(3, 2))
    done = invoke(
        "simulate", SMALL, "--jobs", 50, "--set", f"advance_reservations={file}", "--json",
        "--out", tmp_path / "out",
    )  # fmt: skip
    (course,) = json.loads(done.stdout)["advance_reservations"]
    assert (course["begin_s"], course["end_s"]) == (100000.0, 107200.0)
    assert len(ProcSet.parse(course["processors"])) == 16
    stored = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert stored["advance_reservations"] == [course]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{name: a, start: 1, duration: 5}", "either of processors or of nodes"),
        ("{name: a, start: 1, duration: 0, processors: 1}", r"duration_s must be > 0"),
        ("{name: a, start: 1, duration: x, processors: 1}", "duration"),
        ("{name: a, start: .inf, duration: 5, processors: 1}", "start"),
        ("{name: a, start: 1, duration: 5, processors: 1, jobs: 3-1}", "jobs"),
    ],
)
def test_a_wrong_file_names_line_and_field(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "advance.yaml"
    file.write_text(f"reservations:\n  - {line}\n")
    with pytest.raises(ConfigError, match=message) as caught:
        described(Located.read(file))
    assert "advance.yaml" in str(caught.value)


def test_a_reservation_that_is_refused_ends_the_simulation() -> None:
    jobs = [SimJob(0.0, JobSpec(4, 100.0), 100.0)]
    planned = [
        PlannedReservation("a", 50.0, 10.0, processors=3, requested=1.0),
    ]
    with pytest.raises(ConfigError, match=r"a is refused: .* because of job 1; they are from 100"):
        run(Workload(4, jobs), 4, scenario("easy"), advance=planned)
    unknown = [PlannedReservation("a", 200.0, 10.0, processors=3, jobs="7")]
    with pytest.raises(ConfigError, match="lists job 7, which is not simulated"):
        run(Workload(4, jobs), 4, scenario("easy"), advance=unknown)
