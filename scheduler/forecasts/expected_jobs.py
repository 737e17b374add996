"""What the jobs of a forecast are expected to do: run for their estimates, and resize.

A rigid job runs for its estimate, or for a run time that is given. A job that reports its progress
ends when the iterations that are left have passed, if that is earlier. A resizable job has the work
left that its expected end leaves at its present speed. If its iteration times on two sizes at least
have been measured, or if it has a performance model, it comes to resize points, and each iteration
takes the time that measurements or model predict for the size. So does a malleable job, of which
`Job.slowness` expects a time on each size. Otherwise the effect of a resize is not known, and the
job keeps its size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, inf
from time import monotonic

from reshape.speedup import speedup_by
from scheduler.clock.agenda import Agenda
from scheduler.clock.loop import Driven, Physics
from scheduler.model.events import Event, JobEnded, JobStarted, ResizeDone, ResizePoint
from scheduler.model.job import RESIZING, Job, JobState
from scheduler.model.orders import Continue, Contract, Expand, Start
from scheduler.model.procset import ProcSet

#: Resize points of a resizable job at its present speed, at most; one stands for many iterations.
POINTS = 32
#: Iterations of a job whose iteration times only a performance model predicts.
MODELLED = 16
SIGTERM = 15


class ResizableWork:
    """Work that a resizable job has left.

    Attributes
    ----------
    iterations : number of iterations left, not rounded.
    batch : number of iterations between two resize points.
    first_s, size : time of an iteration on this size, for those on sizes that are not measured, s.
    following : number of iterations until the next resize point.
    """

    def __init__(self, iterations: float, first_s: float, size: int) -> None:
        self.iterations = iterations
        self.first_s, self.size = first_s, size
        self.batch = self.following = float(max(1, ceil(iterations / POINTS)))


class ExpectedJobs(Physics):
    """Jobs with expected run times.

    Parameters
    ----------
    core : the core or partition of the forecast, with the jobs that are queued and live now.
    agenda : takes the events.
    run_s : run times from the start to the end by job number, s; others run for their estimates.
    limit_s : seconds that the forecast may take from now on.
    forget : called with the number of each task of an array that has ended, of which there may be
        very many; returns whether the core has forgotten it. None: all jobs are kept.

    Attributes
    ----------
    first_starts : time (s) and processors of the first start of each job that started.
    """

    def __init__(
        self,
        core: Driven,
        agenda: Agenda,
        run_s: Mapping[int, float],
        limit_s: float = inf,
        forget: Callable[[int], bool] | None = None,
    ) -> None:
        self.first_starts: dict[int, tuple[float, ProcSet]] = {}
        self._core, self._agenda, self._run_s = core, agenda, run_s
        self._forget = forget
        self._work: dict[int, ResizableWork] = {}
        self._has_begun = False
        self._deadline = monotonic() + limit_s

    def begin_instant(self, before: float, events: list[Event]) -> None:
        """Check the time that the forecast has taken; the first instant always happens.

        Raises
        ------
        TimeoutError : it is longer than it may be; with the time up to which it has come, s.
        """
        if self._has_begun and self._deadline < inf and monotonic() >= self._deadline:
            raise TimeoutError(before)

    def start(self, order: Start) -> None:
        """Enter the end of a job that starts, or the beginning of its iterations."""
        number, now = order.job, self._agenda.now
        if number not in self.first_starts:
            self.first_starts[number] = now, order.processors
        self._work.pop(number, None)
        job = self._core.jobs[number]
        iteration_s = self._modelled_s(job)
        if iteration_s > 0:
            self._work[number] = ResizableWork(MODELLED, iteration_s, job.size)
            self._agenda.set_next(JobStarted(now, number))
        else:
            at = now + self._expected_s(job)
            self._agenda.enter_end(at, JobEnded(at, number))

    def expected_end(self, number: int) -> float:
        """Expected end of a rigid job that has started, s; inf if it has none."""
        first = self.first_starts.get(number)
        return inf if first is None else first[0] + self._expected_s(self._core.jobs[number])

    def resize(self, order: Continue | Expand | Contract) -> None:
        """Answer a job at a resize point: it continues, or pauses as its last resizes did."""
        number = order.job
        if isinstance(order, Continue):
            self._compute(self._core.jobs[number])
            return
        history = self._core.jobs[number].history
        pause_s = history.moves.pause_s(history.data_bytes) or 0.0
        self._agenda.set_next(ResizeDone(self._agenda.now + pause_s, number, order.serial))

    def end_instant(self, events: list[Event]) -> None:
        """Enter what live jobs do next, after the first instant and after each resize."""
        if not self._has_begun:
            self._has_begun = True
            for job in self._core.live.values():
                if job.id not in self.first_starts and job.id not in self._agenda.next:
                    self._continue(job)
        for event in events:
            if type(event) is ResizeDone or type(event) is JobStarted:
                job = self._core.jobs[event.job]
                if self._agenda.next.get(event.job) is event and job.state is JobState.RUNNING:
                    self._compute(job)
            elif type(event) is JobEnded and self._forget is not None:
                ended = self._core.jobs.get(event.job)
                is_task = ended is not None and ended.spec.task_of is not None
                if is_task and self._forget(event.job):
                    self.first_starts.pop(event.job, None)

    def _continue(self, job: Job) -> None:
        """Enter the next event of a job that was live at the beginning of the forecast."""
        now = self._agenda.now
        if job.state is JobState.COMPLETING:
            self._agenda.set_next(JobEnded(now, job.id, signal=SIGTERM))
            return
        end = self._end_of(job)
        iteration_s = self._iteration_s(job)
        if iteration_s > 0:
            work = self._work[job.id] = ResizableWork(
                (end - now) / iteration_s, iteration_s, job.size
            )
            left_s = job.history.next_point_at - now if job.history.visits else 0.0
            work.following = left_s / iteration_s if left_s > 0.0 else 1.0  # of this iteration
        if iteration_s > 0 and job.state is JobState.STARTING:
            self._agenda.set_next(JobStarted(now, job.id))
        elif job.state in RESIZING and job.resize is not None:
            self._agenda.set_next(ResizeDone(now, job.id, job.resize.serial))
        else:
            self._compute(job)

    def _compute(self, job: Job) -> None:
        """Enter the next resize point of a job, or its end."""
        now, work = self._agenda.now, self._work.get(job.id)
        if job.state is JobState.COMPLETING:
            return
        if work is None:
            at = self._end_of(job)
            self._agenda.enter_end(at, JobEnded(at, job.id))
            return
        iteration_s = job.history.predict_s(job.size)
        if not iteration_s:
            iteration_s = work.first_s
            if job.minimum and job.size != work.size:
                iteration_s *= job.slowness(job.size) / job.slowness(work.size)
        if work.iterations <= work.following:
            self._agenda.set_next(JobEnded(now + work.iterations * iteration_s, job.id))
            return
        work.iterations -= work.following
        at = now + work.following * iteration_s
        work.following = work.batch
        self._agenda.set_next(ResizePoint(at, job.id, job.history.points + 1, iteration_s))

    def _iteration_s(self, job: Job) -> float:
        """Iteration time of a live job on its size, s; 0 if the effect of resizes is not known."""
        if not job.resizable:
            return 0.0
        measured = job.history.measured if job.history.visits else 0
        if measured > 1 or (measured and (job.minimum or job.spec.performance)):
            return job.history.predict_s(job.size) or 0.0
        return self._modelled_s(job)

    def _modelled_s(self, job: Job) -> float:
        """Time of one of `MODELLED` iterations, s; 0 if the effect of resizes is not known."""
        if job.minimum and job.resizable:
            return self._expected_s(job) / MODELLED
        if not (job.resizable and job.spec.performance):
            return 0.0
        factor = speedup_by(job.spec.performance, job.spec.processors, job.size)
        return 0.0 if factor is None else self._expected_s(job) / MODELLED / factor

    def _expected_s(self, job: Job) -> float:
        """Expected run time of a job from its start to its end, s."""
        run_s = self._run_s.get(job.id)
        if run_s is None:
            return job.estimate_s
        return run_s * job.slowness(job.processors) if job.minimum else run_s

    def _end_of(self, job: Job) -> float:
        """Expected end of a live job, s: by its progress, if that is known and is earlier."""
        assert job.started_at is not None
        end = job.started_at + self._expected_s(job)
        if job.id not in self._run_s:
            end = min(end, job.ends_by_progress)
        return max(end, self._agenda.now)
