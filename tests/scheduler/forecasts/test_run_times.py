"""Run times that futures draw from the quantiles of a predictor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from past_jobs import ended_job

from scheduler.core.core import Core
from scheduler.forecasts.futures import PROBABILITIES, Futures, RunTimes
from scheduler.forecasts.quotes import Outlook, quote
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import JobEnded, JobSpec, JobSubmitted
from scheduler.model.machine import Machine
from scheduler.policies.scenarios import scenario

ANN, BOB = JobSpec(8, 1000.0, user="ann"), JobSpec(8, 1000.0, user="bob")


def trained_site(estimates: str) -> Core:
    """A site on which ann's jobs ran for 91 to 110 s, and no one else's; a job of ann runs."""
    chosen = scenario("fcfs", {"estimates": estimates})
    site = Core(chosen, Machine([("n", 8)]), kill_at_walltime=True)
    at = 0.0
    for number in range(1, 21):
        site.handle([JobSubmitted(at, number, ANN)])
        at += 90.0 + number
        site.handle([JobEnded(at, number)])
    site.handle([JobSubmitted(at, 21, ANN)])
    return site


def state_after(seconds: float, estimates: str = "statistical") -> RecordedState:
    """State of the site some seconds after the start of its running job, without past ratios."""
    state = RecordedState.of_core(trained_site(estimates))
    return replace(state, now=state.now + seconds, past=[])


def test_a_queued_job_is_drawn_from_the_quantiles_of_its_user() -> None:
    state = state_after(0.0)
    run_times = RunTimes.of(state, [ANN])
    draws = [run_times.drawn([ANN], np.random.default_rng(seed))[22] for seed in range(200)]
    assert 91.0 <= min(draws) < 93.0
    assert 108.0 < max(draws) <= 110.0
    assert abs(np.median(draws) - 100.5) < 2.0


def test_a_running_job_is_drawn_beyond_the_time_for_which_it_has_run() -> None:
    run_times = RunTimes.of(state_after(105.0))
    draws = [run_times.drawn([], np.random.default_rng(seed))[21] for seed in range(100)]
    assert 105.0 <= min(draws) < 106.0
    assert abs(np.median(draws) - 107.5) < 1.0
    assert RunTimes.of(state_after(120.0)).drawn([], np.random.default_rng(1)) == {}


def test_a_job_without_quantiles_is_drawn_from_past_ratios() -> None:
    state = replace(state_after(0.0), past=[ended_job(1, BOB, 500.0)])
    run_times = RunTimes.of(state, [ANN, BOB])
    drawn = run_times.drawn([ANN, BOB], np.random.default_rng(1))
    assert drawn[23] == 500.0
    assert drawn[22] <= 110.0


def test_past_jobs_that_are_more_alike_come_first() -> None:
    cat = JobSpec(8, 1000.0, user="cat")
    short, long = JobSpec(8, 100.0, user="cat"), JobSpec(8, 9000.0, user="dog")
    state = replace(state_after(0.0, estimates="user"), past=[], jobs=[])
    alike = [(cat, 0.1), (short, 0.2), (BOB, 0.3), (long, 0.4)]
    for count, expected in (
        ([10, 10, 10, 10], {0.1}),  # its user and walltime
        ([9, 10, 10, 10], {0.1, 0.2}),  # its user
        ([4, 5, 10, 10], {0.1, 0.3}),  # its walltime
        ([1, 1, 1, 1], {0.1, 0.2, 0.3, 0.4}),  # all
    ):
        jobs = [
            ended_job(0, spec, ratio * spec.walltime_s)
            for (spec, ratio), n in zip(alike, count, strict=True)
            for _ in range(n)
        ]
        run_times = RunTimes.of(replace(state, past=jobs), [cat])
        draws = {
            run_times.drawn([cat], np.random.default_rng(seed))[22] / 1000.0 for seed in range(100)
        }
        assert {round(ratio, 9) for ratio in draws} == expected, count


def test_a_job_that_ran_longer_than_those_like_it_is_drawn_from_others() -> None:
    past = [ended_job(0, ANN, 100.0) for _ in range(10)]
    past += [ended_job(0, BOB, 700.0) for _ in range(10)]
    state = replace(state_after(50.0, estimates="user"), past=past)
    for passed_s, expected in ((50.0, {21: 100.0}), (150.0, {21: 700.0}), (800.0, {})):
        later = replace(state, now=state.now - 50.0 + passed_s)
        assert RunTimes.of(later).drawn([], np.random.default_rng(1)) == expected


def test_without_a_predictor_nothing_is_drawn_from_quantiles() -> None:
    state = state_after(0.0, estimates="user")
    assert RunTimes.of(state, [ANN]).quantiles == {}


def test_the_spread_of_a_quote_comes_from_the_quantiles() -> None:
    state = state_after(10.0)
    found = quote(state, ANN, Outlook(futures=200, seed=1))
    assert (found.past_jobs, found.predicted_jobs) == (0, 2)
    assert found.start_quantiles is not None
    start, p10, p90 = state.now - 10.0, found.start_quantiles.p10, found.start_quantiles.p90
    assert p10 is not None
    assert p90 is not None
    assert start + 92.0 < p10 < start + 95.0  # the running job ends
    assert start + 106.0 < p90 < start + 110.0
    assert Futures(state, 22, [ANN]).spreads(200, 1) == Futures(state, 22, [ANN]).spreads(200, 1, 2)


@given(
    st.lists(st.floats(1, 1e5), min_size=len(PROBABILITIES), max_size=len(PROBABILITIES)),
    st.floats(0, 1e5),
    st.integers(0, 100),
)
def test_drawn_run_times_are_within_the_distribution_and_the_walltime(
    values: list[float], passed_s: float, seed: int
) -> None:
    quantiles = sorted(values)
    run_times = RunTimes(state_after(passed_s), {}, {21: quantiles}, {})
    drawn = run_times.drawn([], np.random.default_rng(seed))
    if passed_s >= quantiles[-1]:
        assert drawn == {}
    else:
        least = min(max(passed_s, quantiles[0]), 1000.0)
        assert least * (1 - 1e-12) <= drawn[21] <= min(quantiles[-1], 1000.0)
