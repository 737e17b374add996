"""Target sizes: how the processors of a machine are divided between the jobs that can use them.

Every running job keeps at least its floor, the smallest size to which it can contract. What the
floors leave is divided: each job gets a part in proportion to a weight, except that none gets fewer
processors than its floor or more than it can use. With equal weights all get the same number, which
shortens most where the time of all jobs falls with the size at the same rate. With a larger weight
for jobs that have less work left, these end sooner and leave their processors to the others.
"""

from __future__ import annotations

from math import inf
from typing import Final

from scheduler.model.history import JUDGED
from scheduler.model.job import Job, JobState
from scheduler.model.job_view import JobView
from scheduler.model.orders import Facts, Reason
from scheduler.policies.backfill.own_pass import CurrentPass
from scheduler.policies.resizing.interface import Decision, Grow, Shrink, Stay
from scheduler.state.view import MachineNow, View, own_job

START = "malleable: start beside the smallest sizes of the running jobs"
FREE = "malleable: contract for a queued job"
DIVIDE = "malleable: divide the machine"
KEEP = "malleable: keep the size"

COMPLETING: Final = JobState.COMPLETING
#: Parts that differ by less are equal.
ROUNDING: Final = 1e-9


class Share:
    """What one job takes part with in the division.

    Attributes
    ----------
    job : the job.
    least, most : processors that it gets at least, and that it can use.
    weight : in proportion to which it gets processors.
    lent : processors among them that belong to the job whose step it is.
    target : processors that it gets.
    """

    def __init__(self, job: Job, least: int, most: int, weight: float, lent: int = 0) -> None:
        self.job, self.least, self.most, self.weight = job, least, most, weight
        self.lent = lent
        self.target = least
        #: The same as real numbers, which the division compares many times.
        self.low, self.high = float(least), float(most)


