"""The simulator's driver of the decision core: a virtual clock and jobs that only pass time.

Submissions come in order; an agenda says what else will happen at which time. The events of one
instant are handed to the core together; what they and its orders cause at the same instant is
handed over next. A rigid job of a trace has only its end, and costs little; of jobs given one by
one, `Programs` knows what they do between their start and their end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import nan
from typing import TypeAlias

import numpy as np

from scheduler.core.event_order import instant_order
from scheduler.model.events import (
    Event,
    JobEnded,
    JobStarted,
    JobSubmitted,
    ResizeDone,
    Wakeup,
)
from scheduler.model.orders import Continue, Contract, Expand, Kill, Order, Requeue, Start, WakeAt
from scheduler.model.procset import ProcSet
from scheduler.sites.site import Site
from scheduler.virtual_clock.agenda import Agenda
from simulator.engine.costs import Contiguity, Costs, ResizeCost
from simulator.engine.job_programs import Programs
from simulator.engine.jobs import Given, SimJob, Submissions
from simulator.engine.outcomes import Outcome, Result

Watch: TypeAlias = Callable[[float, list[Event], list[Order]], None]
SIGTERM = 15


class Engine:
    """Runs jobs through a core.

    Parameters
    ----------
    core : with its machine; it must be new. With numbered submissions it may forget what ended.
    jobs : jobs in any order, or submissions that are numbered; only the former may be resizable.
    cost : what a resize costs.
    point_s : what a resize point takes without a resize, seconds; of resizable jobs.
    start_s, end_s : from the order to start a job until it computes, and from its last iteration
        until its processes are gone, seconds.
    costs : of jobs given one by one, instead of these four: measured ones, by processes.
    rng : draws from what was measured; None: the mean each time.
    watch : told (time, events, orders) of each call of the core.
    allocations : keep the processors of each rigid job.
    contiguity : what rigid jobs gain where their processors are contiguous; they are told apart.

    Attributes
    ----------
    started, ended : time of each job, in the order of submission; nan if it never came.
    killed : numbers of the jobs that the core ended for good.
    redirected : (job, start, end) of each run that was ended in order to begin again elsewhere.
    allocated : processors of each rigid job that started, by number, if they were to be kept.
    """

    def __init__(
        self,
        core: Site,
        jobs: Iterable[SimJob] | Submissions,
        *,
        cost: ResizeCost | None = None,
        start_s: float = 0.0,
        end_s: float = 0.0,
        point_s: float = 0.0,
        costs: Costs | None = None,
        rng: np.random.Generator | None = None,
        watch: Watch | None = None,
        allocations: bool = False,
        contiguity: Contiguity | None = None,
    ) -> None:
        submissions: Submissions = Given(jobs) if isinstance(jobs, Iterable) else jobs
        self.core = core
        self.watch = watch
        self.contiguity = contiguity
        self.started = [nan] * len(submissions)
        self.ended = [nan] * len(submissions)
        self.killed: set[int] = set()
        self.redirected: list[tuple[int, float, float]] = []
        self.allocated: dict[int, ProcSet] | None = {} if allocations else None
        self._submit_at, self._specs = submissions.submit_times(), submissions.specs()
        self._run_s = submissions.run_times()
        self._around_s = start_s + end_s
        self._agenda = Agenda()
        self._programs: Programs | None = None
        if isinstance(submissions, Given):
            if costs is None:
                costs = Costs.constant(cost or ResizeCost(), start_s, end_s, point_s)
            given = submissions.jobs
            self._programs = Programs(given, core, self._agenda, costs, rng, self._compute)
        self._outcomes: list[Outcome] = []
        self._busy = 0.0

    def run(self) -> Result:
        """Run to the end of the last job that can run."""
        handle, programs, watch = self.core.handle, self._programs, self.watch
        submit_at, specs = self._submit_at, self._specs
        agenda, times = self._agenda, self._agenda.times
        come, count = 0, len(submit_at)
        while times or come < count:
            before = agenda.now
            if come == count or (times and times[0] <= submit_at[come]):
                events = agenda.advance()
            else:
                agenda.now, events = submit_at[come], []
            now = agenda.now
            if programs is not None:
                self._hold(now - before)
                programs.come_up()
            for event in events:
                if type(event) is JobEnded:
                    self.ended[event.job - 1] = now
            while come < count and submit_at[come] == now:
                come += 1
                events.append(JobSubmitted(now, come, specs[come - 1]))
            if not events:
                continue
            orders = handle(events)
            for order in orders:
                self._carry_out(order)
            if programs is not None:
                self._see_to(events, programs)
            if watch is not None:
                watch(now, sorted(events, key=instant_order), orders)
        processors, left = self.core.machine.processors, [*self.core.jobs]
        return Result(self._outcomes, processors, self._busy, left)

    def _hold(self, seconds: float) -> None:
        """Count what was held so long, up to now."""
        if self._outcomes or self.core.live:
            machine = self.core.machine
            self._busy += (machine.processors - machine.free_count) * seconds

    def _carry_out(self, order: Order) -> None:
        if type(order) is Start:
            self._start(order)
        elif isinstance(order, WakeAt):
            self._agenda.add(Wakeup(order.at))
        elif isinstance(order, Kill):
            self.killed.add(order.job)
            self._agenda.interrupt(JobEnded(self._agenda.now, order.job, signal=SIGTERM))
        elif isinstance(order, Requeue):
            self.killed.discard(order.job)
            now = self._agenda.now
            self.redirected.append((order.job, self.started[order.job - 1], now))
        elif isinstance(order, Continue | Expand | Contract) and self._programs is not None:
            self._programs.answer(order)

    def _start(self, order: Start) -> None:
        number, now = order.job, self._agenda.now
        self.started[number - 1] = now
        if self.allocated is not None and not self._specs[number - 1].resizable:
            self.allocated[number] = order.processors
        if self._programs is None:
            self._compute(order, now, self._around_s)
        else:
            self._programs.start(order)

    def _compute(self, order: Start, since: float, around_s: float) -> None:
        """Let a rigid job compute; nobody asks between its start and its end.

        Parameters
        ----------
        around_s : what passes besides its run time until its processes are gone, seconds.
        """
        number = order.job
        run_s = self._run_s[number - 1]
        if self.contiguity is not None:
            run_s = self.contiguity.run_s(run_s, order.processors)
        ends = JobEnded(since + (around_s + run_s), number)
        if number in self._agenda.next:  # it had an earlier life, the end of which is not to count
            self._agenda.follow(ends)
        else:
            self._agenda.add(ends)

    def _see_to(self, events: list[Event], programs: Programs) -> None:
        """What events lead to other than orders, where jobs are given one by one."""
        for event in events:
            if type(event) is JobEnded:
                self._collect(event.job, programs)
            elif isinstance(event, JobStarted | ResizeDone):
                programs.go_on(event)

    def _collect(self, number: int, programs: Programs) -> None:
        """Keep what is needed of a job that ended, and let all others forget it."""
        job = self.core.jobs[number]
        if job.ended_at is None:
            return  # it goes on, in another life
        self._outcomes.append(Outcome.of(job))
        self.core.forget(number)
        programs.forget(number)
        self._agenda.forget(number)
