"""A job's history derived from the journal: explanation, resizes, and its processors over time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import TypeAlias

from msgspec import UNSET
from msgspec.structs import asdict, replace

from reshape.times import utc_moment
from scheduler.journal.journal_reader import Phase
from scheduler.model.arrays import TaskArray, tasks_at
from scheduler.model.events import (
    Event,
    HoldChanged,
    JobCancelled,
    JobEnded,
    JobRequeued,
    JobSpec,
    JobStarted,
    JobSubmitted,
    JobUpdated,
    ResizeDone,
    ResizeFailed,
)
from scheduler.model.job import Job
from scheduler.model.orders import (
    RESIZE_UNDER_WAY,
    AnswerRequest,
    Await,
    Continue,
    Contract,
    Drop,
    Enqueue,
    Expand,
    GiveUp,
    JobOrder,
    Kill,
    Order,
    Reason,
    Requeue,
    Signal,
    Start,
)
from scheduler.model.procset import ProcSet
from scheduler.protocol import messages as m
from scheduler.text.formats import noun
from scheduler.text.plain import LONGEST_LABEL, plain

#: Orders of a job with their times, oldest first.
Orders: TypeAlias = Sequence[tuple[float, Order]]


def merged(events: Sequence[Event], orders: Orders) -> list[tuple[float, Event | Order]]:
    """Merge events and orders by time; at one instant events come first."""
    return sorted([*((event.at, event) for event in events), *orders], key=itemgetter(0))


class HeldGroups:
    """The groups of a job with their processors, kept up to date by its events and orders.

    Attributes
    ----------
    groups : processors of each group, by its number.
    resize : the order of the resize under way; None if there is none.
    """

    def __init__(self) -> None:
        self.groups: dict[int, ProcSet] = {}
        self.resize: Expand | Contract | None = None

    def apply(self, what: Event | Order) -> bool:
        """Apply an event or an order of the job; return whether it may change the groups."""
        match what:
            case Start():
                self.groups, self.resize = dict(_groups(what)), None
            case Expand():
                self.groups |= _groups(what)
                self.resize = what
            case Contract():
                self.resize = what
            case ResizeDone(serial=serial) | ResizeFailed(serial=serial):
                if self.resize is None or self.resize.serial != serial:
                    return False
                gone = self.leaving if isinstance(what, ResizeDone) else self.joining
                self.groups = {
                    group: held for group, held in self.groups.items() if group not in gone
                }
                self.resize = None
            case JobEnded():
                self.groups, self.resize = {}, None
            case _:
                return False
        return True

    @property
    def joining(self) -> Collection[int]:
        """Groups that start and have not joined yet."""
        return _groups(self.resize) if isinstance(self.resize, Expand) else ()

    @property
    def leaving(self) -> Collection[int]:
        """Groups that leave and still hold their processors."""
        return self.resize.groups if isinstance(self.resize, Contract) else ()


def allocation(events: Sequence[Event], orders: Orders) -> list[tuple[float, str]]:
    """Return (time, processors as in "0-3 7") of each change of an allocation; "" at the end."""
    job = HeldGroups()
    history: list[tuple[float, str]] = []
    for at, what in merged(events, orders):
        if job.apply(what):
            held = str(ProcSet.union(job.groups.values()))
            if not history or history[-1][1] != held:
                history.append((at, held))
    return history


def _groups(order: Start | Expand) -> Mapping[int, ProcSet]:
    """Groups that an order starts, with their processors."""
    several = order.groups
    return several if isinstance(several, dict) else {order.group: order.processors}


def told(at: float, text: str, reason: Reason | None, ahead_s: float) -> m.Story:
    """Make a line of an explanation, with the rule and the facts of a reason.

    Facts that are moments are Unix times.

    Parameters
    ----------
    ahead_s : wall clock minus the service's clock, seconds.
    """
    if reason is None:
        return m.Story(at=at, text=text)
    facts = {**reason.facts, **reason.moments(ahead_s)}
    return m.Story(at=at, text=text, rule=reason.rule, facts=facts)


def explanation_lines(
    events: Sequence[Event], orders: Orders, phases: Sequence[Phase], ahead_s: float = 0.0
) -> list[m.Story]:
    """Describe what happened to a job and why, oldest first.

    Decisions to continue in a row give one line if they differ in measured numbers alone.

    Parameters
    ----------
    ahead_s : wall clock minus the service's clock, seconds; the lines have wall times.
    """
    lines: list[m.Story] = []
    on_tasks: list[int] = []  # places of lines on the tasks of an array, of which there may be many
    last_continue: object = None
    done: set[int] = set()  # resizes; their ends may be reported more than once
    specs = (event.spec for event in events if isinstance(event, JobSubmitted))
    array = next((spec.array for spec in specs), None)
    for at, what in merged(events, orders):
        if isinstance(what, ResizeDone):
            if what.serial in done:
                continue
            done.add(what.serial)
        if isinstance(what, Continue):
            if what.reason.rule == RESIZE_UNDER_WAY:  # the lines of the resize say so
                continue
            if _kind(what.reason) != last_continue:
                text = f"continues: {what.reason.dated(ahead_s)}"
                lines.append(told(at, text, what.reason, ahead_s))
            last_continue = _kind(what.reason)
            continue
        text = _of_tasks(what, array) or sentence(what, ahead_s)
        if text:
            if _is_on_tasks(what):
                on_tasks.append(len(lines))
            lines.append(told(at, text, _reason(what), ahead_s))
            last_continue = None
    _leave_out(lines, on_tasks)
    for phase in phases:
        if phase.phase in _PHASES:
            text = f"resize {phase.serial}: {_PHASES[phase.phase]}"
            lines.append(m.Story(at=phase.at, text=text))
    lines.sort(key=lambda line: line.at)
    return [replace(line, at=line.at + ahead_s) for line in lines]


#: Lines on the tasks of an array in its explanation, at most: the first and the last ones.
MOST_ON_TASKS = 40
_PHASES = {
    "ready": "its new processes are up and wait for the next resize point",
    "joining": "the job accepts its new processes and moves its data",
    "committed": "the data has moved",
}


def _kind(reason: Reason) -> tuple[object, ...]:
    """Return what a reason says apart from measured numbers, such as times."""
    facts = {name: fact for name, fact in reason.facts.items() if not isinstance(fact, float)}
    return reason.rule, reason.text, facts


def _reason(what: Event | Order) -> Reason | None:
    """Return the reason of an order; events have none."""
    return what.reason if isinstance(what, JobOrder) else None


def _is_on_tasks(what: Event | Order) -> bool:
    """Whether an event or order of an array says how many of its tasks have come, or is of some."""
    if isinstance(what, HoldChanged | JobCancelled):
        return what.tasks is not None
    return isinstance(what, Await) and "queued" in what.reason.facts


def _leave_out(lines: list[m.Story], places: list[int]) -> None:
    """Put one line in place of the middle ones of many.

    Its text is always the same, so that a watch gives it once.
    """
    middle = places[MOST_ON_TASKS // 2 : -MOST_ON_TASKS // 2]
    for place in reversed(middle[1:]):
        del lines[place]
    if middle:
        text = "lines on its tasks are left out here; reshape history lists the tasks that ended"
        lines[middle[0]] = m.Story(lines[middle[0]].at, text, facts={"left_out": len(middle)})


def _of_tasks(what: Event | Order, array: TaskArray | None) -> str:
    """Sentence on an event that concerns some tasks of an array; "" if it is none."""
    if array is None or not isinstance(what, HoldChanged | JobCancelled) or what.tasks is None:
        return ""
    part = tasks_at(array, what.tasks)
    indices = "" if part is None else str(replace(part, at_once=0))
    indices = indices if len(indices) <= LONGEST_LABEL else f"{indices[:LONGEST_LABEL]}..."
    if isinstance(what, JobCancelled):
        return f"tasks {indices} are to be cancelled: {what.why}"
    by = "its user" if what.hold == "user" else "an administrator"
    return f"tasks {indices} are {f'held by {by}' if what.hold else 'released'}"


def sentence(what: Event | Order, ahead_s: float) -> str:
    """Sentence on an event or an order, without its subject, the job; "" if it needs none.

    Parameters
    ----------
    ahead_s : wall clock minus the service's clock, seconds.
    """
    reason = _reason(what)
    if reason is not None:
        return f"{_decision(what)} {reason.dated(ahead_s)}"
    match what:
        case JobSubmitted():
            return f"submitted for {_request_text(what.spec, ahead_s)}"
        case JobUpdated():
            spec = what.spec
            named = f"name {plain(spec.name)}, queue {spec.queue}, priority {spec.priority:g}"
            return f"is updated to {_request_text(spec, ahead_s)}; {named}"
        case HoldChanged(hold=""):
            return "is released"
        case HoldChanged():
            return f"is held by {'its user' if what.hold == 'user' else 'an administrator'}"
        case JobRequeued():
            return f"is to be {what.why}"
        case JobStarted():
            return "is running"
        case ResizeDone():
            times = what.times
            return (
                f"resize {what.serial} is done; the pause was {1000 * times.pause_s:.0f} ms"
                f" (close {1000 * times.close_s:.0f}, join {1000 * times.join_s:.0f},"
                f" move {1000 * times.move_s:.0f})"
            )
        case ResizeFailed():
            rest = "restarts at its old size" if what.restart else "continues at its old size"
            return f"resize {what.serial} failed, the job {rest}: {what.why}"
        case JobCancelled():
            return f"is to be cancelled: {what.why}"
        case JobEnded():
            why = f": {what.why}" if what.why else ""
            return f"ended with exit code {what.exit_code}:{what.signal}{why}"
    return ""


def _decision(order: Event | Order) -> str:
    """Beginning of a sentence on an order, which its reason completes."""
    match order:
        case Await():
            return "is not eligible:"
        case Enqueue():
            return "is eligible:"
        case Drop():
            return "has ended:"
        case Start(restart=restart, processors=processors):
            verb = "restarts from its last resize point" if restart else "starts"
            return f"{verb} on processors {processors}{_group_sizes(order)}:"
        case Expand(to=to, processors=processors):
            return f"is to expand to {to} with processors {processors}{_group_sizes(order)}:"
        case Contract(to=to, groups=groups):
            return f"is to contract to {to}, groups {', '.join(map(str, groups))} leave:"
        case Signal(to_script=to_script):
            return f"{'its script gets' if to_script else 'its processes get'} the signal"
        case Kill():
            return "is to be ended:"
        case GiveUp(reason=reason):
            kind = " in this direction" if reason.rule == "max_failures" else ""
            return f"is not resized any more{kind}:"
        case AnswerRequest(accepted=accepted):
            return f"is resized within {'other' if accepted else 'the same'} bounds:"
        case Requeue(reason=reason) if reason.rule in ("requeue", "not begun"):
            return "goes back to the queue:"
    return "moves to the redirection group and starts from the beginning:"


def _group_sizes(order: Start | Expand) -> str:
    """Say how many processors each group has, if there are several."""
    if order.groups is UNSET:
        return ""
    return f", in groups of {'+'.join(str(len(held)) for held in order.groups.values())}"


def _request_text(spec: JobSpec, ahead_s: float) -> str:
    """Say what a job requests and waits for."""
    least, most = spec.min_processors or spec.processors, spec.largest
    sizes = f"{least} to {most}" if least < most else f"{most}"
    preferred = f", preferably {spec.processors}" if spec.malleable else ""
    more = "".join(f", {amount} {name}" for name, amount in spec.resources.items())
    more += "".join(f", {n} {name} a process" for name, n in spec.shared.items())
    text = f"{sizes} {noun(most, 'processor')}{preferred}{more}, {spec.walltime_s:g} s"
    text += "" if spec.nodes is None else f", {spec.nodes}"
    if (conditions := spec.conditions) is not None:
        text += ", held" if conditions.hold else ""
        if conditions.begin is not None:
            text += f", not before {utc_moment(conditions.begin + ahead_s)}"
        if conditions.dependency is not None:
            text += f", dependency {conditions.dependency}"
    return text


def resizes(
    job: Job, events: Sequence[Event], orders: Orders, ahead_s: float = 0.0
) -> list[m.ResizeInfo]:
    """List every resize of a job with its outcome and the time of each phase.

    Parameters
    ----------
    ahead_s : wall clock minus the service's clock, seconds; the list has wall times.
    """
    ends = {e.serial: e for e in events if isinstance(e, ResizeDone | ResizeFailed)}
    size = job.spec.processors
    infos: list[m.ResizeInfo] = []
    for at, order in orders:
        if isinstance(order, Start) and not order.restart:
            size = len(order.processors)  # also at the start of a job that was queued again
        elif isinstance(order, Requeue) and infos and infos[-1].serial not in ends:
            infos[-1] = replace(infos[-1], outcome="ended before the job was queued again")
        if not isinstance(order, Expand | Contract):
            continue
        info = m.ResizeInfo(
            at=at + ahead_s,
            serial=order.serial,
            old=size,
            new=order.to,
            outcome="under way" if job.ended_at is None else "ended with the job",
            reason=str(order.reason.dated(ahead_s)),
        )
        match ends.get(order.serial):
            case ResizeDone(times=times):
                size = order.to
                info = replace(info, outcome="done", **asdict(times))
            case ResizeFailed(why=why, restart=restart):
                outcome = f"{'restarted' if restart else 'rolled back'}: {why}"
                info = replace(info, outcome=outcome)
        infos.append(info)
    return infos
