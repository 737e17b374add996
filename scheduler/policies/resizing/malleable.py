"""Malleable: one policy that decides on starts, with sizes, and on resizes.

A job starts as soon as its smallest size fits beside the floors of the running jobs, which are the
smallest sizes to which they can contract. All jobs move towards their parts of the machine
(`scheduler.policies.resizing.targets`) at their resize points. What contractions free for a job is
left to it: other jobs expand only on processors that no job waits for, and start only on what is
not needed by jobs before them. If there is no room for the head of the queue, a later job starts if
it does not delay the head, which is EASY with floors in place of sizes.

The idea of giving each job a minimum at once and dividing the rest is that of the malleable
strategies in arXiv 2602.17318; how much each rule here contributes is in docs/studies/malleable.md.
"""

from __future__ import annotations

from math import inf, isfinite

import msgspec

from scheduler.model.job import Job
from scheduler.model.job_view import JobView, original
from scheduler.model.orders import Facts, Reason
from scheduler.policies.backfill.own_pass import CurrentPass
from scheduler.policies.resizing.interface import Decision, Grow, Shrink, Stay
from scheduler.policies.resizing.targets import Division, NextSize, division_of
from scheduler.state.view import View

START = "malleable: start beside the smallest sizes of the running jobs"
FREE = "malleable: contract for a queued job"
DIVIDE = "malleable: divide the machine"
KEEP = "malleable: keep the size"


