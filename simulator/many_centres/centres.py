"""Several centres as one site on one agenda.

At an instant the ends come first, centre by centre, each with a scheduling pass. Then each
submitted job is assigned by its dispatcher and handed to its centre, one after the other, as at
live services. A job that was submitted to several centres stays at the one that starts it first;
the other submissions are revoked before those centres handle anything else.
"""

from __future__ import annotations

import gc
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, nan

import msgspec

from scheduler.core.core import Core
from scheduler.forecasts.answers import JobForecast
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import (
    Event,
    JobCancelled,
    JobEnded,
    JobSpec,
    JobStarted,
    JobSubmitted,
    ResizeDone,
    ResizePoint,
    SizesRequested,
    Wakeup,
)
from scheduler.model.job import Job
from scheduler.model.machine import Machine
from scheduler.model.orders import Order, Start, WakeAt
from scheduler.policies.assignment.dispatcher import Dispatcher
from scheduler.policies.assignment.interface import SiteRequest
from simulator.engine.engine import simulated_core
from simulator.many_centres.expected_start import expected_start, expected_start_of
from simulator.many_centres.rules import CentreDescription, CentresRules

#: Quotes after which the copies of cores are freed: they contain cycles, and the collector of
#: garbage is off in a simulation (`reshape.collection`).
FREE_EVERY = 100
#: Seconds between two examinations of the queues for jobs to which another centre quotes an earlier
#: start, and the number of jobs of each queue that are examined.
QUOTE_EVERY_S, DEPTH = 600.0, 20
#: A job moves if the wait there is at most this share of the present one, and shorter by this (s).
#: So no job moves back and forth for a small gain.
MOST_OF_WAIT, LEAST_GAIN_S = 0.5, 60.0


