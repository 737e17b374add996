"""Programs of single jobs: they start, compute, resize and end, each step with its cost.

A resize passes as it does live. The group of an expansion starts in the background while the job
computes on, and joins at the first resize point at which it is ready; join and move are a pause. A
contraction is a pause for the move; the processors are free when the processes on them have ended,
and the job computes meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan
from typing import Final

import msgspec
import numpy as np

from reshape.wire.messages import ResizeTimes
from scheduler.clock.agenda import Agenda
from scheduler.clock.loop import Recording
from scheduler.core.core import Core
from scheduler.model.events import (
    Event,
    JobEnded,
    JobStarted,
    ResizeDone,
    ResizePoint,
    SizesRequested,
)
from scheduler.model.intervals import count
from scheduler.model.job import CONTINUE, JOB_ENDED, JobState
from scheduler.model.orders import Continue, Contract, Expand, Start
from scheduler.model.procset import ProcSet
from simulator.engine.costs import Costs, ProcessStarts, StepTime
from simulator.engine.jobs import SimJob
from simulator.engine.physics import RunTimeOn
from simulator.engine.rigid_jobs import RigidJobs, SharedIterations
from simulator.results.schedule import Sizes

#: As in `scheduler.model.job`.
JOB_STARTED: Final = JobStarted
RESIZE_POINT: Final = ResizePoint
RESIZE_DONE: Final = ResizeDone
#: Turns of jobs that pass resize points between two instants, so that the clock shows progress.
MOST_PASSES: Final = 1024


class ProgramState:
    """State of the program of a resizable job.

    A steady part are iterations that it computes one after the other, without a pause or a change
    of speed. Their ends are computed from the start of the first one. If the length of an iteration
    were added again and again, a job that keeps its size would not end after its exact run time.

    Parameters
    ----------
    size : processors on which it computes.

    Attributes
    ----------
    iterations, all_iterations : iterations finished or under way, and those of the whole job.
    data_bytes, has_phases : of the job, and whether it has phases; each iteration reads them.
    since, before, steady_s : start of the steady part, seconds, the iterations finished then, and
        the time of all iterations of the job at its speed, seconds.
    points_s, ends : time of the resize points since then, and end of its last iteration, seconds.
    joining, group_s, ready_at : the expansion whose group is starting, how long its start takes
        (seconds), and when it is ready.
    resumed_at : end of the pause of its last resize.
    """

    def __init__(self, job: SimJob, size: int) -> None:
        self.job, self.size, self.iterations = job, size, 0
        self.all_iterations, self.data_bytes = job.iterations, job.data_bytes
        self.has_phases = len(job.phases) > 0
        self.since, self.before, self.steady_s = 0.0, 0, 0.0
        self.points_s, self.ends = 0.0, nan
        self.joining: Expand | None = None
        self.group_s, self.ready_at, self.resumed_at = 0.0, inf, -inf
        self._timed_size, self._run_s = 0, 0.0

    @property
    def run_s(self) -> float:
        """Time of all iterations on the present size, seconds."""
        if self._timed_size != self.size:
            self._timed_size, self._run_s = self.size, self.job.run_on_s(self.size)
        return self._run_s

    def end_of(self, done: int, now: float) -> float:
        """Time (s), from now on, by which `done` of all iterations are finished."""
        share = (done - self.before) / self.all_iterations
        ends = self.since + (self.points_s + self.steady_s * share)
        return ends if ends > now else now


class Programs(RigidJobs):
    """Programs and rigid jobs on a machine where starts, joins, moves and ends take time.

    A running job has exactly one next event: the end of its start, of its iteration, of its resize,
    or of all.

    Parameters
    ----------
    jobs : in the order of their numbers, from 1.
    site : whose orders are carried out; it forgets ended jobs when they are collected. A core
        passes resize points without events where it can.
    agenda : takes the events.
    costs, rng : see `Engine`.
    contiguity, cpu_factors, shared : see `RigidJobs`; they apply to iterations as well.
    keep_places : keep the processors of each job over time.

    Attributes
    ----------
    sizes : job number -> sizes over time, of the jobs that ended, in the order of their ends.
    held : job number -> (time in seconds, processors that it holds from then on, with those of a
        joining group, or only their number if places are not kept); none between two runs.
    held_s : processor-seconds that jobs held.
    places : job number -> (time in seconds, processors on which it computes from then on); no
        processors between two runs. None if they are not kept.
    """

    def __init__(
        self,
        jobs: list[SimJob],
        site: Recording,
        agenda: Agenda,
        costs: Costs,
        rng: np.random.Generator | None,
        contiguity: RunTimeOn | None = None,
        cpu_factors: Mapping[int, float] | None = None,
        shared: SharedIterations | None = None,
        keep_places: bool = False,
    ) -> None:
        run_s = [job.run_s for job in jobs]
        super().__init__(agenda, run_s, contiguity, cpu_factors, shared)
        self.places: dict[int, list[tuple[float, ProcSet]]] | None = {} if keep_places else None
        self.sizes: dict[int, Sizes] = {}
        self.held: dict[int, list[tuple[float, ProcSet | int]]] = {}
        self.held_s = 0.0
        self._jobs, self._site = jobs, site
        self._costs, self._rng = costs, rng
        self._points_cost = costs.point != StepTime()
        may_pass = not self._points_cost and shared is None
        self._core = site if isinstance(site, Core) and may_pass else None
        self.passes = self._core is not None
        self._starts = ProcessStarts()
        self._up_at = nan  # when the next processes are up
        self._states: dict[int, ProgramState] = {}

    def begin_instant(self, before: float, events: list[Event]) -> None:
        """Count what jobs held since the last instant, and continue with the processes now up."""
        super().begin_instant(before, events)
        if self.sizes or self._site.live:
            machine = self._site.machine
            held = machine.processors - machine.free_count
            self.held_s += held * (self._agenda.now - before)
        if self._agenda.now == self._up_at:
            self._up_at = nan
            for order, begun_at, fixed_s in self._starts.up(self._agenda.now):
                self._is_up(order, begun_at, fixed_s)
            if self._starts:
                self._await_processes()

    def start(self, order: Start) -> None:
        """Start the processes of a job."""
        job = self._jobs[order.job - 1]
        processes = job.spec.processors
        if job.spec.resizable:
            processes = self._site.jobs[order.job].size  # fewer than requested if adaptive
            if self._cpu_factors is not None:
                factor = self._cpu_factors.get(order.job, 1.0)
                job = msgspec.structs.replace(job, run_s=job.run_s * factor)
            self._states[order.job] = ProgramState(job, processes)
        self._leave(order.job)  # if it is redirected at this instant
        now, held = self._agenda.now, order.processors
        if self.places is None:
            self.held.setdefault(order.job, []).append((now, count(held.intervals)))
        else:
            self.held.setdefault(order.job, []).append((now, held))
            self.places.setdefault(order.job, []).append((now, held))
        self._start_processes(order, processes, self._costs.start)

    def resize(self, order: Continue | Expand | Contract) -> None:
        """Carry out the answer to a resize point."""
        state = self._states[order.job]
        if type(order) is CONTINUE:
            self._continue(order.job)
            return
        if isinstance(order, Contract):
            leave_s = self._costs.leave.of(state.size - order.to, self._rng)
            times = ResizeTimes(plan_s=self._costs.pause_s, move_s=self._move_s(order))
            self._pause(order.job, order.serial, order.to, times, leave_s)
            return
        if isinstance(order, Expand):
            state.joining, state.ready_at = order, inf
            self._keep_held(order.job)
            self._start_processes(order, order.to - state.size, self._costs.group)
        self._continue(order.job)

    def pass_points(self, until: float) -> None:
        """Let jobs compute on while nothing else happens and the core would answer the same."""
        core, agenda = self._core, self._agenda
        for _ in range(MOST_PASSES):
            point = agenda.first_point
            if core is None or point is None:
                return
            if not self._pass_points_of(core, point.job, min(until, agenda.second_at)):
                return

    def _pass_points_of(self, core: Core, number: int, until: float) -> bool:
        """Let the job of the next resize point compute on; False: the point needs its event."""
        agenda, state = self._agenda, self._states[number]
        if state.has_phases or state.joining is not None:
            return False
        machine = core.machine
        held = machine.processors - machine.free_count
        now, at, done = agenda.now, state.ends, state.iterations
        all_iterations = state.all_iterations
        iteration_s = state.steady_s / all_iterations
        while done + 1 < all_iterations and at < until:
            if not core.pass_point(number, at, all_iterations - done, iteration_s):
                break
            self.held_s += held * (at - now)
            now, done = at, done + 1
            at = state.end_of(done, now)
        if done == state.iterations:
            return False
        state.iterations, state.ends, agenda.now = done, at, now
        data_bytes = state.data_bytes
        agenda.replace_first(
            RESIZE_POINT(at, number, done, iteration_s, None, data_bytes, "", all_iterations)
        )
        return True

    def end_instant(self, events: list[Event]) -> None:
        """Collect the jobs that ended, and let others continue after a start or a resize."""
        for event in events:
            if type(event) is JOB_ENDED:
                self._collect(event.job)
            elif type(event) is JOB_STARTED or type(event) is RESIZE_DONE:
                if self._agenda.next[event.job] is not event:
                    continue
                state = self._states[event.job]
                state.size = self._site.jobs[event.job].size  # a resize may have been rolled back
                resized = type(event) is RESIZE_DONE
                if resized:
                    self._keep_held(event.job)
                    if self.places is not None:
                        self._keep_place(event.job, self.places[event.job])
                self._compute(event.job, state.resumed_at if resized else self._agenda.now)

    def _collect(self, number: int) -> None:
        """Keep the sizes of a job that ended, and drop everything else about it."""
        job = self._site.jobs[number]
        if job.ended_at is None:  # it was redirected
            if job.started_at is None:
                self._leave(number)
            return
        self.sizes[number] = job.sizes
        self._site.forget(number)
        self._states.pop(number, None)
        self._agenda.forget(number)

    def _leave(self, number: int) -> None:
        """Note that a job holds nothing from now on, if it held something."""
        kept, now = self.held.get(number), self._agenda.now
        if not kept or not kept[-1][1]:
            return
        kept.append((now, 0))
        if self.places is not None:
            self.places[number].append((now, ProcSet()))

    def _keep_held(self, number: int) -> None:
        """Keep what all groups of a job hold, if that has changed."""
        groups, kept = self._site.jobs[number].groups, self.held[number]
        held: ProcSet | int = 0
        if self.places is not None:
            held = ProcSet.union(groups.values())
        else:
            held = sum([count(part.intervals) for part in groups.values()])
        if held != kept[-1][1]:
            kept.append((self._agenda.now, held))

    def _keep_place(self, number: int, kept: list[tuple[float, ProcSet]]) -> None:
        """Keep the processors of a job after a resize, unless it was rolled back."""
        held = self._computes_on(number)
        if held != kept[-1][1]:
            kept.append((self._agenda.now, held))

    def _computes_on(self, number: int) -> ProcSet:
        """Processors on which a job computes: those of its groups, except of one that joins."""
        live = self._site.jobs[number]
        joining = () if live.resize is None else live.resize.joining
        return ProcSet.union([held for group, held in live.groups.items() if group not in joining])

    def _start_processes(self, order: Start | Expand, processes: int, time: StepTime) -> None:
        """Start the processes of a group."""
        now = self._agenda.now
        fixed_s, each_s = time.parts(self._rng)
        if each_s == 0:
            self._is_up(order, now, fixed_s)
        else:
            self._starts.begin(now, processes, each_s, (order, now, fixed_s))
            self._await_processes()

    def _await_processes(self) -> None:
        """Stop the clock when the next processes are up, unless others start before."""
        self._up_at = self._starts.next_at()
        self._agenda.enter(self._up_at, None)

    def _is_up(self, order: Start | Expand, begun_at: float, fixed_s: float) -> None:
        """Let a job begin, or mark a group ready to join, unless the job was ended meanwhile.

        Parameters
        ----------
        begun_at : time of the order, seconds.
        fixed_s : time of the start that no process adds to, seconds.
        """
        number, at = order.job, self._agenda.now + fixed_s
        if isinstance(order, Expand):
            state = self._states.get(number)
            if state is not None and state.joining is order:
                state.ready_at, state.group_s = at, at - begun_at
            return
        live = self._site.jobs.get(number)
        if live is None or live.state is not JobState.STARTING:
            return
        if live.started_at != begun_at:  # it has been redirected since
            return
        job = self._jobs[number - 1]
        if job.spec.resizable:
            self._agenda.set_next(JobStarted(at, number))
            return
        self.compute(order, at, self._costs.end.of(job.spec.processors, self._rng))

    def _move_s(self, order: Expand | Contract) -> float:
        return self._states[order.job].job.data_bytes / self._costs.bytes_per_s

    def _continue(self, job: int) -> None:
        """Join the group that is ready, or compute the next iteration."""
        if self._site.jobs[job].state is JobState.COMPLETING:  # killed at this instant
            return
        state = self._states[job]
        joining = state.joining
        if joining is not None and not self._is_under_way(joining):
            joining = state.joining = None
            self._keep_held(job)
        if joining is not None and state.ready_at <= self._agenda.now:
            state.joining = None
            times = ResizeTimes(
                start_s=state.group_s,
                join_s=self._costs.join.of(joining.to, self._rng),
                plan_s=self._costs.pause_s,
                move_s=self._move_s(joining),
            )
            self._pause(job, joining.serial, joining.to, times)
        else:
            self._compute(job, self._agenda.now)

    def _is_under_way(self, order: Expand) -> bool:
        """Whether an expansion has not been rolled back, as when the node of its group was lost."""
        resize = self._site.jobs[order.job].resize
        return resize is not None and resize.serial == order.serial

    def _pause(
        self, job: int, serial: int, to: int, times: ResizeTimes, leave_s: float = 0.0
    ) -> None:
        """Pause a job; the resize is done when the processes that leave are gone."""
        state = self._states[job]
        state.size, state.resumed_at = to, self._agenda.now + times.pause_s
        done_at = state.resumed_at + leave_s
        self._agenda.set_next(ResizeDone(done_at, job, serial, times))

    def _compute(self, number: int, since: float) -> None:
        """Compute the next iteration, which began at time `since`."""
        state, now = self._states[number], self._agenda.now
        job, size = state.job, state.size
        if state.has_phases:
            for phase in job.phases:
                if phase.iteration == state.iterations:
                    self._agenda.add(SizesRequested(now, number, phase.minimum, phase.maximum))
        run_s = state.run_s
        if self._contiguity is not None:
            run_s = self._contiguity(run_s, self._computes_on(number))
        if since != state.ends or run_s != state.steady_s:  # a steady part starts
            state.since, state.before, state.steady_s = since, state.iterations, run_s
            state.points_s = 0.0
        point_s = self._costs.point.of(size, self._rng) if self._points_cost else 0.0
        state.points_s += point_s
        state.iterations += 1
        done, iterations = state.iterations, state.all_iterations
        ends = state.ends = state.end_of(done, now)
        end_s = self._costs.end.of(size, self._rng) if done == iterations else 0.0
        event: ResizePoint | JobEnded
        if done == iterations:
            event = JOB_ENDED(ends + end_s, number)
        else:
            iteration_s, data_bytes = run_s / iterations, state.data_bytes
            event = RESIZE_POINT(ends, number, done, iteration_s, None, data_bytes, "", iterations)
        if self._shared is None:
            self._agenda.set_next(event)
            return
        self._shared.begin(
            event,
            self._computes_on(number),
            began=since + point_s,
            alone_at=ends,
            seconds=ends - now,
            end_s=end_s,
        )
