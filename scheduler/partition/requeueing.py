"""Whether a job goes back to the queue: its processes died, or its program never began."""

from __future__ import annotations

from scheduler.model.events import JobEnded
from scheduler.model.job import Job, JobState
from scheduler.model.orders import Facts, Reason

#: How often a job is queued again that a node could not start.
MOST_FAILED_STARTS = 3
#: Seconds for which nothing is started on what is free of such a node.
HOLD_S = 30.0


def reason_to_requeue(job: Job, event: JobEnded, most: int) -> Reason | None:
    """Reason to queue a job again that has ended; None if it is not to run again.

    A job that was cancelled or over its walltime is not, and a step never is.

    Parameters
    ----------
    most : how often a job may die in succession without a new checkpoint.
    """
    if job.cause not in (None, JobState.NODE_FAIL) or job.spec.step_of is not None:
        return None
    why = job.why or event.why
    if not event.began and job.restarts == 0:
        return _reason_of_unstarted(job, event, why)
    if event.died and job.spec.requeue:
        return reason_of_death(job, why, event.checkpoint, most)
    return None


def reason_of_death(job: Job, why: str, checkpoint: int, most: int) -> Reason | None:
    """Reason to queue a job again whose processes died.

    None, with the reason in `job.why`, after too many attempts.

    Parameters
    ----------
    why : how it died.
    checkpoint : iteration of its last checkpoint; 0 if none is known.
    most : how often it may die in succession without a new checkpoint.
    """
    if checkpoint > job.checkpoint:
        job.checkpoint, job.stalled = checkpoint, 0
    facts: dict[str, int | float | str]
    facts = {"why": why, "checkpoint": job.checkpoint, "count": job.stalled, "most": most}
    if job.stalled >= most:
        text = "{why}; already requeued {count} times of {most} without a new checkpoint"
        job.why = Reason("requeue", text, facts).sentence
        return None
    job.stalled += 1
    facts["count"] = job.stalled
    begins = "it restarts from its checkpoint of iteration {checkpoint}"
    begins = begins if job.checkpoint else "it starts from the beginning, as it has no checkpoint"
    text = f"{{why}}; {begins}; attempt {{count}} of {{most}} without a new one"
    return Reason("requeue", text, facts)


def _reason_of_unstarted(job: Job, event: JobEnded, why: str) -> Reason | None:
    """Reason to queue a job again whose program has not begun.

    The loss of an agent is no reason to expect that the next start fails, too, and does not count.
    """
    facts: Facts = {"why": why, "count": job.failed_starts, "most": MOST_FAILED_STARTS}
    if not event.at_fault:
        return Reason("not begun", "{why}; its program had not begun", facts)
    if job.failed_starts >= MOST_FAILED_STARTS:
        text = "{why}; already requeued {count} times of {most} because it could not be started"
        job.why = Reason("not begun", text, facts).sentence
        return None
    job.failed_starts += 1
    facts = {**facts, "count": job.failed_starts, "node": event.at_fault}
    text = "{why}; its program had not begun on {node}; attempt {count} of {most}"
    return Reason("not begun", text, facts)
