"""Study: how often a job starts no later than P50 and P90 of its forecast.

A trace is simulated, and every n-th job that has to wait is forecast at its submission, by futures
with arrivals. A calibration learns from the outcomes of those of these forecasts whose job has
started by then. The forecasts of the second half of the jobs are measured, as the futures have them
and after calibration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reshape.collection import no_collection
from scheduler.core.core import Core
from scheduler.forecasts.calibration import Calibration, ForecastOutcome
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.futures import Futures, Spread, last_arrival
from scheduler.forecasts.recorded_state import KEPT_JOBS, RecordedState
from scheduler.model.events import Event, JobEnded, JobSubmitted
from scheduler.model.job import Job, JobState
from scheduler.model.machine import Machine
from scheduler.model.orders import Order, Start
from scheduler.policies.scenarios import scenario
from simulator.engine.engine import Engine
from simulator.study.study import trace_path
from simulator.traces import swf
from simulator.traces.normalise import NEEDED, Rules, TraceJobs, machine_size, normalise

Floats: TypeAlias = NDArray[np.float64]


class Calibrated:
    """Forecasts every n-th job that waits, at its submission.

    Parameters
    ----------
    core, jobs : of the simulation; the core does not keep ended jobs.
    futures, every, seed : number of futures for the quantiles of each `every`-th job that waits,
        and the seed of their draws.

    Attributes
    ----------
    raw, corrected : quantiles of the start, by job, before and after calibration.
    """

    def __init__(self, core: Core, jobs: TraceJobs, *, futures: int, every: int, seed: int) -> None:
        self.raw: dict[int, Spread] = {}
        self.corrected: dict[int, Spread] = {}
        self._core, self._futures, self._every, self._seed = core, futures, every, seed
        self._specs, self._submitted = jobs.specs(), jobs.submit_times()
        self._started: dict[int, float] = {}
        self._past: deque[Job] = deque(maxlen=KEPT_JOBS)
        self._outcomes: list[ForecastOutcome] = []
        self._waited = 0

    def __call__(self, time: float, events: list[Event], orders: list[Order]) -> None:
        """Note ends and starts, and forecast jobs that were submitted at this instant."""
        for event in events:
            if type(event) is JobEnded:
                self._past.append(self._ended(event.job, time))
        for order in orders:
            if type(order) is Start:
                self._started[order.job] = time
                if order.job in self.raw:
                    spread, submitted = self.raw[order.job], self._submitted[order.job - 1]
                    self._outcomes.append(ForecastOutcome.of(spread, submitted, time))
        queue = self._core.partitions[0].queue
        for event in events:
            if type(event) is JobSubmitted and event.job in queue:
                self._waited += 1
                if self._waited % self._every == 0:
                    self._forecast(event.job)

    def _ended(self, number: int, time: float) -> Job:
        job = Job(number, self._specs[number - 1], self._submitted[number - 1])
        job.state, job.ended_at = JobState.COMPLETED, time
        job.started_at = self._started.pop(number)
        return job

    def _forecast(self, number: int) -> None:
        state = RecordedState.of_core(self._core, last=len(self._specs))
        state = replace(state, past=list(self._past))
        until = last_arrival(state.now, forecast(state, only=number).start(number))
        several = Futures(state, number, arrive_until=until)
        spreads = several.spreads(self._futures, self._seed + number)
        self.raw[number] = spreads.start
        calibration = Calibration(self._outcomes)
        self.corrected[number] = calibration.corrected(spreads, state.now).start


def run(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Simulate a trace, and measure the forecasts of its second half.

    Parameters
    ----------
    parameters : `trace`, `policy`, `first` (number of jobs, 0: all), `futures`, `every` and `seed`
        (see `Calibrated`).

    Returns
    -------
    `forecasts`, their number; the measures of `quality` with the prefixes `raw_` and, after
    calibration, none.
    """
    first = parameters["first"]
    trace = swf.read(trace_path(parameters, parameters["trace"]), fields=NEEDED)
    processors = machine_size(trace)
    jobs, _ = normalise(trace, processors, Rules())
    jobs = jobs.first(first) if first else jobs
    core = Core(
        scenario(parameters["policy"], {}),
        Machine([("machine", processors)]),
        kill_at_walltime=False,
        keep_ended=False,
    )
    futures, every = parameters["futures"], parameters["every"]
    found = Calibrated(core, jobs, futures=futures, every=every, seed=parameters.get("seed", 0))
    with no_collection():
        result = Engine(core, jobs, watch=found).run()
    numbers = [number for number in found.raw if number > len(jobs) / 2]
    waits = np.array(result.started) - np.array(jobs.submit_times())
    measured: dict[str, float] = {"forecasts": float(len(numbers))}
    for prefix, spreads in (("raw_", found.raw), ("", found.corrected)):
        starts = [
            [spread.p10, spread.p50, spread.p90] for spread in map(spreads.__getitem__, numbers)
        ]
        places = np.array(numbers, dtype=int) - 1
        quantiles = np.array(starts, dtype=float).reshape(-1, 3) - jobs.submitted[places, None]
        for name, value in quality(waits[places], quantiles).items():
            measured[prefix + name] = value
    return measured


def quality(waits: Floats, quantiles: Floats) -> dict[str, float]:
    """Coverage, losses and width of quantiles.

    Parameters
    ----------
    waits : (n,) float64, how long each job waited, s.
    quantiles : (n, 3) float64, P10, P50 and P90 of the waits, s.

    Returns
    -------
    Percentages of the waits that P50 and P90 cover; means of the pinball losses of both, minutes,
    which the true quantiles make smallest (R. Koenker and G. Bassett, Econometrica 46, 1978); mean
    time from P10 to P90, minutes. Nothing if there is no job.
    """
    if not len(waits):
        return {}
    found = {}
    for name, place, level in (("p50", 1, 0.5), ("p90", 2, 0.9)):
        late_s = waits - quantiles[:, place]
        found[f"{name}_pct"] = 100.0 * float(np.mean(late_s <= 0))
        loss_s = np.maximum(level * late_s, (level - 1) * late_s)
        found[f"{name}_loss_min"] = float(np.mean(loss_s)) / 60
    found["width_min"] = float(np.mean(quantiles[:, 2] - quantiles[:, 0])) / 60
    return found