class Centre:
    """A centre of a simulation: a core asked by dispatchers.

    Parameters
    ----------
    description : of the centre.
    clock : returns the present time, s.
    scale_estimates : multiply estimates by the CPU factor, as run times are.
    single : jobs have programs of their own and may be resizable. Processors have numbers then,
        quotes are complete forecasts, and the centre remembers ended jobs until they are forgotten.
        Otherwise processors are counted.
    kill_at_walltime : of its core.

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
        scale_estimates: bool,
        single: bool,
        kill_at_walltime: bool,
    ) -> None:
        self.name = description.name
        self.processors = description.processors
        self.cpu_factor = description.cpu_factor
        self.price = description.price
        nodes = [(description.name, description.processors)]
        self._single = single
        self.core = simulated_core(
            description.chosen,
            Machine(nodes, counted=not single),
            kill_at_walltime=kill_at_walltime,
            keep_ended=single,
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
        if self._single:
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
        if not self._single:
            return self.wait_s(request) + request.run_s * self.cpu_factor
        end = self._forecast_of(request).end
        return inf if end is None else end - self._clock()

    def wait_of(self, job: int) -> float:
        """Wait that is left to a queued job, by the same prediction, s."""
        if self._single:
            state = replace(RecordedState.of_core(self.core), now=self._clock())
            return forecast(state, only=[job]).start(job) - self._clock()
        return expected_start_of(self._partition, self._clock(), job) - self._clock()

    def _forecast_of(self, request: SiteRequest) -> JobForecast:
        """Forecast a job that is submitted now; the latest answer is kept for further questions."""
        now = self._clock()
        if self._forecast is None or self._forecast_at != now or self._forecast[0] is not request:
            state = replace(RecordedState.of_core(self.core), now=now)
            number = state.last + 1
            answer = forecast(state, [self._asked(request)], only=[number]).of(number)
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


class Centres:
    """Several centres with dispatchers, driven as one site.

    Parameters
    ----------
    descriptions : of the centres; their names differ.
    rules : with a task assignment policy.
    origins : name of the home centre of each job, by its number from 1; empty: none has one.
    single, kill_at_walltime : see `Centre`.

    Attributes
    ----------
    now : time of the latest instant, s.
    centres : the centres.
    ran_at : job number -> index of the centre at which the job started.
    cpu_factors : job number -> CPU factor of that centre, where it is not 1.
    moved : number of moves of waiting jobs.
    quotes : if the rules keep them: job number -> wait that the chosen centre quoted at its
        submission, s, nan if it was not asked, and run time that was expected on CPU factor 1, s.
    """

    def __init__(
        self,
        descriptions: Iterable[CentreDescription],
        rules: CentresRules,
        origins: Sequence[str],
        *,
        single: bool,
        kill_at_walltime: bool,
    ) -> None:
        assert rules.assignment is not None, "Grid-Backfilling has no dispatchers"
        self.now = -inf
        self.quotes: dict[int, tuple[float, float]] | None = {} if rules.keep_quotes else None
        self.centres = [
            Centre(
                description,
                lambda: self.now,
                scale_estimates=rules.scale_estimates,
                single=single,
                kill_at_walltime=kill_at_walltime,
            )
            for description in descriptions
        ]
        self.machine = self  # the processors of all centres together
        self.ran_at: dict[int, int] = {}
        self.cpu_factors: dict[int, float] = {}
        self.moved = 0
        self._dispatcher = Dispatcher(rules.assignment, rules.dispatch, rules.estimates, rules.seed)
        self._origins = origins
        self._redispatch = rules.redispatch
        self._examined = -inf
        self._index_of = {centre.name: i for i, centre in enumerate(self.centres)}
        self._running: dict[int, Centre] = {}
        self._queued_at: dict[int, list[Centre]] = {}
        self._requests: dict[int, SiteRequest] = {}  # of queued jobs
        self._held: dict[int, SiteRequest] = {}  # in the queue of the dispatcher
        self._revoked: dict[str, list[Event]] = {}
        self._wakes: dict[float, dict[str, None]] = {}  # centres that asked for a wake-up

    @property
    def processors(self) -> int:
        """Number of processors of all centres."""
        return sum(centre.processors for centre in self.centres)

    @property
    def free_count(self) -> int:
        """Number of processors that no job holds."""
        return sum(centre.free() for centre in self.centres)

    @property
    def cores(self) -> list[Core]:
        """Cores of the centres, in their order."""
        return [centre.core for centre in self.centres]

    @property
    def jobs(self) -> Mapping[int, Job]:
        """Jobs by number, without ended ones; of several submissions of a job one."""
        return ChainMap(*(centre.core.jobs for centre in self.centres))

    @property
    def live(self) -> Mapping[int, Job]:
        """The jobs that hold processors, by number."""
        return ChainMap(*(centre.core.live for centre in self.centres))

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Apply the events of one instant and return the orders that follow from them."""
        orders: list[Order] = []
        submitted: list[JobSubmitted] = []
        for event in events:
            if event.at > self.now:
                self.now = event.at
        by_centre = self._by_centre(events, submitted)
        for index in sorted(by_centre):
            self._give(self.centres[index], by_centre[index], orders)
        for submission in submitted:
            self._submit(submission, orders)
        if self._held and (by_centre or submitted):
            self._pull(orders)
        if self._redispatch is not None and by_centre:
            self._examine(orders)
        return orders

    def forget(self, job: int) -> None:
        """Drop the record of a job that has ended."""
        self.centres[self.ran_at[job]].forget(job)

    def _by_centre(
        self, events: Sequence[Event], submitted: list[JobSubmitted]
    ) -> dict[int, list[Event]]:
        """Divide events by the index of their centre; submissions are put apart."""
        by_centre: dict[int, list[Event]] = {}
        for event in events:
            if type(event) is JobSubmitted:
                submitted.append(event)
            elif type(event) is JobEnded:
                centre = self._running.pop(event.job)
                by_centre.setdefault(self._index_of[centre.name], []).append(event)
                self._dispatcher.ended(event.job, event.at)
            elif isinstance(event, JobStarted | SizesRequested | ResizePoint | ResizeDone):
                index = self._index_of[self._running[event.job].name]
                by_centre.setdefault(index, []).append(event)
            elif type(event) is Wakeup:
                for name in self._wakes.pop(event.at, ()):
                    by_centre.setdefault(self._index_of[name], []).append(event)
        return by_centre

    def _give(self, centre: Centre, events: list[Event], orders: list[Order]) -> None:
        """Let a centre handle events, and revoke what other centres need not start any more."""
        self._handle(centre, events, orders)
        while self._revoked:
            name = next(iter(self._revoked))
            self._handle(self.centres[self._index_of[name]], [], orders)

    def _handle(self, centre: Centre, events: list[Event], orders: list[Order]) -> None:
        """Let a centre handle events together with the submissions that are revoked there."""
        revoked = self._revoked.pop(centre.name, ())
        for order in centre.handle([*events, *revoked]):
            if type(order) is WakeAt:
                if order.at in self._wakes:
                    self._wakes[order.at][centre.name] = None
                    continue
                self._wakes[order.at] = {centre.name: None}
            elif type(order) is Start:
                self._start(order.job, centre)
            orders.append(order)
        for event in revoked:
            if isinstance(event, JobCancelled):
                centre.forget(event.job)

    def _start(self, job: int, centre: Centre) -> None:
        """Note the start of a job, and revoke its other submissions."""
        self._running[job] = centre
        self.ran_at[job] = self._index_of[centre.name]
        if centre.cpu_factor != 1.0:
            self.cpu_factors[job] = centre.cpu_factor
        centre.left_queue(job)
        del self._requests[job]
        self._dispatcher.started(job, self.now, centre)
        for other in self._queued_at.pop(job):
            if other is not centre:
                self._revoke(job, other)

    def _revoke(self, job: int, centre: Centre) -> None:
        centre.left_queue(job)
        cancelled = JobCancelled(self.now, job, "started at another centre")
        self._revoked.setdefault(centre.name, []).append(cancelled)

    def _submit(self, event: JobSubmitted, orders: list[Order]) -> None:
        """Assign a job and hand it to its centre; a job that fits nowhere is dropped."""
        spec, number = event.spec, event.job
        able = [centre for centre in self.centres if centre.processors >= spec.processors]
        if not able:
            return
        origin = self._origins[number - 1] if self._origins else ""
        home, max_cost = self._index_of.get(origin), inf
        if home is not None:  # GUIM 8.6.3
            max_cost = spec.walltime_s * spec.processors / 3600.0 * self.centres[home].price
        expected_s = self._dispatcher.expected_s(Job(number, spec, event.at))
        request = SiteRequest(number, spec, expected_s, origin, max_cost)
        self._requests[number] = request
        if self._dispatcher.pulls:
            self._held[number] = request
            return
        ranking = self._dispatcher.choose(request, able)
        if self.quotes is not None:
            job, wait_s = ranking[0].quoted
            self.quotes[number] = wait_s if job == number else nan, request.run_s
        self._hand_over(request, ranking, orders)

    def _hand_over(self, request: SiteRequest, ranking: list[Centre], orders: list[Order]) -> None:
        """Submit a job to centres, until one starts it."""
        number = request.job
        queued_at = self._queued_at[number] = []
        for centre in ranking:
            spec = centre.spec(request)
            centre.was_submitted(number, spec)
            queued_at.append(centre)
            self._give(centre, [JobSubmitted(self.now, number, spec)], orders)
            if number in self._running:
                return

    def _pull(self, orders: list[Order]) -> None:
        """Assign held jobs in their order, to centres where no earlier job has to wait."""
        waiting: set[str] = set()
        for number, request in list(self._held.items()):
            size = request.spec.processors
            able = [c for c in self.centres if c.processors >= size and c.name not in waiting]
            starting = [centre for centre in able if centre.free() >= size]
            if starting:
                del self._held[number]
                ranking = self._dispatcher.choose(request, starting)
                self._hand_over(request, ranking, orders)
            else:
                waiting.update(centre.name for centre in able)
                if len(waiting) == len(self.centres):
                    return

    def _examine(self, orders: list[Order]) -> None:
        """Move jobs that wait to centres that quote an earlier start."""
        if self._redispatch == "quote" and self.now < self._examined + QUOTE_EVERY_S:
            return
        self._examined = self.now
        for centre in self.centres:
            for job in list(centre.queue)[:DEPTH]:
                # A job that moved may have let this one start.
                if job.id in centre.queue:
                    better = self._better(self._requests[job.id], centre)
                    if better is not None:
                        self._move(job.id, centre, better, orders)

    def _better(self, request: SiteRequest, centre: Centre) -> Centre | None:
        """Centre to which a waiting job is moved; None if it stays."""
        size = request.spec.processors
        others = [c for c in self.centres if c is not centre and c.processors >= size]
        if self._redispatch == "at-once":
            free = (c for c in others if c.free() >= size)
            return next((c for c in free if c.wait_s(request) == 0.0), None)
        waits_s = [other.wait_s(request) for other in others]
        best = better_wait(centre.wait_of(request.job), waits_s)
        return None if best is None else others[best]

    def _move(self, number: int, centre: Centre, to: Centre, orders: list[Order]) -> None:
        self.moved += 1
        request = self._requests[number]
        self._revoke(number, centre)
        self._give(centre, [], orders)
        self._hand_over(request, [to], orders)


def better_wait(present_s: float, others_s: Sequence[float]) -> int | None:
    """Index of the shortest wait, of equal ones the first; None if a job does not move for it.

    Parameters
    ----------
    present_s : expected wait where the job waits, seconds from now.
    others_s : expected waits elsewhere; inf where no start is quoted.
    """
    best_s, best = min(((wait_s, i) for i, wait_s in enumerate(others_s)), default=(inf, -1))
    is_better = best_s <= MOST_OF_WAIT * present_s and best_s <= present_s - LEAST_GAIN_S
    return best if is_better and best_s < inf else None