class Division:
    """The processors of a machine, divided between running jobs.

    Parameters
    ----------
    now : the machine, with the running jobs that take part.
    favour : exponent by which a job with less work left has a larger weight; 0: equal weights.

    Attributes
    ----------
    room : processors beside the floors of the jobs.
    begun : queued jobs for which there is room, oldest decision first.
    waiting : processors that these need at least.
    """

    def __init__(self, now: MachineNow, favour: float) -> None:
        self._favour = favour
        self.room = self._processors = now.processors
        self._shares: dict[int, Share] = {}
        self.begun: list[Job] = []
        self.waiting = 0
        for running in now.running:
            job = own_job(running)
            lent = job.groups[next(iter(job.groups))].count() if job.is_lent else 0
            least = most = held_by(job)
            if job.state is not COMPLETING and now.resizes(job):
                least = floor_of(job)
                most = max(least, useful_most(job))
            self.room -= least - lent
            self._shares[job.id] = Share(job, least, most, self._weight(job), lent)
            self._processors += lent

    def _weight(self, job: Job) -> float:
        if not self._favour:
            return 1.0
        left_s = job.left[1] if job.started_at is not None and job.minimum else job.estimate_s
        work = left_s * job.spec.processors
        return work**-self._favour if 1.0 < work < inf else 1.0

    def begin(self, job: Job) -> None:
        """Let a queued job, for which there is room, take part."""
        least = job.start_least
        self.room -= least
        self.waiting += least
        self.begun.append(job)
        self._shares[job.id] = Share(job, least, max(least, job.most), self._weight(job))

    def divide(self) -> None:
        """Divide the processors between all that take part."""
        shares = list(self._shares.values())
        level = self._level(shares)
        left = self._processors
        for share in shares:
            share.target = max(share.least, min(share.most, int(level * share.weight + ROUNDING)))
            left -= share.target
        for share in shares:  # the fractions of a processor, oldest job first
            if left <= 0:
                break
            if share.target < share.most and level * share.weight > share.target + ROUNDING:
                share.target += 1
                left -= 1

    def _level(self, shares: list[Share]) -> float:
        """Processors per weight with which the parts add up to the machine, or all get the most.

        The parts that a level puts out of bounds by more together, above or below, stay at these
        bounds; the next level divides the rest between the others (Bitran and Hax, 1981).
        """
        left, level = float(self._processors), 0.0
        flexible: list[Share] = []
        most = 0.0
        for share in shares:
            level = max(level, share.high / share.weight)
            most += share.high
            if share.low < share.high:
                flexible.append(share)
            else:
                left -= share.high
        if most <= self._processors:
            return level
        while flexible:
            weight, lacking, surplus = 0.0, 0.0, 0.0
            for share in flexible:
                weight += share.weight
            level = left / weight
            for share in flexible:
                part = level * share.weight
                if part < share.low:
                    lacking += share.low - part
                elif part > share.high:
                    surplus += part - share.high
            if lacking == surplus:
                return level
            others: list[Share] = []
            for share in flexible:
                part = level * share.weight
                if lacking > surplus and part < share.low:
                    left -= share.low
                elif surplus > lacking and part > share.high:
                    left -= share.high
                else:
                    others.append(share)
            flexible = others
        return level  # all are at their bounds, some of them by rounding

    def target(self, job: Job) -> int:
        """Processors that a job gets; its present size if it takes no part."""
        share = self._shares.get(job.id)
        return held_by(job) if share is None else share.target

    def frees(self, processors: int, now: float) -> float:
        """Time by which contractions and ends are expected to free so many processors, s.

        Jobs that have more than their parts contract at their next resize points.
        """
        freed: list[tuple[float, int]] = []
        for share in self._shares.values():
            job = share.job
            if job.started_at is None:
                continue
            history = job.recorded_history
            more = held_by(job) - share.target
            if more > 0 and history is not None and history.next_point_at > 0:
                freed.append((max(now, history.next_point_at), more))
            freed.append((max(now, job.estimated_end), share.target - share.lent))
        freed.sort()
        for at, count in freed:
            processors -= count
            if processors <= 0:
                return at
        return inf

    def shadow(self, head: Job, now: float) -> tuple[float, int]:
        """Earliest time at which there is room for a job, by the estimated ends, and what is left.

        Parameters
        ----------
        head : a queued job for which there is no room.
        now : time, s.

        Returns
        -------
        (seconds, processors beside it then); (inf, 0) if there is never room.
        """
        releases: list[tuple[float, int, int]] = []
        for share in self._shares.values():
            job = share.job
            if job.started_at is None:
                end = now + job.estimate_on_s(share.least)
            else:
                end = max(job.estimated_end, now)
            releases.append((end, job.id, share.least - share.lent))
        releases.sort()
        room, needed = self.room, head.start_least
        for end, _, least in releases:
            room += least
            if room >= needed:
                return end, room - needed
        return inf, 0


def division_of(view: View, favour: float) -> Division:
    """Division between the running jobs and those that the latest pass expects to start.

    Parameters
    ----------
    favour : see `Division`.
    """
    division = Division(view, favour)
    for queued in view.expected:
        job = own_job(queued)
        if job.start_least <= division.room:
            division.begin(job)
    division.divide()
    return division


def held_by(job: Job) -> int:
    """Processors that a running job has, or will have when its resize is done."""
    resize = job.resize
    return job.size if resize is None else resize.new


def floor_of(job: Job) -> int:
    """Smallest size to which a running job can contract."""
    size = held_by(job)
    if job.size < size:  # it expands, and can give that back
        size = job.size
    if size <= job.least:
        return size
    least = job.contracts_to(job.least)
    return size if least is None or least > size else least


def useful_most(job: Job) -> int:
    """Largest size that a job can use: its largest one, or its sweet spot."""
    spot = None if job.recorded_history is None else job.history.sweet_spot
    return job.most if spot is None or spot > job.most else spot


