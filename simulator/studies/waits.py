"""Study: how well the start of a job is predicted at its submission.

A trace is simulated. At each submission of a job that has to wait, a forecast runs the site forward
from its present state; jobs to come are left out, as they are not known. The predicted start is
compared with the one of the simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reshape.collection import no_collection
from scheduler.core.core import Core
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import Event, JobSubmitted
from scheduler.model.machine import Machine
from scheduler.model.orders import Order
from scheduler.policies.scenarios import scenario
from simulator.engine.engine import Engine
from simulator.study.study import trace_path
from simulator.traces import swf
from simulator.traces.normalise import NEEDED, Rules, TraceJobs, machine_size, normalise

#: Run times that forecasts expect: the real ones, the users' estimates, or predictions of the
#: predictor `easy++` has. Any other value is the name of a predictor, by which the site schedules.
EXACT, ESTIMATES, PREDICTIONS = "exact", "estimates", "predictions"


class Predicted:
    """Predicts the start of each job that waits, at its submission.

    Parameters
    ----------
    core : core of the simulation.
    jobs : jobs of the simulation.
    exact : forecasts use the real run times.

    Attributes
    ----------
    starts : predicted start of each job, s; that of a job that starts at once is its submission.
    """

    def __init__(self, core: Core, jobs: TraceJobs, *, exact: bool) -> None:
        self.starts = np.array(jobs.submit_times())
        self._core, self._count = core, len(jobs)
        self._run_s = dict(enumerate(jobs.run_times(), 1)) if exact else {}

    def __call__(self, time: float, events: list[Event], orders: list[Order]) -> None:
        """Predict the starts of the jobs that were submitted at this instant and are queued."""
        queue = self._core.partitions[0].queue
        waiting = [e.job for e in events if type(e) is JobSubmitted and e.job in queue]
        if not waiting:
            return
        state = RecordedState.of_core(self._core, last=self._count)
        found = forecast(state, run_s=self._run_s)
        for job in waiting:
            self.starts[job - 1] = found.start(job)


def run(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Simulate a trace and measure the errors of the predicted starts.

    Parameters
    ----------
    parameters : `trace`, `policy`, `run_times` ("exact", "estimates", "predictions" or the name of
        a predictor), `first` (number of jobs, 0: all).

    Raises
    ------
    ConfigError : a parameter is unknown.
    """
    run_times, first = parameters["run_times"], parameters["first"]
    trace = swf.read(trace_path(parameters, parameters["trace"]), fields=NEEDED)
    processors = machine_size(trace)
    jobs, _ = normalise(trace, processors, Rules())
    jobs = jobs.first(first) if first else jobs
    changes = {"estimates": "tsafrir" if run_times == PREDICTIONS else run_times}
    core = Core(
        scenario(parameters["policy"], {} if run_times in (EXACT, ESTIMATES) else changes),
        Machine([("machine", processors)]),
        kill_at_walltime=False,
        keep_ended=False,
    )
    predicted = Predicted(core, jobs, exact=run_times == EXACT)
    with no_collection():
        result = Engine(core, jobs, watch=predicted).run()
    started = np.array(result.started)
    return accuracy(np.array(jobs.submit_times()), started, predicted.starts)


def accuracy(
    submitted: np.ndarray[Any, np.dtype[np.float64]],
    started: np.ndarray[Any, np.dtype[np.float64]],
    predicted: np.ndarray[Any, np.dtype[np.float64]],
) -> dict[str, float]:
    """Measures of the errors, predicted minus real start; (n,) float64 each, seconds.

    Returns
    -------
    jobs, the percentage of them that waited, the percentage whose error is at most 1 and 15
    minutes, and of the jobs that waited: the percentages within 1 and 15 minutes and within 10 % of
    the wait, the median of the absolute errors and the mean error.
    """
    error = predicted - started
    wait = started - submitted
    waited = (wait > 0) | (predicted > submitted)

    def share(holds: Any) -> float:
        return 100.0 * float(np.mean(holds)) if len(holds) else 100.0

    late = error[waited]
    return {
        "jobs": float(len(error)),
        "waited_pct": share(waited),
        "within_1_min_pct": share(np.abs(error) <= 60),
        "within_15_min_pct": share(np.abs(error) <= 900),
        "waited_within_1_min_pct": share(np.abs(late) <= 60),
        "waited_within_15_min_pct": share(np.abs(late) <= 900),
        "waited_within_10_percent_pct": share(np.abs(late) <= 0.1 * wait[waited]),
        "median_error_s": float(np.median(np.abs(late))) if len(late) else 0.0,
        "mean_error_s": float(np.mean(late)) if len(late) else 0.0,
    }
