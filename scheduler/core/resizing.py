"""Resizes in the core: the decision at a resize point, its commit, its roll-back.

Functions of the core, in a file of their own; each is told the core and the job.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from reshape.topology import Topology
from scheduler.model.events import ResizeDone, ResizeFailed, ResizePoint
from scheduler.model.groups import leaving_groups
from scheduler.model.job import ACTIVE, RESIZING, Job, JobState, Resize
from scheduler.model.orders import Continue, Contract, Expand, Facts, Kill, Order, Reason, Start
from scheduler.model.procset import ProcSet
from scheduler.policies.resizing.interface import Decision, Grow, Resizing, Shrink, Stay
from scheduler.state.view import topology_fault

if TYPE_CHECKING:
    from scheduler.core.core import Core

_json = msgspec.json.Encoder()
_READERS = {kind: msgspec.json.Decoder(kind) for kind in (Grow, Shrink, Stay)}


def decide(core: Core, job: Job | None, event: ResizePoint) -> Expand | Contract | Continue:
    """Answer a resize point; whatever the state of the job, there is an answer."""
    if job is None or job.state not in ACTIVE:
        state = "not known" if job is None else job.state.name
        return _go_on(event.job, "not running", "the job is {state}", state=state)
    if not job.spec.resizable:
        return _go_on(job.id, "rigid", "submitted for {size} processors alone", size=job.size)
    if job.topology is None:
        job.topology = event.topology or Topology()
    job.history.record(event.iteration_s, event.at)
    job.history.data_bytes = event.data_bytes or job.history.data_bytes
    if job.state in RESIZING:
        assert job.resize is not None
        return _go_on(
            job.id,
            "resize under way",
            "from {old} to {new}",
            old=job.resize.old,
            new=job.resize.new,
        )
    resizing = core.scenario.resizing_of(job.spec.queue)
    if resizing is None:
        return _go_on(job.id, "static", "{name} resizes no job", name=core.scenario.name)
    fault = topology_fault(job)
    if fault:
        return _go_on(job.id, "topology", "{fault}", fault=fault)
    if event.failed:
        return _go_on(job.id, "policy error", "{failed}", failed=event.failed)
    try:
        return _asked(core, job, resizing)
    except Exception as error:  # nothing was changed as yet
        if core.excuse is None:
            raise
        return _go_on(
            job.id, "policy error", "{failed}", failed=core.excuse(event, resizing, error)
        )


def _asked(core: Core, job: Job, resizing: Resizing) -> Expand | Contract | Continue:
    """Do what a policy decides, which is anybody's code: it may raise anything, or give anything.

    What can raise, a selection of processors too, does so before anything is changed.
    """
    decision: object = resizing.decide(job, core.view)
    if not isinstance(decision, Grow | Shrink | Stay):
        text = "the policy gave {decision}, which is neither Grow nor Shrink nor Stay"
        return _go_on(job.id, "refused", text, decision=repr(decision))
    _check(decision)
    order = _carry_out(core, job, decision)
    if not isinstance(decision, Grow) and decision.sweet_spot is not None:
        job.history.sweet_spot = decision.sweet_spot
    return order


def _check(decision: Decision) -> None:
    """Raise an error if a decision, with its reason, could not be written down, read and told."""
    try:
        _READERS[type(decision)].decode(_json.encode(decision))
        _ = decision.reason.sentence
    except Exception as error:
        kind = type(error).__name__
        raise ValueError(f"{decision} cannot be written down and told: {kind}: {error}") from error


def _carry_out(core: Core, job: Job, decision: Decision) -> Expand | Contract | Continue:
    """Turn a decision into an order, or into going on if a policy asked for what cannot be."""
    if isinstance(decision, Stay):
        return Continue(job.id, decision.reason)
    if isinstance(decision, Grow):
        return _expand(core, job, decision)
    return _contract(core, job, decision)


def _expand(core: Core, job: Job, decision: Grow) -> Expand | Continue:
    to, wanted = decision.to, decision.to - job.size
    free = core.machine.free_count
    if not 0 < wanted <= free or to > (job.spec.max_processors or 0):
        return _refused(job, f"grow to {to} with {free} free", decision.reason)
    if core.view.failed_lately(job, to):
        return _go_on(job.id, "retry_after", "a resize to {to} failed just now", to=to)
    taken = core.take(job, wanted)
    if taken is None:
        return _refused(job, f"no processors acceptable for {to}", decision.reason)
    group, chosen = taken
    job.resizes += 1
    job.resize = Resize(job.resizes, core.now, job.size, to, decision.reason, group=group)
    job.become(JobState.EXPANDING)
    core.expect(job)
    return Expand(job.id, job.resizes, to, group, chosen, decision.reason)


def _contract(core: Core, job: Job, decision: Shrink) -> Contract | Continue:
    to, leave = decision.to, job.size - decision.to
    if to < job.processors or to not in job.history.contractions():
        return _refused(job, f"shrink to {to}, where it never ran", decision.reason)
    if core.view.failed_lately(job, to):
        return _go_on(job.id, "retry_after", "a resize to {to} failed just now", to=to)
    groups = decision.groups or leaving_groups(job.groups, leave)
    if groups is None or not _leaves(job, groups, leave):
        return _refused(job, f"shrink to {to} by groups {groups}", decision.reason)
    job.resizes += 1
    job.resize = Resize(job.resizes, core.now, job.size, to, decision.reason, leaving=groups)
    job.become(JobState.CONTRACTING)
    core.freeing += leave
    core.expect(job)
    core.unforeseen = True
    return Contract(job.id, job.resizes, to, groups, decision.reason)


def _leaves(job: Job, groups: tuple[int, ...], leave: int) -> bool:
    """Whether these are groups of the job, each once, of so many processors together."""
    known = len(set(groups)) == len(groups) and all(group in job.groups for group in groups)
    return known and sum(len(job.groups[group]) for group in groups) == leave


def commit(core: Core, job: Job, event: ResizeDone) -> None:
    """Take over the new configuration; groups that left give their processors back."""
    resize = job.resize
    assert resize is not None
    core.end_resize(job)
    for group in resize.leaving:
        core.release(job.groups.pop(group))
    job.size = resize.new
    job.sizes += ((event.at, job.size),)
    job.times = (*job.times, event.times)
    for moves in (core.moves, job.history.moves):
        moves.add(event.times, job.history.data_bytes)
    job.history.configured(job.size, event.at)
    job.become(JobState.RUNNING)
    core.expect(job)


def roll_back(core: Core, job: Job, event: ResizeFailed) -> list[Order]:
    """Return to the old configuration; if its processes died, by a restart as one group."""
    resize = job.resize
    assert resize is not None
    core.end_resize(job)
    job.history.failed(resize.new)
    if resize.group is not None:
        core.release(job.groups.pop(resize.group))
    if not event.restart:
        job.become(JobState.RUNNING)
        core.expect(job)
        return []
    facts: Facts = {
        "why": event.why,
        "restarts": job.restarts,
        "max_restarts": core.scenario.max_restarts,
    }
    if job.restarts >= core.scenario.max_restarts:
        text = "{why}; already restarted {restarts} times of {max_restarts}"
        reason = Reason("max_restarts", text, facts)
        job.why = reason.sentence
        core.finish(job, JobState.FAILED)
        return [Kill(job.id, reason)]
    job.restarts += 1
    processors = _union(job.groups.values())
    group = job.next_group
    job.groups, job.next_group = {group: processors}, group + 1
    job.become(JobState.STARTING)
    core.expect(job)
    reason = Reason("restart", "{why}; on from the state at the resize point", facts)
    return [Start(job.id, group, processors, reason, restart=True)]


def _union(sets: Iterable[ProcSet]) -> ProcSet:
    union = ProcSet()
    for processors in sets:
        union |= processors
    return union


def _go_on(job: int, rule: str, text: str, **facts: int | float | str) -> Continue:
    return Continue(job, Reason(rule, text, facts))


def _refused(job: Job, what: str, reason: Reason) -> Continue:
    """A policy wanted what cannot be: say so, and let the job go on."""
    text = "the policy asked for the impossible ({what}), by {asker}"
    return _go_on(job.id, "refused", text, what=what, asker=reason.rule)