class Malleable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Start jobs on what is free, and divide the machine between them.

    Parameters
    ----------
    favour_short : exponent by which jobs with less work left get more processors; 0 gives all the
        same number.
    slack : a job contracts without need only if it has more than this multiple of its part.
    earn_back : an expansion is made only if it saves this multiple of its expected pause.
    most_paused : largest share of its run time that a job may be paused for expansions.
    settle : iterations on a size before the next resize.
    min_benefit : least gain of an expansion as a share of the ideal one; an expansion that gained
        less is undone, and the size before it is the sweet spot of the job.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    favour_short: float = 0.25
    slack: float = 1.1
    earn_back: float = 2.0
    most_paused: float = 0.1
    settle: int = 1
    min_benefit: float = 0.05

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name, least in (("favour_short", 0), ("slack", 1), ("earn_back", 0), ("settle", 1)):
            value = getattr(self, name)
            if not (isfinite(value) and value >= least):
                raise ValueError(f"{name} must be >= {least}, got {value}")
        if not 0 < self.most_paused <= 1:
            raise ValueError(f"most_paused must be > 0 and <= 1, got {self.most_paused}")
        if not 0 <= self.min_benefit < 1:
            raise ValueError(f"min_benefit must be >= 0 and < 1, got {self.min_benefit}")

    def schedule(self, current: CurrentPass) -> None:
        """Start the queued jobs for which there is room and that fit on what is free."""
        running = map(original, current.running)
        division = Division(running, current.processors, self.favour_short, current.resizes)
        head, at = None, inf
        for job in map(original, current.in_order()):
            if current.lacks_place(job):
                continue
            if job.start_least > division.room or current.resources_at(job) > current.now:
                head = job
                break
            division.begin(job)
        if head is not None:
            at = self._backfill(current, division, head)
        division.divide()
        needed, lacking = division.waiting, 0
        for job in division.begun:
            needed -= job.start_least
            fits = job.start_least <= current.free
            if fits and self._start(current, job, division.target(job), needed):
                continue
            needed += job.start_least
            if not fits:  # else it waits for certain processors
                lacking += job.start_least
                current.expect(job, division.frees(lacking - current.free, current.now))
        if head is not None:
            current.expect(head, at)

    def _backfill(self, current: CurrentPass, division: Division, head: Job) -> float:
        """Let jobs take part that do not delay the head; return when there is room for it, s."""
        at, extra = division.shadow(head, current.now)
        at = max(at, current.resources_at(head))
        if division.room < 1:
            return at
        ahead = {job.id for job in (head, *division.begun)}
        for job in map(original, current.fitting(division.room, at, extra)):
            least = job.start_least
            if job.id in ahead or least > division.room:
                continue
            if current.resources_at(job) > current.now or current.lacks_place(job):
                continue
            in_time = current.now + job.estimate_on_s(least) <= at
            if in_time or least <= extra:
                extra -= 0 if in_time else least
                division.begin(job)
        return at

    def _start(self, current: CurrentPass, job: Job, target: int, others: int) -> bool:
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

    def decide(self, job: JobView, view: View) -> Decision:
        """Move a job towards its part of the machine."""
        own, size = original(job), job.size
        if job.history.settled < self.settle:
            text = "it has not computed {settle} iterations on {size} processors yet"
            return Stay(Reason(KEEP, text, {"size": size, "settle": self.settle}))
        undone = self._undo(own, {"size": size})
        if undone is not None:
            return undone
        division: Division = view.once(self._division)
        move = NextSize(own, view, division)
        facts: dict[str, int | float | str]
        facts = {"size": size, "part": move.target, "free": move.free, "waiting": move.waiting}
        if size > move.target:
            return self._contract(own, view, division, move.lacking, facts)
        to = move.to
        if to is None or to <= size:
            text = "its part of the machine is {part} processors, {free} are free, and jobs that"
            text += " wait need {waiting}"
            return Stay(Reason(KEEP, text, facts))
        return self._expand(own, view, to, facts)

    def _undo(self, job: Job, facts: dict[str, int | float | str]) -> Shrink | Stay | None:
        """Undo an expansion that gained too little, and note the sweet spot."""
        history, size = job.history, job.size
        before = history.expanded_from()
        if before is None or history.sweet_spot is not None:
            return None
        if history.benefited(self.min_benefit) is not False:
            return None
        to = job.contracts_to(before)
        times = history.comparable_s(before, size)
        seen = {**facts, "before": before, "then_s": times[0], "now_s": times[1]}
        text = "an iteration takes {now_s:.4g} s on {size} processors, {then_s:.4g} s on {before}"
        if to is None:
            return Stay(Reason(KEEP, text, seen), sweet_spot=before)
        return Shrink(to, Reason("malleable: undo", text, seen), sweet_spot=before)

    def _contract(
        self, job: Job, view: View, division: Division, lacking: int, facts: Facts
    ) -> Decision:
        """Contract a job that has more than its part if others need it."""
        size, target = job.size, division.target(job)
        to = None
        rule, text = DIVIDE, "from {size} to {to}: its part of the machine is {part} processors"
        if lacking > 0:
            first = division.begun[0]
            facts = {**facts, "first": first.id, "least": first.start_least}
            rule = FREE
            text += "; job {first} waits for {least}, {free} are free"
        if lacking > 0 or size > self.slack * target:
            to = job.contracts_to(target)
        if to is None or view.failed_lately(job, to):
            text = "it has more than its part of {part} processors, and no job waits for them"
            return Stay(Reason(KEEP, text, facts))
        return Shrink(to, Reason(rule, text, {**facts, "to": to}))

    def _expand(
        self, job: Job, view: View, to: int, facts: dict[str, int | float | str]
    ) -> Decision:
        """Expand a job if that earns its pause back."""
        size = job.size
        if view.failed_lately(job, to):
            text = "a resize to {to} failed just now"
            return Stay(Reason(KEEP, text, {**facts, "to": to}))
        end = job.ends_by_progress
        left_s = (end if end < inf else job.estimated_end) - view.now
        saved_s = left_s * (1 - job.slowness(to) / job.slowness(size))
        pause_s = view.pause_s(job) or 0.0
        seen = {**facts, "to": to, "saved_s": saved_s, "pause_s": pause_s, "left_s": left_s}
        run_s = view.now - (job.started_at or view.now) + left_s
        if saved_s < self.earn_back * pause_s or saved_s <= 0:
            text = "from {size} to {to} would save {saved_s:.3g} s of {left_s:.3g} s, and pause it"
            return Stay(Reason(KEEP, text + " for {pause_s:.3g} s", seen))
        if job.paused_s + pause_s > self.most_paused * run_s:
            text = "it was paused for long enough: a resize takes {pause_s:.3g} s"
            return Stay(Reason(KEEP, text, seen))
        text = "from {size} to {to}: its part of the machine is {part} processors, {free} are free;"
        text += " expected to save {saved_s:.3g} s of {left_s:.3g} s"
        return Grow(to, Reason(DIVIDE, text, seen))

    def _division(self, view: View) -> Division:
        """Division between the running jobs and those that the latest pass expects to start."""
        return division_of(view, self.favour_short)
