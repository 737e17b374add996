"""Redirection between two partitions of the core: counts arrivals and moves jobs.

Jobs are submitted to the principal group. A job that makes too many others wait is ended there.
When its processes have ended, it is queued in the redirection group under the same number: `Kill`,
`JobEnded` from the driver, `Requeue`, `Start`. Each group is a partition with its own scenario and
is independent of the other (`scheduler.policies.redirection`, REDIR algorithms 1 and 2).

At each instant the scheduling pass precedes the counting, so that it is known which arrivals wait.
The processors of a redirected job become free when its processes have ended, and a separate pass
follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from scheduler.model.events import REDIRECTION, Event, JobCancelled, JobEnded, JobEvent
from scheduler.model.job import Job, JobState
from scheduler.model.orders import Order, Reason, Requeue, Start
from scheduler.partition.partition import Partition
from scheduler.policies.redirection import Counted, Counters, Redirection
from scheduler.text.formats import noun

S = JobState


class Redirector:
    """Applies a rule of redirection to the jobs of a partition.

    Parameters
    ----------
    rule : None: no job is redirected any more, but those that were ended for it are still moved.
    principal, group : the principal group, and the redirection group.

    Attributes
    ----------
    principal, group : see above.
    counters : counts of the running jobs of the principal group; None without a rule.
    """

    def __init__(self, rule: Redirection | None, principal: Partition, group: Partition) -> None:
        self._rule, self.principal, self.group = rule, principal, group
        self._jobs = principal.jobs  # those of all partitions
        self.counters = None if rule is None else Counters(rule)

    def resume(self, counts: Mapping[int, int]) -> None:
        """Continue the counts of the jobs of a recorded state."""
        if self.counters is not None:
            for number, job in self.principal.live.items():
                if job.spec.step_of is None:
                    self.counters.add(job, counts.get(number, 0))

    def takes(self, event: Event, orders: list[Order]) -> bool:
        """Whether an event is handled here, and not in the principal group.

        That is so for some events of a job that is being ended in order to be redirected. When its
        processes have ended, the job is moved, and an order is added to `orders`.
        """
        job = self.principal.live.get(event.job) if isinstance(event, JobEvent) else None
        if job is None or job.cause is not S.PENDING or job.requeue_asked:
            return False
        if isinstance(event, JobCancelled):
            job.cause, job.why = S.CANCELLED, event.why
            return True
        if isinstance(event, JobEnded) and (event.exit_code or event.signal):
            reason = Reason("redirection", "{why}", {"why": job.why})
            self.principal.state.vacate(job)
            job.redirect(self.principal.now, self.group.name)
            self.group.queueing.admit(job)
            if self.counters is not None and job.id in self.counters.counts:
                self.counters.forget(job.id)
            orders.append(Requeue(job.id, reason))
            return True
        if isinstance(event, JobEnded):  # it completed before it was ended
            job.cause, job.why = None, ""
        return False

    def count(self, events: Sequence[Event], orders: list[Order], new: Iterable[int]) -> None:
        """Update the counts after an instant of the principal group, and redirect a job if due.

        Parameters
        ----------
        events, orders : of the principal group; a redirection adds its order.
        new : numbers of the jobs that were submitted to it; steps of jobs do not count.
        """
        if self.counters is None:
            return
        live = self.principal.live
        for event in events:
            number = event.job if isinstance(event, JobEvent) else 0  # no job
            if number in self.counters.counts and number not in live:
                self.counters.forget(number)
        started = {order.job for order in orders if type(order) is Start and not order.restart}
        # In sequential order a job may have ended meanwhile.
        started = {n for n in started if n in live and live[n].spec.step_of is None}
        for number in started - {*new}:
            self.counters.add(live[number])
        # REDIR III.A: "Each job running in the principal group holds the number of jobs submitted
        # during its execution".
        for number in new:
            job = self._jobs.get(number)
            if job is not None and (self._counts_all or self._waits(job)):
                self._redirect(self.counters.arrived(job, self.group.machine.processors))
            if job is not None and number in started:
                self.counters.add(job)

    @property
    def _counts_all(self) -> bool:
        return self._rule is not None and self._rule.counts == "submitted"

    def _waits(self, job: Job) -> bool:
        """Whether a job that just arrived waits, or started by passing a queued job."""
        if job.state is S.PENDING:
            return job.id in self.principal.queue  # a job that is not eligible waits for no other
        if job.id not in self.principal.live:
            return False
        came = job.queued_at, job.id
        queued = self.principal.queue.jobs.values()
        return any((other.queued_at, other.id) < came for other in queued)

    def _redirect(self, over: list[Counted]) -> None:
        """End one of the jobs whose counts exceed theta, if any of them is still running."""
        rule = self._rule
        could_run = self.group.state.could_run
        candidates = [
            entry for entry in over if entry[0].state is not S.COMPLETING and could_run(entry[0])
        ]
        if not candidates or rule is None or self.counters is None:
            return
        job, count = rule.choose(candidates)
        self.counters.reset()
        facts: dict[str, int | str] = {"count": count, "theta": rule.theta}
        waited = "" if self._counts_all else " and had to wait"
        text = f"{{count}} {noun(count, 'job')} came{waited} while it ran, more than {{theta}}"
        if len(candidates) > 1:
            facts |= {"jobs": len(candidates), "conflict": rule.conflict}
            text += "; chosen of {jobs} such jobs by {conflict}"
        self.principal.state.kill(job, S.PENDING, Reason("redirection", text, facts))


def redirectors(partitions: Sequence[Partition]) -> list[Redirector]:
    """Make a redirector for each partition from which jobs may be redirected."""
    by_name = {partition.name: partition for partition in partitions}
    made = []
    for partition in partitions:
        rule = partition.scenario.redirection
        target = REDIRECTION if rule is None else rule.partition or REDIRECTION
        # Without a rule, jobs of the first partition may still have been ended for an earlier one.
        if rule is not None or (partition is partitions[0] and target in by_name):
            made.append(Redirector(rule, partition, by_name[target]))
    return made
