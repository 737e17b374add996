"""The loop that drives a site by a virtual clock.

A site is a `scheduler.core.core.Core`, the centres of a simulation together, or a core whose nodes
come and go (`Driven`). Submissions come in order of time; the agenda holds all other events. The
loop hands the events of one instant to the site together and carries out its orders. Events that
these orders cause at the same instant are handed over next, still at that instant.

What jobs do between two orders is not decided here: a `Physics` enters the future events of a job
into the agenda when the job starts or resizes. The simulator has one with run times and costs; a
forecast may take estimates for run times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, isnan, nan
from typing import Final, Protocol, TypeAlias

from scheduler.clock.agenda import Agenda
from scheduler.model.events import Event, JobSpec, Wakeup
from scheduler.model.job import CONTINUE, JOB_ENDED, JOB_SUBMITTED, START, Job
from scheduler.model.orders import (
    Continue,
    Contract,
    Expand,
    Kill,
    Order,
    Refuse,
    Requeue,
    Reserve,
    Start,
    WakeAt,
)
from scheduler.model.procset import ProcSet
from scheduler.partition.passes import instant_order

#: Called as watch(time, events, orders) after each call of the site.
Watch: TypeAlias = Callable[[float, list[Event], list[Order]], None]
#: Called as tick(time) now and then, so that a program can show progress and be interrupted.
Tick: TypeAlias = Callable[[float], None]
#: Instants between two calls of it.
TICK_EVERY: Final = 1024
SIGTERM = 15


class DrivenMachine(Protocol):
    """Nodes and processors, for reading."""

    @property
    def processors(self) -> int:
        """Number of processors of the nodes that are up."""

    @property
    def free_count(self) -> int:
        """Number of processors that no job holds."""


class Driven(Protocol):
    """What the loop and physics use of a site."""

    @property
    def jobs(self) -> Mapping[int, Job]:
        """All jobs that are remembered, by number."""

    @property
    def live(self) -> Mapping[int, Job]:
        """The jobs that hold processors, by number."""

    @property
    def machine(self) -> DrivenMachine:
        """Nodes and processors."""

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Apply the events of one instant and return the orders that follow from them."""


class Recording(Driven, Protocol):
    """Something driven that keeps ended jobs until `forget` is called."""

    def forget(self, job: int) -> None:
        """Drop the record of a job that has ended.

        Raises
        ------
        ValueError : the job has not ended.
        """


class Physics:
    """What happens to jobs after the orders of a site; the methods of this base do nothing.

    The base is compiled (`scheduler.compiled`), and Python cannot derive an interpreted class
    from a compiled one: add the modules of subclasses to that list.

    Attributes
    ----------
    passes : whether `pass_points` may do something.
    """

    passes: bool = False

    def begin_instant(self, before: float, events: list[Event]) -> None:
        """Note that the clock has advanced, and the events of the agenda at this instant.

        Parameters
        ----------
        before : time of the last instant, seconds.
        """

    def start(self, order: Start) -> None:
        """Start a job: enter its next event into the agenda."""

    def resize(self, order: Continue | Expand | Contract) -> None:
        """Answer a job that is at a resize point: enter its next event into the agenda."""

    def pass_points(self, until: float) -> None:
        """Let jobs pass resize points without events while lasting answers apply at them.

        Parameters
        ----------
        until : time of the next submission, or at which the run ends, seconds.
        """

    def end_instant(self, events: list[Event]) -> None:
        """Act on the events of an instant, after the orders have been carried out."""


