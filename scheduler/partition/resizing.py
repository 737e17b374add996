"""Resizes in a partition: the decision at a resize point, its commit and its roll-back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Final

import msgspec

from reshape.topology import SizeBounds, Topology
from scheduler.model.events import ResizeDone, ResizeFailed, ResizePoint
from scheduler.model.groups import leaving_groups
from scheduler.model.job import ACTIVE, CONTINUE, RESIZING, Job, JobState
from scheduler.model.job_view import is_ours, shown
from scheduler.model.orders import (
    RESIZE_UNDER_WAY,
    AnswerRequest,
    Continue,
    Contract,
    Expand,
    Facts,
    GiveUp,
    Kill,
    Reason,
    Resize,
    Start,
)
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE
from scheduler.partition.alarms import Alarms
from scheduler.policies.containment import ErrorReporter, Guard
from scheduler.policies.resizing.interface import Grow, Resizing, Shrink, Stay
from scheduler.policies.resizing.recordable import checked, finite
from scheduler.policies.scenario import Scenario
from scheduler.state.earliest_place import EarliestPlace
from scheduler.state.scheduler_state import SchedulerState
from scheduler.state.view import View, topology_fault
from scheduler.text.formats import noun

#: Rule of a reason whose fact `failed` says how a resizing policy has failed.
POLICY_ERROR: Final = "policy error"
#: A job contracts off processors at least so long before they are excluded, s.
LEAD_S = 5.0


class Resizes:
    """Decides, commits and rolls back the resizes of all jobs.

    Parameters
    ----------
    scenario : rules by which the partition decides.
    state : scheduler state.
    alarms : asked for other wake-ups when the expected end of a job moves.
    view, shown_view : what policies of this package and user-defined ones see of it.
    report_error : called when a resizing policy fails; the job then continues, and the sentence of
        the report is in the reason. None lets the exception propagate. A replay gives that sentence
        as the `failed` of the event and does not ask the policy.

    Attributes
    ----------
    scenario : see above.
    """

    def __init__(
        self,
        scenario: Scenario,
        state: SchedulerState,
        alarms: Alarms,
        view: View,
        shown_view: View,
        report_error: ErrorReporter | None,
    ) -> None:
        self.scenario = scenario
        self._state, self._alarms = state, alarms
        self._view, self._shown_view = view, shown_view
        self._only_policy, self._of_queues = scenario.resizing, len(scenario.queues) > 0
        policies = [scenario.resizing, *(rules.resizing for rules in scenario.queues.values())]
        self._has_others = not all(map(is_ours, policies))  # user-defined ones
        self._guards = {id(each): Guard("resizing", each, report_error) for each in policies}

    def decide(self, job: Job | None, event: ResizePoint) -> Expand | Contract | Continue:
        """Answer a resize point; there is an answer whatever the state of the job."""
        if job is None or job.state not in ACTIVE:
            state = "not known" if job is None else job.state.name
            return _continue(event.job, "not running", "the job is {state}", state=state)
        history = job.recorded_history
        spot = None if history is None else history.sweet_spot
        note_progress(job, event)
        if history is not None and spot is not None and history.sweet_spot is None:
            self._state.allocation_changed()  # it may use more processors from now on
        if job.minimum and job.history.settled == 1:  # its speed on this size is known from now on
            job.expect_on(job.size, self._state.now)
            self._state.expect(job)
            self._alarms.watch_end(job)
        if not job.resizable:
            text = "submitted for {size} processors only"
            return _continue(job.id, "rigid", text, size=job.size)
        lasting = job.history.lasting
        if lasting is not None and lasting[0] == self._state.version and not event.failed:
            return lasting[1]
        if job.state in RESIZING:
            resize = job.resize
            assert resize is not None
            text = "from {old} to {new}"
            return _continue(job.id, RESIZE_UNDER_WAY, text, old=resize.old, new=resize.new)
        policy = self._only_policy
        if self._of_queues:
            policy = self.scenario.resizing_of(job.spec.queue)
        if policy is None:
            return _continue(job.id, "static", "{name} resizes no job", name=self.scenario.name)
        fault = topology_fault(job)
        if fault:
            return _continue(job.id, "topology", "{fault}", fault=fault)
        if event.failed:
            return _continue(job.id, POLICY_ERROR, "{failed}", failed=event.failed)
        order = self._vacate(job) or self._meet_request(job)
        if order is not None:
            return order
        return self._guards[id(policy)].call(
            "decide",
            lambda: self._apply_policy(job, policy),
            lambda why: _continue(
                job.id, POLICY_ERROR, "{failed}", failed=f"{why}; the job keeps its size"
            ),
        )

    def pass_point(self, job: Job, at: float, left: int, iteration_s: float) -> bool:
        """Note a resize point at which a lasting answer still applies; False: nothing is noted.

        Parameters
        ----------
        at : time of the resize point, s.
        left : iterations that the job has left.
        iteration_s : time of the last iteration.
        """
        history = job.history
        lasting = history.lasting
        if lasting is None or lasting[0] != self._state.version:
            return False
        if not history.record_same(iteration_s, at):
            return False
        job.progress = at, left, iteration_s
        return True

    def _may_last(self, job: Job) -> bool:
        """Whether an answer of a policy to a job can last until the state changes.

        The time matters with exclusions, and failed attempts to leave a node that drains, or to
        come to the size that the program requests, are repeated.
        """
        state = self._state
        if state.excluding or state.machine.draining.intervals:
            return False
        return job.least <= job.size <= job.most

    def _apply_policy(self, job: Job, policy: Resizing) -> Expand | Contract | Continue:
        """Carry out the decision of a policy.

        A policy is foreign code: it may raise any exception and return any object. Everything that
        can raise, the processor selection included, runs before the state changes.

        Raises
        ------
        TypeError, ValueError : the decision is invalid, whatever the job and the machine do next.
        """
        state = self._state
        if self._has_others and not is_ours(policy):
            decision = checked(policy.decide(shown(job), self._shown_view))
        else:
            decision = finite(policy.decide(job, self._view))
        order: Expand | Contract | Continue
        if isinstance(decision, Stay):
            order = CONTINUE(job.id, decision.reason)
            if decision.lasting and self._may_last(job):
                job.history.lasting = state.version, order
        else:
            fault = self._fault(job, decision)
            if fault:
                raise ValueError(f"it returned {decision}, but {fault}")
            if isinstance(decision, Grow):
                order = self._expand(job, decision)
            else:
                order = self._contract(job, decision)
        if not isinstance(decision, Grow) and decision.sweet_spot is not None:
            job.history.found_sweet_spot(decision.sweet_spot, state.now, retry=decision.retry)
            state.allocation_changed()
        return order

    def _fault(self, job: Job, decision: Grow | Shrink) -> str:
        """Why a decision can never be carried out; empty if it can, now or at another time."""
        if isinstance(decision, Grow):
            to, installed = decision.to, self._state.machine.installed
            if to <= job.size:
                return f"the job has {job.size} processors already"
            if to > installed:
                return f"the machine has {installed} processors"
            if to > job.spec.largest:
                return f"the job may have at most {job.spec.largest} processors"
        else:
            to, groups = decision.to, decision.groups
            if not 0 < to < job.size:
                return f"the job has {job.size} processors"
            if to < job.least and to not in job.history.visited:
                return f"the job may not have fewer than {job.least} processors"
            if groups and not _have_processors(job, groups, job.size - to):
                return f"the groups {groups} do not have the {job.size - to} processors that leave"
        if decision.to not in job.valid_sizes:
            return f"the job cannot run on so many with its topology {job.topology}"
        return ""

    def _vacate(self, job: Job) -> Contract | Expand | None:
        """Contract a job off processors that it has to leave.

        None if there are none, or if it cannot leave them. If all groups of a job are on nodes that
        drain, it expands so that it can leave them next.
        """
        state, machine = self._state, self._state.machine
        if machine.draining.intervals:
            order = self._contract_off(job, machine.draining, self._drain_reason)
            left = order or self._expand_to_leave(job)
            if left is not None:
                return left
        if not state.excluding:
            return None
        soon = self.soon(job)
        until = job.estimated_end if job.estimated_end > state.now else soon
        blocked = state.blocked(job, state.now, min(soon, until))
        return self._contract_off(job, blocked, self._exclusion_reason) if blocked else None

    def answer_request(self, job: Job, bounds: SizeBounds) -> AnswerRequest:
        """Let the program of a job bound its size from now on, or decline it."""
        facts = {"bounds": str(bounds)}
        text = "its program requests {bounds}"
        fault = self.request_fault(job, bounds)
        if not fault:
            job.bounds = bounds
            self._state.allocation_changed()  # what policies computed from the former bounds
            return AnswerRequest(job.id, True, Reason("request", text, facts))
        reason = Reason("request", f"{text}, but {{fault}}", {**facts, "fault": fault})
        return AnswerRequest(job.id, False, reason)

    def request_fault(self, job: Job, bounds: SizeBounds) -> str:
        """Why bounds on the size of a job are declined; empty if they are not."""
        if not job.resizable:
            return f"the job was submitted for {job.size} processors only"
        if self.scenario.resizing_of(job.spec.queue) is None:
            return f"{self.scenario.name} resizes no job"
        spec = job.spec
        least = job.minimum or job.processors
        return topology_fault(job) or bounds.fault(least, spec.largest, job.valid_sizes)

    def _meet_request(self, job: Job) -> Expand | Contract | Continue | None:
        """Bring a job to a size that its program requests; None if it is there, or cannot be."""
        size = job.size
        if job.least <= size <= job.most:
            return None
        facts: Facts = {"size": size, "bounds": str(job.bounds)}
        if size > job.most:
            to = job.contracts_within(job.most)
            if to is None or self._view.failed_lately(job, to):
                return None
            text = "from {size} to {to}: its program requests {bounds}"
            return self._contract(job, Shrink(to, Reason("request", text, {**facts, "to": to})))
        to = job.valid_from(job.least)
        if to is None:  # an update of the job has lowered its largest size
            return None
        spare = self._view.spare(job.expected_end, job)
        facts = {**facts, "to": to, "spare": spare}
        if to - size > spare:
            text = "its program requests {bounds}, and waits for {to} processors: {spare} are spare"
            return Continue(job.id, Reason("request", text, facts))
        text = "from {size} to {to}: its program requests {bounds}"
        return self._expand(job, Grow(to, Reason("request", text, facts)))

    def _drain_reason(self, processors: ProcSet) -> Reason:
        nodes = ", ".join(self._state.machine.by_node(processors))
        return Reason("drain", "off {nodes}, which drains", {"nodes": nodes})

    def _exclusion_reason(self, processors: ProcSet) -> Reason:
        names = self._state.exclusions.names(processors, self._state.now, inf)
        facts = {"processors": str(processors), "names": ", ".join(names)}
        return Reason("exclusion", "off processors {processors} ({names})", facts)

    def soon(self, job: Job) -> float:
        """Time (s) by which a contraction at the resize point after the next one may be over."""
        iteration_s = job.history.time_s(job.size) or 0.0
        pause_s = self._view.pause_s(job) or 0.0
        return self._state.now + LEAD_S + 2 * iteration_s + pause_s

    def _contract_off(
        self, job: Job, processors: ProcSet, reason: Callable[[ProcSet], Reason]
    ) -> Contract | None:
        """Contract a job by groups that hold any of these processors; None if none can leave."""
        hit = [group for group, held in job.own_groups.items() if held & processors]
        for to in job.valid_sizes if hit else ():
            if to >= job.size:
                break
            if to < job.least or self._view.failed_lately(job, to):
                continue
            groups = self._leaving(job, job.size - to, hit)
            if groups is None:
                continue
            held = ProcSet.union(job.groups[group] for group in groups) & processors
            order = self._contract(job, Shrink(to, reason(held), groups))
            if isinstance(order, Contract):
                return order
        return None

    def _expand_to_leave(self, job: Job) -> Expand | None:
        """Expand a job onto other nodes, so that it can leave those that drain; None if it cannot.

        None, too, if no group of the job is on a node that drains.
        """
        machine = self._state.machine
        draining = [held for held in job.own_groups.values() if held & machine.draining]
        to = self._size_to_leave(job, sum(map(len, draining))) if draining else None
        if to is None:
            return None
        nodes = ", ".join(machine.by_node(ProcSet.union(draining) & machine.draining))
        facts: Facts = {"nodes": nodes, "size": job.size, "to": to}
        text = "from {size} to {to} on other nodes, to leave {nodes} next, which drains"
        order = self._expand(job, Grow(to, Reason("drain", text, facts)))
        return order if isinstance(order, Expand) else None

    def _size_to_leave(self, job: Job, draining: int) -> int | None:
        """Smallest larger size from which a job can contract by groups of `draining` processors.

        The expansion may not delay the head of the queue. None if there is no such size.
        """
        spare = self._view.spare(job.expected_end)
        size = job.valid_from(job.size + 1)
        while size is not None and size - job.size <= spare:
            to = size - draining
            can_leave = job.least <= to and to in job.valid_sizes
            if can_leave and not self._view.failed_lately(job, size):
                return size
            size = job.valid_from(size + 1)
        return None

    def _expand(self, job: Job, decision: Grow) -> Expand | Continue:
        state, to, needed = self._state, decision.to, decision.to - job.size
        free = state.machine.free_count
        if not 0 < needed <= free or to > job.most:
            return _refuse(job, f"grow to {to} with {free} free", decision.reason)
        if self._view.failed_lately(job, to):
            return _failed_lately(job, to)
        kept = self._kept_for_head()
        if state.excluding or job.spec.nodes is not None:
            kept |= state.kept_from(job)
        processors = state.machine.allocate(state.selection, needed, kept)
        if processors is None:
            return _refuse(job, f"no processors acceptable for {to}", decision.reason)
        numbers = state.hold_parts(job, processors, job.size, to)
        first, serial, reason = numbers[0], job.resizes + 1, decision.reason
        job.resizes = serial
        job.resize = Resize(
            serial, state.now, job.size, to, reason, group=first, groups=len(numbers)
        )
        job.become(JobState.EXPANDING)
        state.expect(job)
        groups = {number: job.groups[number] for number in numbers}
        several = groups if len(groups) > 1 else msgspec.UNSET
        return Expand(job.id, serial, to, first, processors, reason, several)

    def _kept_for_head(self) -> ProcSet:
        """Free processors that an expansion must leave to the head, where places matter."""
        head = self._state.head if self._state.placing else None
        return NONE if head is None else EarliestPlace(self._state, head).kept

    def _contract(self, job: Job, decision: Shrink) -> Contract | Continue:
        state, to, count = self._state, decision.to, job.size - decision.to
        if to < job.least or job.history.failed_contractions.given_up:
            return _refuse(job, f"shrink to {to}, below {job.least}", decision.reason)
        if self._view.failed_lately(job, to):
            return _failed_lately(job, to)
        groups = decision.groups or self._leaving(job, count, self._on_nodes(job, decision.off))
        if groups is None or not _have_processors(job, groups, count):
            return _refuse(job, f"shrink to {to} by groups {groups}", decision.reason)
        job.resizes += 1
        job.resize = Resize(job.resizes, state.now, job.size, to, decision.reason, leaving=groups)
        job.become(JobState.CONTRACTING)
        state.freeing += count
        state.expect(job)
        state.compression_due = True
        return Contract(job.id, job.resizes, to, groups, decision.reason)

    def _on_nodes(self, job: Job, nodes: tuple[str, ...]) -> list[int]:
        """Groups that may leave and have processors of any of these nodes; all for no nodes."""
        by_node = self._state.machine.by_node
        if not nodes:
            return [*job.leavable]
        held = job.own_groups.items()
        return [group for group, part in held if {*nodes} & {*by_node(part)}]

    def _leaving(self, job: Job, count: int, among: Sequence[int]) -> tuple[int, ...] | None:
        """Choose groups of this many processors that leave, of some; None if none of them fit."""
        state, groups = self._state, {group: job.groups[group] for group in among}
        if state.machine.counted:  # the processors of a group are not known
            return leaving_groups(groups, count)
        others = ProcSet.union(held for group, held in job.groups.items() if group not in groups)
        return state.selection.leaving(state.machine.space, groups, count, others)

    def commit(self, job: Job, event: ResizeDone) -> None:
        """Take over the new configuration; leaving groups release their processors."""
        state, resize = self._state, job.resize
        assert resize is not None
        state.end_resize(job)
        for group in resize.leaving:
            state.release_group(job, group)
        job.expect_on(resize.new, event.at)
        job.size = resize.new
        job.sizes += ((event.at, job.size),)
        job.committed += 1
        job.paused_s += event.times.pause_s
        job.most_moved_bytes = max(job.most_moved_bytes, event.times.moved_bytes)
        for costs in (state.resize_costs, job.history.moves):
            costs.add(event.times, job.history.data_bytes)
        job.history.configured(job.size, event.at)
        job.become(JobState.RUNNING)
        state.expect(job)
        if job.minimum:
            self._alarms.watch_end(job)

    def _give_up(self, job: Job, resize: Resize) -> list[GiveUp]:
        """Try no resize any more that may end the job, or that fails again and again.

        After its last restart, that is every resize; after too many failures in succession, those
        of this kind.
        """
        history, scenario = job.history, self.scenario
        failures = history.failures_towards(resize.new)
        if failures.given_up:
            return []
        if 0 < scenario.max_restarts <= job.restarts:
            history.failed_expansions.given_up = history.failed_contractions.given_up = True
            text = "after restart {restarts} of {max_restarts}, another failed resize would end it"
            facts: Facts = {"restarts": job.restarts, "max_restarts": scenario.max_restarts}
            return [GiveUp(job.id, Reason("max_restarts", text, facts))]
        most = scenario.max_failures
        if failures.count < most:
            return []
        failures.given_up = True
        facts = {"count": failures.count, "max_failures": most, "why": failures.why}
        kind = "expansion" if resize.expands else "contraction"
        text = f"{{count}} {noun(failures.count, kind)} in succession failed; the last: {{why}}"
        return [GiveUp(job.id, Reason("max_failures", text, facts))]

    def roll_back(self, job: Job, event: ResizeFailed) -> list[Start | Kill | GiveUp]:
        """Return to the old configuration.

        Returns
        -------
        If the processes of the job are gone, its restart, or `Kill` after too many restarts; and
        `GiveUp` if such resizes are not tried any more. A restarted job has as many groups as
        before, so that it can contract.
        """
        state, resize = self._state, job.resize
        assert resize is not None
        state.end_resize(job)
        job.history.failed(resize.new, event.at, event.why)
        for group in resize.joining:
            state.release_group(job, group)
        if not event.restart:
            job.become(JobState.RUNNING)
            state.expect(job)
            return [*self._give_up(job, resize)]
        most = self.scenario.max_restarts
        facts: Facts = {"why": event.why, "restarts": job.restarts, "max_restarts": most}
        if job.restarts >= most:
            text = "{why}; already restarted {restarts} times of {max_restarts}"
            reason = Reason("max_restarts", text, facts)
            job.why = reason.sentence
            return [Kill(job.id, reason)]
        job.restarts += 1
        first = job.next_group
        job.groups = dict(enumerate(job.groups.values(), first))
        job.next_group += len(job.groups)
        job.become(JobState.STARTING)
        state.expect(job)
        reason = Reason("restart", "{why}; it restarts from the state at the resize point", facts)
        processors = ProcSet.union(job.groups.values())
        groups = job.groups.copy() if len(job.groups) > 1 else msgspec.UNSET
        start = Start(job.id, first, processors, reason, restart=True, groups=groups)
        return [start, *self._give_up(job, resize)]


def _have_processors(job: Job, groups: tuple[int, ...], count: int) -> bool:
    """Whether these are different groups that may leave and have this many processors together."""
    own = job.own_groups
    are_own = len(set(groups)) == len(groups) and all(group in own for group in groups)
    return are_own and sum(len(own[group]) for group in groups) == count


def note_progress(job: Job, event: ResizePoint) -> None:
    """Note what a job reports at a resize point: its progress, and times if it is resizable."""
    if job.resizable:
        _measure(job, event)
    if event.iterations > 0:
        left = max(0, event.iterations - event.iteration)
        job.progress = event.at, left, event.iteration_s
    else:
        job.progress = None


def _measure(job: Job, event: ResizePoint) -> None:
    """Record what a resizable job reports at a resize point."""
    if job.topology is None:
        job.topology = event.topology or Topology()
    job.history.record(event.iteration_s, event.at)
    job.history.data_bytes = event.data_bytes or job.history.data_bytes


def _continue(job: int, rule: str, text: str, **facts: int | float | str) -> Continue:
    return Continue(job, Reason(rule, text, facts))


def _failed_lately(job: Job, to: int) -> Continue:
    return _continue(job.id, "retry_after", "a resize to {to} failed just now", to=to)


def _refuse(job: Job, what: str, reason: Reason) -> Continue:
    """Let the job continue because its policy returned a decision that cannot be carried out."""
    text = "the policy returned a decision that cannot be carried out ({what}); its rule: {asker}"
    return _continue(job.id, "refused", text, what=what, asker=reason.rule)
