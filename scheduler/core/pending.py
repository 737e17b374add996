"""Why a queued job waits; worked out when somebody asks."""

from __future__ import annotations

from math import isfinite

from scheduler.model.job import Job
from scheduler.model.orders import Reason
from scheduler.state.view import View


def reason_pending(job: Job, view: View) -> Reason:
    """Say why a job is still in the queue; the rule is a word for a narrow column.

    ``TooLarge`` no machine of ours could run it; ``NoPlace`` no place in it would be accepted even
    if all of it were idle; ``Resources`` it is the first and waits for processors; ``Reservation``
    it holds a reservation behind others; ``Priority`` it may not pass the jobs before it, or there
    is nothing free for it.
    """
    unit = "" if view.pooled else " processors"  # several resources name theirs
    facts: dict[str, int | float | str] = {
        "needed": view.told(job.needs),
        "free": view.told(view.idle),
        "installed": view.told(view.outfit),
    }
    if job.needs > view.outfit:
        text = f"{{needed}}{unit} wanted, the machine has {{installed}}"
        return Reason("TooLarge", text, facts)
    if not view.able(job):
        text = "no place for {needed} processors together, even if all {installed} are idle"
        return Reason("NoPlace", text, facts)
    head = view.head
    assert head is not None, f"job {job.id} waits, so somebody is first"
    if job is head:
        reservation = view.reservation()
        text = f"{{needed}}{unit} wanted, {{free}} free"
        if reservation is not None and isfinite(reservation.at):
            facts["at"] = reservation.at
            text += "; enough by {at} if walltimes hold"
        return Reason("Resources", text, facts)
    at = view.reservations.get(job.id)
    if at is not None and isfinite(at):
        facts["at"] = at
        return Reason("Reservation", f"{{needed}}{unit} reserved for {{at}}", facts)
    facts["head"] = head.id
    text = f"behind job {{head}}: {{needed}}{unit} wanted, {{free}} free"
    if view.prioritised is not None:
        facts["own"], facts["first"] = view.priority(job), view.priority(head)
        text += "; its priority is {own:.5g}, that of job {head} {first:.5g}"
    return Reason("Priority", text, facts)
