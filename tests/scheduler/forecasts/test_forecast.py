"""Forecasts: with exact run times a forecast is what the simulation then does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from past_jobs import ended_job

from reshape.topology import Topology
from scheduler.core.core import Core
from scheduler.forecasts.answers import Spread
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.futures import Futures, drawn_arrivals
from scheduler.forecasts.quotes import Outlook, quote, waiting
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.arrays import TaskArray
from scheduler.model.events import (
    Event,
    HoldChanged,
    JobSpec,
    JobStarted,
    JobSubmitted,
    ResizeDone,
    ResizePoint,
    Wakeup,
)
from scheduler.model.machine import Machine
from scheduler.model.orders import Expand, Kill, Order
from scheduler.model.procset import ProcSet
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from scheduler.state.records import encode_job
from simulator.engine.engine import Engine
from simulator.engine.jobs import SimJob

PROCESSORS = 8
SCENARIOS = {
    "fcfs": scenario("fcfs"),
    "easy": scenario("easy"),
    "sjbf": scenario("easy", {"backfill_order": "sjf"}),
    "sjf": scenario("easy", {"order": "sjf"}),
    "two reservations": scenario("easy", {"backfill.reservations": 2}),
    "conservative": scenario("conservative"),
    # Wake-ups for jobs that have ended are not recorded, and each may sort an aging queue again.
    "aging": scenario("easy", {"order": "aging", "order.refresh_s": 1000}),
    "predictions": scenario("easy", {"estimates": "tsafrir"}),
    "contiguous": scenario("easy", {"selection": "contiguous"}),
    "redirection": scenario("easy", {"redirection.theta": 1}),
}

jobs = st.lists(
    st.tuples(
        st.integers(0, 30),  # submitted, s
        st.integers(1, PROCESSORS),
        st.integers(1, 40),  # walltime, s
        st.integers(1, 40),  # run time, s, at most the walltime
    ),
    min_size=1,
    max_size=14,
)


def new_site(chosen: Scenario, *, kill: bool = True) -> Core:
    machine = Machine([("n", PROCESSORS)])
    others = {}
    if chosen.redirection is not None:
        others["redirection"] = Machine([("kept", 4)], numbering=machine.numbering)
    return Core(chosen, machine, others, kill_at_walltime=kill)


Sizes = list[tuple[int, int, int, int]]


class Simulated:
    """A simulation, and the state of its site after each instant that follows all submissions.

    Not after one that orders the end of a redirected job: until that job has ended, the core makes
    no pass, and a forecast begins with one.
    """

    def __init__(self, chosen: Scenario, wanted: Sizes, *, kill: bool = True) -> None:
        self.wanted = sorted(wanted, key=lambda job: job[0])
        self.states: list[RecordedState] = []
        self.site = new_site(chosen, kill=kill)
        jobs = [
            SimJob(at, JobSpec(processors, walltime, user=str(processors)), min(run, walltime))
            for at, processors, walltime, run in self.wanted
        ]
        result = Engine(self.site, jobs, watch=self.watch).run()
        self.started, self.ended = result.started.tolist(), result.ended.tolist()

    @property
    def run_s(self) -> dict[int, float]:
        return {i + 1: min(run, wall) for i, (_, _, wall, run) in enumerate(self.wanted)}

    def watch(self, time: float, events: list[Event], orders: list[Order]) -> None:
        # A wake-up that extends an expired prediction runs no pass, but a forecast begins with one.
        extends = self.site.scenario is SCENARIOS["predictions"] and all(
            isinstance(event, Wakeup) for event in events
        )
        killed = any(isinstance(each, Kill) for each in orders)
        if time >= self.wanted[-1][0] and not killed and not extends:
            self.states.append(RecordedState.of_core(self.site, last=len(self.wanted)))


@pytest.mark.parametrize("name", SCENARIOS)
@examples(100)
@given(wanted=jobs)
def test_with_exact_run_times_a_forecast_is_what_the_simulation_does(
    name: str, wanted: Sizes
) -> None:
    simulated = Simulated(SCENARIOS[name], wanted)
    for state in simulated.states:
        found = forecast(state, run_s=simulated.run_s)
        for job in (job.id for job in state.jobs):
            end = simulated.ended[job - 1]
            assert found.end(job) == end, (state.now, job)
            if job in found.starts and name != "redirection":  # the first of two starts
                assert found.start(job) == simulated.started[job - 1], (state.now, job)


@pytest.mark.parametrize("name", SCENARIOS)
@examples(50)
@given(wanted=jobs, processors=st.integers(1, PROCESSORS), walltime=st.integers(1, 40))
def test_a_forecast_that_ends_with_the_start_of_a_job_equals_the_whole_one(
    name: str, wanted: Sizes, processors: int, walltime: int
) -> None:
    simulated = Simulated(SCENARIOS[name], wanted)
    state, spec = simulated.states[0], JobSpec(processors, walltime)
    for number in (*(job.id for job in state.jobs), state.last + 1):
        for horizon_s in (20.0, inf):
            run_s = simulated.run_s
            whole = forecast(state, [spec], horizon_s=horizon_s, run_s=run_s)
            short = forecast(state, [spec], horizon_s=horizon_s, run_s=run_s, only=[number])
            assert short.of(number) == whole.of(number)


@examples(100)
@given(wanted=jobs, processors=st.integers(1, PROCESSORS), walltime=st.integers(1, 40))
@pytest.mark.parametrize("name", ["fcfs", "easy"])
def test_a_quote_is_the_first_place_in_the_reservation_table(
    name: str, wanted: Sizes, processors: int, walltime: int
) -> None:
    """GUIM 8.5.1: jobs at their places in the table, the new one at the earliest that is left.

    Run times are the estimates. The worked example of figure 8.5 is lost; the table is built from
    the description in the text, second by second.
    """
    exact = [(at, size, wall, wall) for at, size, wall, _ in wanted]
    simulated = Simulated(SCENARIOS[name], exact)
    state = simulated.states[0]
    found = quote(state, JobSpec(processors, walltime))
    new = (int(state.now), processors, walltime, walltime)
    with_new = Simulated(SCENARIOS[name], [*exact, new])
    assert found.start == with_new.started[-1]
    if name == "fcfs":
        held = [
            (start, end, size)
            for start, end, (_, size, _, _) in zip(
                simulated.started, simulated.ended, simulated.wanted, strict=True
            )
        ]
        first = max([state.now, *(start for start, _, _ in held)])
        table = (
            at
            for at in range(int(first), 10_000)
            if all(
                sum(size for start, end, size in held if start <= second < end) + processors
                <= PROCESSORS
                for second in range(at, at + walltime)
            )
        )
        assert found.start == next(table)


def test_an_overdue_job_ends_now_without_the_enforcement_of_walltimes() -> None:
    site = new_site(SCENARIOS["easy"], kill=False)
    site.handle([JobSubmitted(0.0, 1, JobSpec(8, 10.0))])
    site.handle([JobSubmitted(15.0, 2, JobSpec(8, 10.0))])
    found = forecast(RecordedState.of_core(site))
    assert (found.end(1), found.start(2), found.end(2)) == (15.0, 15.0, 25.0)
    assert found.of(2).processors == "0-7"


@pytest.mark.parametrize("most", [None, 8])
def test_a_job_that_reports_its_progress_ends_when_its_iterations_have_passed(
    most: int | None,
) -> None:
    """A point that is not covered by a record counts as well; the walltime remains the limit."""
    site = new_site(SCENARIOS["easy"])
    site.handle([JobSubmitted(0.0, 1, JobSpec(6, 1000.0, most))])
    site.handle([JobStarted(0.0, 1)])
    site.handle([JobSubmitted(15.0, 2, JobSpec(6, 10.0))])
    site.handle([ResizePoint(20.0, 1, 2, 10.0, iterations=12)])
    state = RecordedState.of_core(site)
    assert (forecast(state).end(1), forecast(state).start(2)) == (120.0, 120.0)
    later = replace(state, now=30.0, points=[ResizePoint(30.0, 1, 3, 10.0, iterations=6)])
    assert (forecast(later).end(1), forecast(later).start(2)) == (60.0, 60.0)
    endless = replace(state, now=30.0, points=[ResizePoint(30.0, 1, 3, 10.0, iterations=10**9)])
    assert forecast(endless).end(1) == 1000.0


def test_a_forecast_does_not_change_the_site_and_repeats_itself() -> None:
    site = new_site(SCENARIOS["easy"])
    for number in range(1, 6):
        site.handle([JobSubmitted(float(number), number, JobSpec(5, 10.0 * number))])
    before = site.record(), [encode_job(job) for job in site.jobs.values()]
    state = RecordedState.of_core(site)
    assert forecast(state).starts == forecast(state).starts == {2: 11.0, 3: 31.0, 4: 61.0, 5: 101.0}
    assert (site.record(), [encode_job(job) for job in site.jobs.values()]) == before


def test_nothing_happens_beyond_the_horizon() -> None:
    site = new_site(SCENARIOS["fcfs"])
    for number in (1, 2, 3):
        site.handle([JobSubmitted(0.0, number, JobSpec(8, 10.0))])
    found = forecast(RecordedState.of_core(site), horizon_s=15.0)
    assert found.starts == {2: 10.0}
    assert found.of(2).end is None
    assert found.of(3).start is None


@pytest.mark.parametrize("name", ["fcfs", "conservative"])
def test_a_forecast_without_time_knows_the_first_instant_only(name: str) -> None:
    site = new_site(SCENARIOS[name])
    for number in (1, 2, 3):
        site.handle([JobSubmitted(0.0, number, JobSpec(8, 10.0))])
    state, spec = RecordedState.of_core(site), JobSpec(1, 5.0)
    found = forecast(state, [spec], limit_s=0.0)
    assert (found.until, found.time_is_over, found.starts) == (0.0, True, {})
    assert found.of(state.last + 1).start is None
    ample = forecast(state, [spec], limit_s=3600.0)
    assert (ample.starts, ample.time_is_over) == (forecast(state, [spec]).starts, False)
    short = quote(state, spec, Outlook(futures=2, limit_s=0.0))
    assert (short.start, short.looked_ahead_s) == (None, 0.0)
    assert short.start_quantiles == Spread(None, None, None)
    assert quote(state, spec).looked_ahead_s is None
    assert waiting(state, 3, Outlook(limit_s=0.0)).forecast.start is None


def site_with_an_array() -> Core:
    """Site with array 1, of which two tasks run at a time for 10 s, and job 1002 after it."""
    site = new_site(SCENARIOS["fcfs"])
    site.handle([JobSubmitted(0.0, 1, JobSpec(4, 10.0, array=TaskArray.parse("0-999")))])
    site.handle([JobSubmitted(0.0, 1002, JobSpec(8, 10.0))])
    return site


def test_a_task_that_has_not_come_has_a_forecast_and_an_array_that_of_its_next_task() -> None:
    state = RecordedState.of_core(site_with_an_array())
    of_array, of_task = waiting(state, 1), waiting(state, 502)
    assert (of_array.task, of_array.forecast.start, of_array.changes) == ("1_3", 10.0, [])
    assert (of_task.task, of_task.forecast.start, of_task.forecast.end) == ("1_500", 2500.0, 2510.0)
    assert of_task.reason.startswith("its place among the tasks of array 1 that are to come is 498")
    with pytest.raises(KeyError):
        waiting(state, 1003)


def test_the_tasks_of_an_array_that_is_held_have_no_forecast() -> None:
    site = site_with_an_array()
    site.handle([HoldChanged(1.0, 1, "user", ProcSet.span(3, 997))])
    found = waiting(RecordedState.of_core(site), 1)
    assert (found.task, found.forecast.start) == ("", None)
    assert waiting(RecordedState.of_core(site), 502, Outlook(horizon_s=60.0)).forecast.start is None


def test_a_forecast_forgets_the_tasks_that_have_ended() -> None:
    most, ended = 0, list[bool]()

    def observe(core: Core, _now: float, _events: object, _orders: object) -> None:
        nonlocal most
        most = max(most, len(core.jobs))
        ended.append(1002 in core.jobs)

    state = RecordedState.of_core(site_with_an_array())
    found = forecast(state, observe=observe)
    assert found.of(1002).start == 5000.0
    assert most < 10
    assert all(ended)


def test_a_forecast_that_takes_too_long_says_how_far_it_has_come() -> None:
    state = RecordedState.of_core(site_with_an_array())
    found = waiting(state, 502, Outlook(limit_s=0.0))
    assert (found.forecast.start, found.looked_ahead_s) == (None, 0.0)
    found = waiting(state, 1002, Outlook(limit_s=0.0))
    assert (found.looked_ahead_s, found.changes, found.untried) == (0.0, [], 6)
    assert waiting(state, 1002).looked_ahead_s is None
    assert waiting(state, 1002).untried == 0


def test_a_forecast_ends_with_the_starts_that_are_asked_for() -> None:
    state = RecordedState.of_core(site_with_an_array())
    instants: list[float] = []
    found = forecast(state, only=[4, 5], observe=lambda core, now, *_: instants.append(now))
    assert [found.of(number).start for number in (4, 5)] == [10.0, 10.0]
    assert found.of(5).end == 20.0
    assert max(instants) == 10.0


def test_a_resizable_job_with_measured_sizes_expands_in_a_forecast() -> None:
    chosen = scenario("fcfs-pr")
    site = new_site(chosen)
    site.handle([JobSubmitted(0.0, 1, JobSpec(2, 1000.0, 8))])
    site.handle([JobStarted(0.0, 1)])
    time, iteration_s = 0.0, 16.0
    for _ in range(2):
        time += iteration_s
        orders = site.handle([ResizePoint(time, 1, 1, iteration_s)])
        if isinstance(orders[0], Expand):
            site.handle([ResizeDone(time, 1, orders[0].serial)])
            iteration_s = 32.0 / site.jobs[1].size
    history = site.jobs[1].history
    assert history.measured > 1
    found = forecast(RecordedState.of_core(site)).of(1)
    assert found.end is not None
    assert found.end < 1000.0, found
    assert found.sizes[-1][1] == 8
    assert found.sizes[0][1] == 2


def test_a_job_with_a_performance_model_grows_in_its_quote() -> None:
    site = new_site(scenario("fcfs-pr"))
    rigid = JobSpec(2, 1000.0)
    grows = JobSpec(2, 1000.0, 8, performance="amdahl:serial=0")
    keeps = JobSpec(2, 1000.0, 8)  # the effect of a larger size is not known
    state = replace(RecordedState.of_core(site), now=0.0)
    found = [quote(state, spec) for spec in (rigid, grows, keeps)]
    assert [each.start for each in found] == [0.0] * 3
    ends = [each.end for each in found]
    assert ends[0] == ends[2] == 1000.0
    assert ends[1] is not None
    assert 1000.0 / 4 < ends[1] < 700.0
    assert found[1].sizes[-1][1] == 8


def test_a_running_job_with_a_performance_model_grows_when_others_have_ended() -> None:
    site = new_site(scenario("fcfs-pr"))
    spec = JobSpec(4, 1000.0, 8, performance="amdahl:serial=0")
    site.handle([JobSubmitted(0.0, 1, spec), JobSubmitted(0.0, 2, JobSpec(4, 100.0))])
    site.handle([JobStarted(0.0, 1), JobStarted(0.0, 2)])
    found = forecast(RecordedState.of_core(site)).of(1)
    assert found.end is not None
    assert 500.0 < found.end < 700.0
    assert [size for _, size in found.sizes][-1] == 8


def test_a_malleable_job_contracts_in_a_forecast_at_its_next_resize_point() -> None:
    site = new_site(scenario("malleable"))
    spec = JobSpec(8, 1000.0, 8, Topology(), min_processors=2)
    site.handle([JobSubmitted(0.0, 1, spec)])
    site.handle([JobStarted(0.0, 1)])
    for iteration in (1, 2):
        site.handle([ResizePoint(10.0 * iteration, 1, iteration, 10.0)])
    site.handle([JobSubmitted(21.0, 2, JobSpec(4, 100.0))])
    assert site.jobs[2].started_at is None
    found = forecast(RecordedState.of_core(site))
    assert found.of(2).start == 30.0
    assert [size for _, size in found.of(1).sizes][:2] == [8, 4]
    shrunk_s = sum(
        (then - at) * (8 - size) / 8
        for (at, size), (then, _) in pairwise([*found.of(1).sizes, (found.of(1).end, 0)])
    )
    assert found.of(1).end == pytest.approx(1000.0 + shrunk_s), "on half of them it takes twice"


def test_a_malleable_job_that_starts_on_few_processors_grows_in_its_forecast() -> None:
    site = new_site(scenario("malleable"))
    site.handle([JobSubmitted(0.0, 1, JobSpec(6, 100.0)), JobStarted(0.0, 1)])
    spec = JobSpec(8, 1000.0, 8, Topology(), min_processors=2)
    site.handle([JobSubmitted(0.0, 2, spec)])
    found = forecast(RecordedState.of_core(site)).of(2)
    assert found.start == 0.0
    assert [size for _, size in found.sizes] == [2, 8]
    assert found.end is not None
    assert 1000.0 + 75.0 <= found.end < 1400.0, "its first resize point may come late"


def test_futures_draw_from_past_ratios_and_bracket_the_exact_case() -> None:
    site = new_site(SCENARIOS["fcfs"])
    site.handle([JobSubmitted(0.0, 1, JobSpec(8, 100.0))])
    site.handle([JobSubmitted(0.0, 2, JobSpec(8, 100.0))])
    spec = JobSpec(8, 100.0)
    past = [ended_job(0, spec, run_s) for run_s in [50.0] * 10 + [100.0] * 10]
    state = replace(RecordedState.of_core(site), past=past)
    found = Futures(state, 2).spreads(40, seed=1)
    assert found.start == Spread(50.0, found.start.p50, 100.0)
    assert found.end.p90 == 200.0
    assert Futures(state, 2).spreads(40, seed=1, workers=2) == found


def test_futures_with_arrivals_draw_from_the_latest_submissions() -> None:
    site = new_site(SCENARIOS["easy"])
    site.handle([JobSubmitted(0.0, 1, JobSpec(8, 100.0))])
    for number in range(2, 6):
        site.handle([JobSubmitted(10.0 * number, number, JobSpec(4, 20.0 + number))])
    state = RecordedState.of_core(site)
    for seed in range(20):  # the five submissions of 50 s again, from a random moment on
        draw = np.random.default_rng(seed)
        later = drawn_arrivals(state.arrivals, state.now, state.now + 50.0, draw)
        again = np.random.default_rng(seed)
        assert later == drawn_arrivals(state.arrivals, state.now, state.now + 50.0, again)
        assert sorted(spec.walltime_s for _, spec in later) == [22.0, 23.0, 24.0, 25.0, 100.0]
        times = [at for at, _ in later]
        gaps = [round(after - before) for before, after in pairwise(times)]
        assert sorted(gaps) in ([0, 10, 10, 20], [10, 10, 10, 20], [0, 10, 10, 10])
        assert state.now <= times[0] <= times[-1] <= state.now + 50.0
        early = drawn_arrivals(
            state.arrivals, state.now, state.now + 20.0, np.random.default_rng(seed)
        )
        assert early == [(at, spec) for at, spec in later if at <= state.now + 20.0]
    spec = JobSpec(8, 500.0)  # it never backfills, the others do: they delay no reservation
    alone = quote(state, spec, Outlook(futures=10))
    among = quote(state, spec, Outlook(futures=10, arrivals=True))
    assert alone.start_quantiles is not None
    assert among.start_quantiles is not None
    assert among.start_quantiles.p90 == alone.start_quantiles.p90
    small = quote(state, JobSpec(1, 50.0), Outlook(futures=10, arrivals=True))
    assert small.start_quantiles is not None


def test_a_waiting_job_is_explained_with_what_would_change_its_start() -> None:
    site = new_site(SCENARIOS["easy"])
    site.handle([JobSubmitted(0.0, 1, JobSpec(6, 100.0))])
    site.handle([JobSubmitted(0.0, 2, JobSpec(8, 100.0))])
    site.handle([JobSubmitted(0.0, 3, JobSpec(2, 200.0))])
    found = waiting(RecordedState.of_core(site), 3)
    assert (found.before, found.before_count, found.forecast.start) == ([2], 1, 200.0)
    starts = {(other.processors, other.walltime_s): other.start for other in found.changes}
    assert starts[2, 100.0] == 0.0
    assert starts[1, 200.0] == 200.0


def test_smaller_requests_of_a_malleable_job_have_its_minimum_at_most() -> None:
    site = new_site(SCENARIOS["easy"])
    site.handle([JobSubmitted(0.0, 1, JobSpec(7, 100.0))])
    site.handle([JobSubmitted(0.0, 2, JobSpec(8, 100.0, min_processors=3))])
    found = waiting(RecordedState.of_core(site), 2)
    starts = {other.processors: other.start for other in found.changes if other.walltime_s == 100}
    assert starts == {4: 100.0, 2: 100.0, 1: 0.0}


def test_a_smaller_request_may_start_on_the_same_share_of_it() -> None:
    site = new_site(scenario("easy", {"backfill.adaptive_start": 0.5}))
    site.handle([JobSubmitted(0.0, 1, JobSpec(6, 100.0))])
    spec = JobSpec(8, 100.0, 16, Topology())
    site.handle([JobSubmitted(0.0, 2, spec)])
    assert site.jobs[2].minimum == 4
    found = waiting(RecordedState.of_core(site), 2)
    starts = {other.processors: other.start for other in found.changes if other.walltime_s == 100}
    assert starts == {4: 0.0, 2: 0.0, 1: 0.0}, "4 processors start on 2"
