"""Steps of job scripts: when they start, and on which processors of their jobs.

A step never enters the queue of the partition. It starts as soon as its job has enough idle
processors, so that later requests may start before earlier ones which need more. At its end the
next ones start at the same instant. It has the rest of the walltime of its job.
"""

from __future__ import annotations

from msgspec.structs import replace

from scheduler.model.job import Job, JobState
from scheduler.model.orders import Drop, Reason, Start
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE
from scheduler.state.bitsets import bits_in_blocks, bits_of, set_of
from scheduler.state.scheduler_state import SchedulerState

#: Walltime of a step whose job has exceeded its own walltime and continues, s.
LEAST_S = 1.0


class StepStarts:
    """Starts the steps of the jobs of a partition.

    Parameters
    ----------
    state : scheduler state; its `steps` are those that have not ended.
    """

    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def admit(self, step: Job) -> None:
        """Take a step that is requested; it is dropped if its job can have none (any more)."""
        state, job = self._state, self._job_of(step)
        if job is None or job.resizable or job.spec.step_of is not None:
            text = "its job does not run" if job is None else "job {job} can have no steps"
            reason = Reason("step", text, {"job": 0 if job is None else job.id})
            step.become(JobState.CANCELLED)
            step.why, step.ended_at = reason.sentence, state.now
            state.orders.append(Drop(step.id, reason))
            return
        state.steps.add(step)
        self.start_waiting(job)

    def note_end(self, step: Job) -> None:
        """Let steps start on the processors that an ended one has given back."""
        job = self._job_of(step)
        if job is not None:
            self.start_waiting(job)

    def start_waiting(self, job: Job) -> None:
        """Start the steps of a job that fit, in the order of their requests."""
        steps = self._state.steps
        for step in steps.waiting(job.id):
            chosen = self._place(step, steps.idle(job))
            if chosen:
                self._start(step, job, chosen)

    def _place(self, step: Job, idle: ProcSet) -> ProcSet:
        """Choose the first idle processors that suffice; none if they do not.

        Those of a process are on one node.
        """
        if step.processors > idle.count():
            return NONE
        wanted = step.spec.nodes
        if wanted is None or wanted.per_process == 1:
            return idle.first(step.processors)
        nodes = (bits_of(node.processors) for node in self._state.machine.nodes.values())
        block = wanted.per_process
        return set_of(bits_in_blocks(bits_of(idle), nodes, block, step.processors))

    def _start(self, step: Job, job: Job, chosen: ProcSet) -> None:
        """Start a step on idle processors of its job."""
        state = self._state
        reason = state.steps.reason(step, job)
        step.is_lent, step.demand = True, state.quantity(step.processors, step)
        self._limit(step, job, state.now)
        group = state.start(step, chosen, step.processors)
        state.orders.append(Start(step.id, group, chosen, reason))

    def limit(self, job: Job) -> None:
        """Give the steps of a job the rest of its walltime, which was changed."""
        for step in self._state.steps.of(job.id):
            if step.is_lent and step.started_at is not None:
                self._limit(step, job, step.started_at)
                self._state.expect(step)

    def _limit(self, step: Job, job: Job, began: float) -> None:
        """Let a step that began at a time (s) end with its job by the walltime."""
        left_s = max(job.expected_end - began, LEAST_S)
        step.change_limits(replace(step.spec, walltime_s=left_s))
        step.estimate_s = left_s

    def reason(self, step: Job) -> Reason:
        """Why a step waits."""
        job = self._job_of(step)
        assert job is not None, f"step {step.id} waits, so its job runs"
        return self._state.steps.reason(step, job)

    def _job_of(self, step: Job) -> Job | None:
        """Job of a step; None if it does not run, or is being ended."""
        assert step.spec.step_of is not None
        job = self._state.live.get(step.spec.step_of.job)
        return None if job is None or job.state is JobState.COMPLETING else job