def schedule(current: CurrentPass, favour_short: float) -> None:
    """Start the queued jobs for which there is room and that fit on what is free."""
    division = Division(current, favour_short)
    head, at = None, inf
    for queued in current.in_order():
        job = own_job(queued)
        if current.lacks_place(job):
            continue
        if job.start_least > division.room or current.resources_at(job) > current.now:
            head = job
            break
        division.begin(job)
    if head is not None:
        at = _backfill(current, division, head)
    division.divide()
    needed, lacking = division.waiting, 0
    for job in division.begun:
        needed -= job.start_least
        fits = job.start_least <= current.free
        if fits and _start(current, job, division.target(job), needed):
            continue
        needed += job.start_least
        if not fits:  # else it waits for certain processors
            lacking += job.start_least
            current.expect(job, division.frees(lacking - current.free, current.now))
    if head is not None:
        current.expect(head, at)


def _backfill(current: CurrentPass, division: Division, head: Job) -> float:
    """Let jobs take part that do not delay the head; return when there is room for it, s."""
    at, extra = division.shadow(head, current.now)
    at = max(at, current.resources_at(head))
    if division.room < 1:
        return at
    taken = {job.id for job in (head, *division.begun)}
    for queued in current.fitting(division.room, at, extra, taken):
        job = own_job(queued)
        least = job.start_least
        if division.room < 1:
            break
        if job.id in taken or least > division.room:
            continue
        if current.resources_at(job) > current.now or current.lacks_place(job):
            continue
        in_time = current.now + job.estimate_on_s(least) <= at
        if in_time or least <= extra:
            extra -= 0 if in_time else least
            division.begin(job)
            taken.add(job.id)
    return at


def _start(current: CurrentPass, job: Job, target: int, others: int) -> bool:
    """Start a job on what later jobs do not need, at least on its smallest size.

    Parameters
    ----------
    others : processors that the jobs after it need.
    """
    free, least = current.free, job.start_least
    size = job.starts_on(min(free, max(least, min(target, free - others))))
    facts: Facts = {"wanted": job.processors, "free": free, "size": size or 0, "part": target}
    text = "{wanted} processors wanted, {free} free"
    if size != job.processors:
        text += "; it starts on {size}, its part of the machine is {part}"
    return size is not None and current.start(job, Reason(START, text, facts), size)


def decide(
    job: JobView,
    view: View,
    favour_short: float,
    slack: float,
    earn_back: float,
    most_paused: float,
    settle: int,
    min_benefit: float,
) -> Decision:
    """Move a job towards its part of the machine; see `Malleable` for the parameters."""
    own, size = own_job(job), job.size
    if job.history.settled < settle:
        text = "it has not computed {settle} iterations on {size} processors yet"
        return Stay(Reason(KEEP, text, {"size": size, "settle": settle}))
    undone = _undo(own, min_benefit)
    if undone is not None:
        return undone
    division: Division = view.once(division_of, favour_short)
    target, waiting, free = division.target(own), division.waiting, view.free
    lacking = waiting - free - view.freeing  # beside what is free or being released
    facts: dict[str, int | float | str]
    facts = {"size": size, "part": target, "free": free, "waiting": waiting}
    if size > target:
        return _contract(own, view, division, lacking, slack, facts)
    to = None
    if size < target:
        to = own.valid_up_to(min(target, size + min(-lacking, view.free_for(own))))
    if to is None or to <= size:
        text = "its part of the machine is {part} processors, {free} are free, and jobs that"
        text += " wait need {waiting}"
        return Stay(Reason(KEEP, text, facts), lasting=True)
    return _expand(own, view, to, earn_back, most_paused, facts)


