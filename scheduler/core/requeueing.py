"""Whether a job whose processes died goes back to the queue."""

from __future__ import annotations

from scheduler.model.events import JobEnded
from scheduler.model.job import Job, JobState
from scheduler.model.orders import Reason


def is_death(job: Job, event: JobEnded) -> bool:
    """Whether a job with `requeue` died, and was not cancelled or over its walltime."""
    return event.died and job.spec.requeue and job.cause in (None, JobState.NODE_FAIL)


def reason_to_requeue(job: Job, why: str, checkpoint: int, most: int) -> Reason | None:
    """Reason to queue a job again; None, with the reason in `job.why`, after too many attempts.

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
    facts["count"] = job.stalled + 1
    begins = "it restarts from its checkpoint of iteration {checkpoint}"
    begins = begins if job.checkpoint else "it starts from the beginning, as it has no checkpoint"
    text = f"{{why}}; {begins}; attempt {{count}} of {{most}} without a new one"
    return Reason("requeue", text, facts)
