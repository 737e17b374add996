"""Hindcasts: what was known at the submission of jobs that have started since."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import msgspec
import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.core import Core
from scheduler.forecasts.calibration import (
    EVERY,
    FUTURES,
    LEAST,
    MOST_JOBS,
    ForecastOutcome,
    Hindcasts,
    earlier_state,
    hindcast,
)
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.futures import Futures, last_arrival
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.journal.journal import Journal
from scheduler.journal.journal_reader import lost_submission, reading
from scheduler.journal.replay import settings_of
from scheduler.model.events import Event, JobSpec, JobSubmitted
from scheduler.model.job import Job
from scheduler.model.machine import Machine
from scheduler.model.orders import Order
from scheduler.policies.scenarios import scenario
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode
from scheduler.service.forecaster_process import Forecaster
from scheduler.service.reader_process import ForecastQuestion
from simulator.engine.engine import Engine
from simulator.engine.jobs import SimJob

PROCESSORS = 8
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


class Simulated:
    """A simulation, and the states after the instants at which a job is submitted."""

    def __init__(self, policy: str, wanted: list[tuple[int, int, int, int]]) -> None:
        self.wanted = sorted(wanted, key=lambda job: job[0])
        self.states: dict[float, RecordedState] = {}
        self.jobs: dict[int, Job] = {}
        self.site = Core(scenario(policy), Machine([("n", PROCESSORS)]))
        simulated = [
            SimJob(at, JobSpec(size, wall, user=str(size)), min(run, wall))
            for at, size, wall, run in self.wanted
        ]
        Engine(self.site, simulated, watch=self.watch).run()
        self.last = self.state()

    def watch(self, time: float, events: list[Event], orders: list[Order]) -> None:
        submitted = [event.job for event in events if isinstance(event, JobSubmitted)]
        self.jobs.update((number, self.site.jobs[number]) for number in submitted)
        if submitted:
            self.states[time] = self.state()

    def state(self) -> RecordedState:
        """State of the site now; the simulation drops jobs that have ended from its core."""
        ended = [job for job in self.jobs.values() if job.ended_at is not None]
        ended.sort(key=lambda job: (job.ended_at, job.id))
        return replace(RecordedState.of_core(self.site, last=len(self.wanted)), past=ended)


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
@examples(30)
@given(wanted=jobs)
def test_an_earlier_state_goes_on_as_the_site_did(
    policy: str, wanted: list[tuple[int, int, int, int]]
) -> None:
    simulated = Simulated(policy, wanted)
    run_s = {i: min(run, wall) for i, (_, _, wall, run) in enumerate(simulated.wanted, 1)}
    for at, state in simulated.states.items():
        then = earlier_state(simulated.last, at)
        assert then is not None
        assert [(job.id, job.started_at) for job in then.jobs] == [
            (job.id, job.started_at) for job in state.jobs
        ]
        assert (then.arrivals, [job.id for job in then.past]) == (
            state.arrivals,
            [job.id for job in state.past],
        )
        assert forecast(then, run_s=run_s).starts == forecast(state, run_s=run_s).starts


def busy_site(count: int = 150) -> Simulated:
    """FCFS on 8 processors; users ask for twice to four times what they need."""
    rng = np.random.default_rng(1)
    wanted = []
    for i in range(count):
        run = int(rng.integers(5, 20))
        size = int(rng.integers(1, PROCESSORS + 1))
        wanted.append((7 * i, size, run * int(rng.integers(2, 5)), run))
    return Simulated("fcfs", wanted)


def test_a_hindcast_is_the_forecast_that_was_made() -> None:
    simulated = busy_site()
    compared = 0
    for job in (job for job in simulated.last.past if job.id % EVERY == 0):
        assert job.started_at is not None
        state = simulated.states[job.submitted_at]
        for arrivals in (False, True):
            until = -inf
            if arrivals:
                until = last_arrival(state.now, forecast(state).start(job.id))
            if job.started_at > job.submitted_at:
                made = Futures(state, job.id, arrive_until=until).spreads(FUTURES, seed=job.id)
                expected = ForecastOutcome.of(made.start, state.now, job.started_at)
                assert hindcast(simulated.last, job, arrivals=arrivals) == expected
                compared += 1
    assert compared > 15


def test_jobs_that_waited_calibrate_what_users_estimate_badly() -> None:
    simulated = busy_site()
    now = max(at for at in simulated.states)
    state = simulated.states[now]
    hindcasts = Hindcasts()
    calibration = hindcasts.calibration(state, arrivals=False)
    assert calibration.count >= LEAST
    slow = Hindcasts()
    assert slow.calibration(state, arrivals=False, limit_s=0.0).count == 0
    assert slow.calibration(state, arrivals=False).count == calibration.count
    # What is known takes no time, and does not depend on when it was computed.
    assert slow.calibration(state, arrivals=False, limit_s=0.0).count == calibration.count
    earlier = simulated.states[sorted(simulated.states)[-20]]
    resumed = Hindcasts()
    assert 0 < resumed.calibration(earlier, arrivals=False).count < calibration.count
    raw = Futures(state, state.jobs[-1].id).spreads(5)
    again = resumed.calibration(state, arrivals=False)
    assert again.corrected(raw, state.now) == calibration.corrected(raw, state.now)
    few = replace(state, past=state.past[-30:])
    assert Hindcasts().calibration(few, arrivals=False).count == 0
    many = replace(state, jobs=[state.jobs[0]] * (MOST_JOBS + 1))
    assert hindcasts.calibration(many, arrivals=False).count == 0


def test_jobs_that_do_not_fit_on_the_present_nodes_have_no_hindcast() -> None:
    simulated = busy_site(20)
    smaller = Core(scenario("fcfs"), Machine([("n", 4)]))
    state = replace(simulated.last, record=RecordedState.of_core(smaller).record)
    running = max(simulated.last.past, key=lambda job: job.spec.processors)
    assert running.started_at is not None
    assert earlier_state(state, running.started_at) is None
    assert hindcast(replace(state, past=[running]), running, arrivals=False) is None


def test_the_forecaster_calibrates_by_the_journal(tmp_path: Path) -> None:
    simulated = busy_site()
    path = tmp_path / "journal.db"
    journal = Journal(path)
    journal.add_settings(settings_of(simulated.site))
    for job in simulated.jobs.values():
        journal.add_job(job.id, "token", lost_submission())
        journal.note_job(job)
    journal.note_core(simulated.site.record())
    journal.commit()
    expected = Hindcasts().calibration(simulated.last, arrivals=False).count
    assert expected >= LEAST
    query = m.RequestForecast(of=lost_submission(), futures=5)
    spec = JobSpec(PROCESSORS, 100.0)
    with reading(path) as reader:
        forecaster = Forecaster(reader)
        for futures, count in ((5, expected), (0, 0)):
            asked = ForecastQuestion(
                msgspec.structs.replace(query, futures=futures), simulated.last.now, spec
            )
            for _ in range(expected):  # each question begins one hindcast at least
                answer = decode(forecaster.answer(1, asked))
                assert isinstance(answer, m.ForecastResult)
                if answer.found["outcomes"] == count:
                    break
            assert answer.found["outcomes"] == count
    journal.close()