def _undo(job: Job, min_benefit: float) -> Shrink | Stay | None:
    """Undo an expansion that gained too little, and note the sweet spot for a while.

    The fastest iterations on both sizes are compared, as whatever disturbs an iteration makes it
    slower: another program on the node, or the start of processes there.
    """
    history, size = job.history, job.size
    before = history.expanded_from()
    if before is None or history.sweet_spot is not None or history.settled < JUDGED:
        return None
    fastest = history.fastest_s(before, size)
    if fastest is None:
        return None
    then_s, now_s = fastest
    if now_s <= 0 or then_s > now_s * (1 + min_benefit * (size / before - 1)):
        return None
    to = job.contracts_to(before)
    facts: Facts = {"size": size, "before": before, "then_s": then_s, "now_s": now_s}
    text = "the fastest iteration took {now_s:.4g} s on {size} processors, {then_s:.4g} s on"
    text += " {before}"
    if to is None:
        return Stay(Reason(KEEP, text, facts), sweet_spot=before, retry=True)
    return Shrink(to, Reason("malleable: undo", text, facts), sweet_spot=before, retry=True)


def _contract(
    job: Job, view: View, division: Division, lacking: int, slack: float, facts: Facts
) -> Decision:
    """Contract a job that has more than its part if others need it.

    While a queued job waits for processors, the first job at a resize point gives all that are
    lacking, down to its floor, since the others may be far from theirs. If its groups do not add up
    to that, it gives the next larger number. It expands again when the others have contracted.
    """
    size, target = job.size, division.target(job)
    to = None
    rule, text = DIVIDE, "from {size} to {to}: its part of the machine is {part} processors"
    if lacking > 0:
        first = division.begun[0]
        facts = {**facts, "first": first.id, "least": first.start_least}
        rule = FREE
        text += "; job {first} waits for {least}, {free} are free"
    if lacking > 0 or size > slack * target:
        least = min(target, max(floor_of(job), size - lacking))
        to = job.contracts_to(least)
        if to is None and lacking > 0:  # its groups add up to no such size
            to = job.contracts_within(least)
    if to is None or view.failed_lately(job, to):
        text = "it has more than its part of {part} processors, and no job waits for them"
        if lacking > 0:
            text = "it has more than its part of {part} processors, and cannot contract now"
        return Stay(Reason(KEEP, text, facts), lasting=to is None)
    return Shrink(to, Reason(rule, text, {**facts, "to": to}))


def _expand(
    job: Job,
    view: View,
    to: int,
    earn_back: float,
    most_paused: float,
    facts: dict[str, int | float | str],
) -> Decision:
    """Expand a job if that earns its pause back."""
    size = job.size
    if view.failed_lately(job, to):
        text = "a resize to {to} failed just now"
        return Stay(Reason(KEEP, text, {**facts, "to": to}))
    end = job.ends_by_progress
    left_s = (end if end < inf else job.estimated_end) - view.now
    gain = 1 - job.slowness(to) / job.slowness(size)
    if gain <= 0 and not job.history.is_judged(to):
        gain = 1 - size / to  # few iterations prove nothing
    saved_s, pause_s = left_s * gain if gain > 0 else 0.0, view.pause_s(job) or 0.0
    facts = {**facts, "to": to, "pause_s": pause_s}
    if saved_s < earn_back * pause_s or saved_s <= 0:  # and less with time
        text = (
            "from {size} to {to} would save {percent:.3g} % of the remaining time, too little for"
        )
        text += " a pause of {pause_s:.3g} s"
        return Stay(Reason(KEEP, text, {**facts, "percent": 100 * gain}), lasting=True)
    run_s = view.now - (job.started_at or view.now) + left_s
    if job.paused_s + pause_s > most_paused * run_s:
        text = "it was paused for {paused_s:.3g} s, which is long enough: a resize takes"
        text += " {pause_s:.3g} s"
        return Stay(Reason(KEEP, text, {**facts, "paused_s": job.paused_s}), lasting=True)
    text = "from {size} to {to}: its part of the machine is {part} processors, {free} are free"
    if saved_s < inf:  # else neither the user nor the program says when it ends
        facts = {**facts, "saved_s": saved_s, "left_s": left_s}
        text += "; expected to save {saved_s:.3g} s of {left_s:.3g} s"
    return Grow(to, Reason(DIVIDE, text, facts))
