"""A centre: a core with a CPU factor and a price, and its answers to a dispatcher."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

import msgspec

from scheduler.forecasts.answers import JobForecast
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import Event, JobSpec
from scheduler.model.machine import Machine
from scheduler.model.orders import Order
from scheduler.policies.assignment.interface import SiteRequest
from simulator.engine.policy_failures import simulated_core
from simulator.many_centres.centres_file import CentreDescription
from simulator.many_centres.expected_start import expected_start, expected_start_of

#: Quotes after which the copies of cores are freed: they contain cycles, and the collector of
#: garbage is off in a simulation (`reshape.collection`).
FREE_EVERY = 100


class Centre:
    """A centre of a simulation: a core asked by dispatchers.

    Parameters
    ----------
    description : of the centre.
    clock : returns the present time, s.
    scale_estimates : multiply estimates by the CPU factor, as run times are.
    resizable : jobs may be resizable. Processors have numbers then, quotes are complete forecasts,
        and the centre remembers ended jobs until they are forgotten. Otherwise processors are
        counted.

    Attributes
    ----------
    core : decides for the centre.
    queue : its queued jobs.
    quoted : job of the latest quote and the quoted wait, s.
    """

    def __init__(
        self,
        description: CentreDescription,
        clock: Callable[[], float],
        *,
        scale_estimates: bool = True,
        resizable: bool = False,
    ) -> None:
        self.description = description
        self.name = description.name
        self.processors = description.processors
        self.cpu_factor = description.cpu_factor
        self.price = description.price
        nodes = [(description.name, description.processors)]
        self._resizable = resizable
        self.core = simulated_core(
            description.scenario,
            Machine(nodes, counted=not resizable),
            kill_at_walltime=False,
            keep_ended=resizable,
        )
        self._partition = self.core.partitions[0]
        self.queue = self._partition.queue
        self.quoted = 0, inf
        self._forecast: tuple[SiteRequest, JobForecast] | None = None  # of the present state
        self._forecast_at = -inf
        self._clock = clock
        self._scale = description.cpu_factor if scale_estimates else 1.0
        self._submitted = self._quotes = 0
        self._work: dict[int, float] = {}  # of the queued jobs, processor-seconds
        self._work_sum = 0.0

    # Answers to a dispatcher.

    def submitted(self) -> int:
        """Number of jobs that were submitted so far."""
        return self._submitted

    def queued(self) -> int:
        """Number of queued jobs."""
        return len(self.queue.jobs)

    def free(self) -> int:
        """Number of free processors."""
        return self.core.machine.free_count

    def work_left(self) -> float:
        """Processors times estimate, summed over the queued jobs, processor-seconds."""
        return self._work_sum

    def load(self) -> float:
        """Processors that live and queued jobs hold or request, divided by those of the centre."""
        requested = sum(job.processors for job in self.queue.jobs.values())
        return (self.processors - self.core.machine.free_count + requested) / self.processors

    def wait_s(self, request: SiteRequest, at_most_s: float = inf) -> float:
        """Wait that the same core predicts by running forward, s; inf beyond `at_most_s`."""
        now = self._clock()
        if self._resizable:
            start = self._forecast_of(request).start
            wait_s = inf if start is None else start - now
        else:
            self._quotes += 1
            if self._quotes % FREE_EVERY == 0:
                gc.collect(0)
            wait_s = (
                expected_start(self._partition, now, self._asked(request), now + at_most_s) - now
            )
        self.quoted = request.job, wait_s
        return wait_s

    def turnaround_s(self, request: SiteRequest) -> float:
        """Time to the end by the same prediction, s; a resizable job resizes in it."""
        if not self._resizable:
            return self.wait_s(request) + request.run_s * self.cpu_factor
        end = self._forecast_of(request).end
        return inf if end is None else end - self._clock()

    def wait_of(self, job: int) -> float:
        """Wait that is left to a queued job, by the same prediction, s."""
        if self._resizable:
            state = replace(RecordedState.of_core(self.core), now=self._clock())
            return forecast(state, only=[job]).start(job) - self._clock()
        return expected_start_of(self._partition, self._clock(), job) - self._clock()

    def _forecast_of(self, request: SiteRequest) -> JobForecast:
        """Forecast a job that is submitted now; the latest answer is kept for further questions."""
        now = self._clock()
        if self._forecast is None or self._forecast_at != now or self._forecast[0] is not request:
            state = replace(RecordedState.of_core(self.core), now=now)
            answer = forecast(state, [self._asked(request)], only=[state.last + 1]).submitted()
            self._forecast, self._forecast_at = (request, answer), now
        return self._forecast[1]

    def spec(self, request: SiteRequest) -> JobSpec:
        """Job as it is submitted here: the walltime is the user's estimate (GUIM 8.3)."""
        return self._spec(request.spec, request.spec.walltime_s)

    def _asked(self, request: SiteRequest) -> JobSpec:
        """Job as a dispatcher asks for it: the walltime is the run time that it expects."""
        return self._spec(request.spec, request.run_s)

    def _spec(self, spec: JobSpec, run_s: float) -> JobSpec:
        """Job with a run time on CPU factor 1, s, as this centre estimates it."""
        walltime_s = run_s * self._scale
        if spec.max_processors is not None and spec.max_processors > self.processors:
            spec = msgspec.structs.replace(spec, max_processors=self.processors)
        if walltime_s == spec.walltime_s:
            return spec
        return msgspec.structs.replace(spec, walltime_s=walltime_s)

    # What happens to its jobs.

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Apply the events of one instant and return the orders that follow from them."""
        self._forecast = None
        return self.core.handle(events)

    def forget(self, job: int) -> None:
        """Drop the record of a job that has ended."""
        self.core.forget(job)

    def was_submitted(self, job: int, spec: JobSpec) -> None:
        """Count a job that is about to be submitted."""
        self._submitted += 1
        work = spec.processors * spec.walltime_s
        self._work[job] = work
        self._work_sum += work

    def left_queue(self, job: int) -> None:
        """Note that a job started or was withdrawn."""
        self._work_sum -= self._work.pop(job, 0.0)
        if not self._work:
            self._work_sum = 0.0
