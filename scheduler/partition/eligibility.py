"""Queued jobs that are not eligible: held ones, early ones, and ones with a dependency.

They are apart from the queue, so that scheduling passes never see them. Each waits for one thing
after the other: an administrator or its user releases it, its begin time comes (a `Wakeup`), or
another job starts or ends. Then it enters the queue with the time of that instant, as if it was
submitted then.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf

from msgspec.structs import replace

from scheduler.model.job import COMPLETED, FINAL, PENDING, Job, JobState
from scheduler.model.orders import Await, Drop, Enqueue, Facts, Order, Reason
from scheduler.model.requests import Conditions, Dependency, Term

#: What a dependency waits for, for the reason of a job.
_WAITS = {
    "after": "to start or to end",
    "afterany": "to end",
    "afterok": "to complete",
    "afternotok": "to fail",
    "singleton": "of the same user and name to end",
}


class Awaited:
    """What the jobs of all partitions of a core wait for.

    Attributes
    ----------
    jobs : job number -> the jobs that wait for its start or end, by number, and where they wait.
    starts : numbers of the jobs among them whose start is waited for.
    tasks : array -> its tasks that are jobs and have not ended, by number.
    """

    def __init__(self) -> None:
        self.jobs: dict[int, dict[int, Eligibility]] = {}
        self.starts: set[int] = set()
        self.tasks: dict[int, dict[int, Job]] = {}


class Eligibility:
    """The jobs of a partition that are not eligible.

    Parameters
    ----------
    jobs : job number -> job, of all partitions.
    awaited : shared by all partitions.
    enqueue : adds a job that has become eligible to the queue of the partition.
    dropped : ends what ends with a job whose dependency can never be met, such as its array.

    Attributes
    ----------
    dropped : see above.
    waiting : the jobs that are not eligible, by number.
    has_entered : whether a job has become eligible since the last pass.
    """

    def __init__(
        self,
        jobs: dict[int, Job],
        awaited: Awaited,
        enqueue: Callable[[Job], None],
        dropped: Callable[[Job], None],
    ) -> None:
        self._jobs, self._awaited, self._enqueue = jobs, awaited, enqueue
        self.dropped = dropped
        self.waiting: dict[int, Job] = {}
        self.has_entered = False
        self._begins: list[tuple[float, int]] = []  # heap

    @property
    def next_begin(self) -> float:
        """Begin time of the next job that has one, s; inf if there is none."""
        while self._begins:
            begin, number = self._begins[0]
            job = self.waiting.get(number)
            if job is not None and job.conditions is not None and job.conditions.begin == begin:
                return begin
            heappop(self._begins)
        return inf

    def admit(self, job: Job, now: float, orders: list[Order]) -> None:
        """Take a queued job with conditions; enqueue it at once if they are met."""
        conditions = self._resolved(job)
        job.conditions = None if conditions is None else conditions.left(now)
        if job.conditions is None:
            self._enqueue(job)
        else:
            self.watch(job)
            self._check_invalid(job, now, orders)

    def remove(self, job: Job) -> None:
        """Remove a job that is cancelled or gets other conditions."""
        del self.waiting[job.id]
        if job.conditions is not None and job.conditions.dependency is not None:
            for term in job.conditions.dependency.terms:
                for other in term.watched:
                    self._unwatch(other, job.id)

    def set_hold(self, job: Job, conditions: Conditions, now: float, orders: list[Order]) -> None:
        """Give a waiting job the same conditions with another hold."""
        self._change(job, conditions, now, orders, "released" if not conditions.hold else "held")

    def advance(self, now: float, orders: list[Order]) -> None:
        """Enqueue the jobs whose begin time has come."""
        while self.next_begin <= now:
            _, number = heappop(self._begins)
            job = self.waiting[number]
            assert job.conditions is not None
            self._change(job, job.conditions, now, orders, "its begin time has come")

    def move_begins(self, by_s: float, orders: list[Order]) -> None:
        """Move the begin times, which are those of the wall clock, on the driver's clock."""
        for job in self.waiting.values():
            conditions = job.conditions
            if conditions is not None and conditions.begin is not None:
                job.conditions = replace(conditions, begin=conditions.begin + by_s)
                orders.append(Await(job.id, self.reason(job)))
        begins = [(job.conditions.begin, job.id) for job in self.waiting.values() if job.conditions]
        self._begins = [(begin, number) for begin, number in begins if begin is not None]
        heapify(self._begins)

    def reconsider(self, job: Job, now: float, orders: list[Order]) -> bool:
        """Find out what has become of the dependency of a job; return whether the job was dropped.

        Another job that it names has started or ended.
        """
        conditions = self._resolved(job)
        if conditions is None or conditions == job.conditions:
            return False
        return self._change(job, conditions, now, orders, "its dependency is met")

    def _change(
        self, job: Job, conditions: Conditions, now: float, orders: list[Order], why: str
    ) -> bool:
        """Set what a job waits for; return whether the job was dropped."""
        self.remove(job)
        job.conditions = conditions.left(now)
        if job.conditions is None:
            job.queued_at = now
            self._enqueue(job)
            self.has_entered = True
            orders.append(Enqueue(job.id, Reason("eligible", why)))
            return False
        self.watch(job)
        if self._check_invalid(job, now, orders):
            return True
        orders.append(Await(job.id, self.reason(job)))
        return False

    def _check_invalid(self, job: Job, now: float, orders: list[Order]) -> bool:
        """End a job whose dependency can never be met if it is to end then."""
        conditions = job.conditions
        if conditions is None or conditions.dependency is None or not conditions.kill_on_invalid:
            return False
        if conditions.dependency.met is not False:
            return False
        reason = self.reason(job)
        self.remove(job)
        job.cancel(now, reason.sentence)
        orders.append(Drop(job.id, reason))
        return True

    def watch(self, job: Job) -> None:
        """Note what a job waits for, without any decision."""
        conditions = job.conditions
        assert conditions is not None
        self.waiting[job.id] = job
        if conditions.begin is not None:
            heappush(self._begins, (conditions.begin, job.id))
        for term in () if conditions.dependency is None else conditions.dependency.terms:
            if term.met is None:
                for other in term.watched:
                    self._awaited.jobs.setdefault(other, {})[job.id] = self
                if term.kind == "after":
                    self._awaited.starts.add(term.job)

    def _unwatch(self, other: int, number: int) -> None:
        awaited = self._awaited
        dependants = awaited.jobs.get(other)
        if dependants is not None:
            dependants.pop(number, None)
            if not dependants:
                del awaited.jobs[other]
                awaited.starts.discard(other)

    def _resolved(self, job: Job) -> Conditions | None:
        """Conditions of a job with what is known now of the jobs that its dependency names."""
        conditions = job.conditions
        if conditions is None or conditions.dependency is None:
            return conditions
        dependency = conditions.dependency
        terms = tuple(
            term if term.met is not None else self._resolved_term(term, job)
            for term in dependency.terms
        )
        if terms == dependency.terms:
            return conditions
        return replace(conditions, dependency=Dependency(terms, dependency.any_of))

    def _resolved_term(self, term: Term, job: Job) -> Term:
        if term.kind == "singleton":
            latest = self._latest_of_name(job)
            return Term("singleton", latest, None if latest else True)
        other = self._jobs.get(term.job)
        if other is not None:
            return replace(term, met=outcome(term, other.state))
        array = None if term.task_of is None else self._jobs.get(term.task_of.array)
        if array is None or array.to_come is None:
            return term
        if term.job - array.id - 1 not in array.to_come.cancelled:
            return term
        return replace(term, met=outcome(term, JobState.CANCELLED))

    def _latest_of_name(self, job: Job) -> int:
        """Number of the latest earlier job of the same user and name that has not ended, or 0."""
        spec = job.spec
        for number in reversed(self._jobs):
            if number >= job.id:
                continue
            other = self._jobs[number]
            is_alike = other.spec.name == spec.name and other.spec.user == spec.user
            if is_alike and other.state not in FINAL:
                return number
        return 0

    def reason(self, job: Job) -> Reason:
        """Why a job is not eligible; the rule is Slurm's word."""
        conditions = job.conditions
        assert conditions is not None
        if conditions.hold == "user":
            return Reason("JobHeldUser", "held by its user until it is released")
        if conditions.hold:
            return Reason("JobHeldAdmin", "held until an administrator releases it")
        dependency = conditions.dependency
        facts: Facts = {"dependency": "" if dependency is None else str(dependency)}
        if dependency is not None and dependency.met is False:
            text = "its dependency {dependency} can never be met"
            return Reason("DependencyNeverSatisfied", text, facts)
        if conditions.begin is not None:
            return Reason("BeginTime", "it begins at {begin}", {"begin": conditions.begin})
        assert dependency is not None
        term = next(term for term in dependency.terms if term.met is None)
        others = sum(term.met is None for term in dependency.terms) - 1
        text = f"waits for job {{other}} {_WAITS[term.kind]}"
        if others:
            text += f", {'or' if dependency.any_of else 'and'} for {{others}} more"
        other = term.job if term.task_of is None else str(term.task_of)
        return Reason("Dependency", text, {**facts, "other": other, "others": others})


def outcome(term: Term, state: JobState) -> bool | None:
    """Whether a term is met by the state of the other job; None if that is not known yet."""
    if state not in FINAL:
        return True if term.kind == "after" and state is not PENDING else None
    if term.kind == "afterok":
        return state is COMPLETED
    return term.kind != "afternotok" or state is not COMPLETED


def note_change(awaited: Awaited, number: int, now: float, orders: list[Order]) -> None:
    """Let the jobs go on that wait for the start or the end of a job; such ends follow at once.

    Parameters
    ----------
    number : of the job that has started or ended.
    """
    changed, dropped = [number], list[tuple[Eligibility, Job]]()
    while changed:
        waiting = awaited.jobs.get(changed.pop(), {})
        # In order of the numbers, so that a restored core decides in the same order.
        for dependent in sorted(waiting):
            where = waiting[dependent]
            job = where.waiting[dependent]
            if where.reconsider(job, now, orders):
                changed.append(dependent)
                dropped.append((where, job))
    for where, job in dropped:
        where.dropped(job)