class EventLoop:
    """Runs jobs through a site until nothing is left to happen.

    Jobs are numbered from 1 in the order of their submission.

    Parameters
    ----------
    site : core, groups or centres with their machines; it must be new, or have `earlier` jobs.
    submit_times : in ascending order, seconds.
    specs : request of each job.
    agenda, physics : the agenda into which the physics enters what jobs do.
    watch : called after each call of the site.
    tick : called now and then.
    keep_allocations : keep the processors of each rigid job.
    keep_estimates : keep the estimate with which each job was submitted.
    earlier : number of jobs that the site has had already; the agenda holds what they do next.

    Attributes
    ----------
    started, ended : time of each job in seconds, of `earlier` ones too; nan if it did not start or
        end in this loop. A redirected job has those of its second run.
    killed : numbers of the jobs that the site ended for good.
    redirected : (job, start, end) of each run that was ended to start again elsewhere.
    allocated : processors of each rigid job that started, by number; None if they are not kept.
    answers : to requests for advance reservations.
    first_estimates : estimate of each job at its submission, seconds, nan if it did not start; None
        if they are not kept.
    """

    def __init__(
        self,
        site: Driven,
        submit_times: list[float],
        specs: list[JobSpec],
        agenda: Agenda,
        physics: Physics,
        *,
        watch: Watch | None = None,
        tick: Tick | None = None,
        keep_allocations: bool = False,
        keep_estimates: bool = False,
        earlier: int = 0,
    ) -> None:
        self.site = site
        self.started = [nan] * (earlier + len(submit_times))
        self.ended = [nan] * (earlier + len(submit_times))
        self.killed: set[int] = set()
        self.redirected: list[tuple[int, float, float]] = []
        self.allocated: dict[int, ProcSet] | None = {} if keep_allocations else None
        self.answers: list[Reserve | Refuse] = []
        self.first_estimates: list[float] | None = None
        if keep_estimates:
            self.first_estimates = [nan] * (earlier + len(submit_times))
        self._submit_times, self._specs, self._earlier = submit_times, specs, earlier
        self._agenda, self._physics, self._watch = agenda, physics, watch
        self._tick = tick
        self._awaited: set[int] = set()  # jobs with whose starts the run ends

    def run(self, until: float = inf, awaited: Iterable[int] = ()) -> None:
        """Run to the end of the last job that can run.

        Parameters
        ----------
        until : the last instant is at or before this time, s.
        awaited : numbers of jobs with whose starts the run ends; (): it does not.
        """
        handle, physics, watch = self.site.handle, self._physics, self._watch
        submit_times, specs = self._submit_times, self._specs
        agenda = self._agenda
        submitted, count = 0, len(submit_times)
        self._awaited = {number for number in awaited if isnan(self.started[number - 1])}
        ends_early = len(self._awaited) > 0
        earlier, tick, instants = self._earlier, self._tick, 0
        while len(agenda) or submitted < count:
            before = agenda.now
            if until < inf and self._next_at(submitted) > until:
                return
            if submitted == count or (len(agenda) and agenda.next_at <= submit_times[submitted]):
                events = agenda.advance()
            else:
                agenda.now, events = submit_times[submitted], []
            now = agenda.now
            instants += 1
            if instants == TICK_EVERY and tick is not None:
                instants = 0
                tick(now)
            physics.begin_instant(before, events)
            for event in events:
                if type(event) is JOB_ENDED:
                    self.ended[event.job - 1] = now
            while submitted < count and submit_times[submitted] == now:
                submitted += 1
                if specs[submitted - 1].task_of is None:  # tasks come with their arrays
                    events.append(JOB_SUBMITTED(now, earlier + submitted, specs[submitted - 1]))
            if not events:
                continue
            orders = handle(events)
            for order in orders:
                self._carry_out(order)
            physics.end_instant(events)
            if watch is not None:
                watch(now, sorted(events, key=instant_order), orders)
            elif physics.passes:
                physics.pass_points(
                    min(submit_times[submitted] if submitted < count else inf, until)
                )
            if ends_early and not self._awaited:
                return

    def _next_at(self, submitted: int) -> float:
        """Time of the next instant after this many submissions, seconds; there is one."""
        next_at = self._agenda.next_at if len(self._agenda) else inf
        return min(next_at, *self._submit_times[submitted : submitted + 1], inf)

    def _carry_out(self, order: Order) -> None:
        if type(order) is START:
            number = order.job
            self.started[number - 1] = self._agenda.now
            if self._awaited:
                self._awaited.discard(number)
            if self.allocated is not None and not self.site.jobs[number].resizable:
                self.allocated[number] = order.processors
            if self.first_estimates is not None and isnan(self.first_estimates[number - 1]):
                self.first_estimates[number - 1] = self.site.jobs[number].first_estimate_s
            self._physics.start(order)
        elif type(order) is CONTINUE or isinstance(order, (Continue, Expand, Contract)):
            self._physics.resize(order)
        elif isinstance(order, WakeAt):
            self._agenda.add(Wakeup(order.at))
        elif isinstance(order, Kill):
            self.killed.add(order.job)
            self._agenda.interrupt(JOB_ENDED(self._agenda.now, order.job, signal=SIGTERM))
        elif isinstance(order, Requeue):
            self.killed.discard(order.job)
            number = order.job
            self.redirected.append((number, self.started[number - 1], self._agenda.now))
            self.started[number - 1] = self.ended[number - 1] = nan  # until it starts again
        elif isinstance(order, (Reserve, Refuse)):
            self.answers.append(order)
