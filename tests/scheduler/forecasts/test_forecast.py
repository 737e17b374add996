"""Forecasts: with exact run times a forecast is what the simulation then does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import Event, JobSpec
from scheduler.model.machine import Machine
from scheduler.model.orders import Order
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from scheduler.sites.two_groups import TwoGroupSite
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
    "aging": scenario("easy", {"order": "aging"}),
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


def new_site(chosen: Scenario, *, kill: bool = True) -> TwoGroupSite:
    machine = Machine([("n", PROCESSORS)])
    group = None
    if chosen.redirection is not None:
        group = Machine([("kept", 4)], numbering=machine.numbering)
    return TwoGroupSite(chosen, machine, group, kill_at_walltime=kill)


Sizes = list[tuple[int, int, int, int]]


class Simulated:
    """A simulation, and the state of its site after each instant that follows all submissions."""

    def __init__(self, chosen: Scenario, wanted: Sizes, *, kill: bool = True) -> None:
        self.wanted = sorted(wanted, key=lambda job: job[0])
        self.states: list[RecordedState] = []
        self.site = new_site(chosen, kill=kill)
        jobs = [
            SimJob(at, JobSpec(processors, walltime, user=str(processors)), min(run, walltime))
            for at, processors, walltime, run in self.wanted
        ]
        result = Engine(self.site, jobs, watch=self.watch).run()
        self.started, self.ended = result.started, result.ended

    @property
    def run_s(self) -> dict[int, float]:
        return {i + 1: min(run, wall) for i, (_, _, wall, run) in enumerate(self.wanted)}

    def watch(self, time: float, events: list[Event], orders: list[Order]) -> None:
        if time >= self.wanted[-1][0]:
            self.states.append(RecordedState.of_site(self.site, last=len(self.wanted)))


@pytest.mark.parametrize("name", SCENARIOS)
@settings(max_examples=100, deadline=None)
@given(wanted=jobs)
def test_with_exact_run_times_a_forecast_is_what_the_simulation_does(
    name: str, wanted: Sizes
) -> None:
    # A wake-up for a job that has ended, which no record holds, makes an aging order sort again.
    simulated = Simulated(SCENARIOS[name], wanted, kill=name != "aging")
    for state in simulated.states:
        found = forecast(state, run_s=simulated.run_s)
        for job in (job.id for job in state.jobs):
            end = simulated.ended[job - 1]
            assert found.end(job) == end, (state.now, job)
            if job in found.starts and name != "redirection":  # the first of two starts
                assert found.start(job) == simulated.started[job - 1], (state.now, job)
