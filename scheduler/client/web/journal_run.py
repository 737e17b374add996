"""A live run as its journal tells it, followed from one look to the next.

A journal is only read. All that pages need of the other folders of the scheduler, apart from the
model, is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import Any

import msgspec
import numpy as np

from reshape.errors import ReshapeError
from scheduler.client.web.run_data import (
    PENDING,
    Blocked,
    JobRow,
    Kind,
    RunData,
    SegmentRows,
    Segments,
)
from scheduler.journal.clock import ahead_of_job_s, noted_ahead_s
from scheduler.journal.descriptions import describe, label_of, noted_submission
from scheduler.journal.ended_jobs import ended_info, events_of_task, recorded_job
from scheduler.journal.explanations import HeldGroups, explanation_lines
from scheduler.journal.journal_format import event_decoder, order_decoder
from scheduler.journal.journal_reader import JournalReader
from scheduler.journal.retention import removed_lines
from scheduler.model.events import (
    DrainChanged,
    Event,
    JobEnded,
    JobEvent,
    JobStarted,
    JobSubmitted,
    JobUpdated,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    ReservationCancelled,
    ResizeDone,
    ResizeFailed,
)
from scheduler.model.job import FINAL, Job
from scheduler.model.orders import Contract, Drop, Expand, JobOrder, Order, Requeue, Reserve, Start
from scheduler.model.procset import ProcSet
from scheduler.protocol import messages as m
from scheduler.text.plain import plain

_EVENTS = (
    *(JobSubmitted, JobUpdated, JobStarted, ResizeDone, ResizeFailed, JobEnded, NodeJoined),
    *(NodeLost, NodeRemoved, DrainChanged, ReservationCancelled),
)
_ORDERS = (Start, Expand, Contract, Requeue, Drop, Reserve)
#: Jobs that a run has at most; those that ended first are dropped.
MOST_JOBS = 200_000
#: Lines of a story, at most: the latest ones.
MOST_LINES = 400


def _kinds(types: Iterable[type]) -> str:
    return ", ".join(f"'{kind.__name__}'" for kind in types)


_NEWS = f"""
SELECT 0, seq, NULL, event, batch FROM events WHERE seq>? AND kind IN ({_kinds(_EVENTS)})
UNION ALL
SELECT 1, seq, at, "order", batch FROM orders WHERE seq>? AND kind IN ({_kinds(_ORDERS)})
ORDER BY 5, 1, 2"""


class _LiveJob:
    """A job with the groups that it holds, and since when (s), each with its kind."""

    def __init__(self, row: int, is_step: bool) -> None:
        self.row, self.is_step = row, is_step
        self.held = HeldGroups()
        self.runs = False
        self.first_group = 0
        self.open: dict[int, tuple[ProcSet, float, Kind]] = {}

    def apply(self, what: Event | Order) -> None:
        """Apply an event or an order."""
        match what:
            case Start(group=group):
                self.runs, self.first_group = False, group
            case JobStarted():
                self.runs = True
        self.held.apply(what)

    def now_held(self) -> dict[int, tuple[ProcSet, Kind]]:
        """Processors and kind of each group."""
        joining, leaving = set(self.held.joining), set(self.held.leaving)
        return {
            group: (held, self._kind(group, joining, leaving))
            for group, held in self.held.groups.items()
        }

    def _kind(self, group: int, joining: set[int], leaving: set[int]) -> Kind:
        if group == self.first_group and self.is_step:
            return Kind.LENT
        if group in joining or not self.runs:
            return Kind.STARTING
        return Kind.LEAVING if group in leaving else Kind.COMPUTING


def _add_groups(
    segments: Segments, row: int, spans: Iterable[tuple[ProcSet, float, Kind]], end: float
) -> None:
    """Add groups of a job that end together; those that began together become one."""
    together: dict[tuple[float, Kind], list[ProcSet]] = {}
    for held, since, kind in spans:
        together.setdefault((since, kind), []).append(held)
    for (since, kind), parts in together.items():
        segments.add(row, ProcSet.union(parts), since, end, kind)


class JournalRun:
    """What a journal tells, up to the latest `update`.

    Parameters
    ----------
    name : of the run, for people.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.origin: float | None = None
        self.sequence = 0
        self.now = 0.0
        self.rows: list[JobRow] = []
        self.numbers: list[int] = []
        self.hosts: dict[str, ProcSet] = {}
        self.blocked: list[Blocked] = []
        self._open: dict[tuple[str, str], Blocked] = {}
        self._ahead_s = 0.0
        self._jobs: dict[int, _LiveJob] = {}
        self._segments = Segments()
        self._closed: SegmentRows | None = None
        self._event = self._order = 0  # sequence numbers of what was read last

    def update(self, journal: JournalReader) -> bool:
        """Read what is new; return whether it changes what is drawn."""
        with journal.one_moment():
            before = (self._event, self._order)
            self.sequence = journal.sequence()
            changed: set[int] = set()
            ahead_s = noted_ahead_s(journal)
            for at, what in self._news(journal):
                if self.origin is None:
                    self.origin = at + ahead_s
                self._ahead_s = ahead_s
                time = at + ahead_s - self.origin
                self.now = max(self.now, time)
                self._apply(journal, time, what, changed)
            self._refresh(journal, changed)
            self._forget()
        return before != (self._event, self._order)

    def _news(self, journal: JournalReader) -> Iterator[tuple[float, Event | Order]]:
        """Yield new events and orders in their order: of a batch the events come first."""
        for is_order, seq, at, blob, _ in journal.rows(_NEWS, self._event, self._order):
            try:
                if is_order:
                    self._order = seq
                    yield at, order_decoder.decode(blob)
                else:
                    self._event = seq
                    event = event_decoder.decode(blob)
                    yield event.at, event
            except (msgspec.DecodeError, ValueError) as error:
                journal.report_unreadable(f"{'order' if is_order else 'event'} {seq}", error)

    def _apply(
        self, journal: JournalReader, time: float, what: Event | Order, changed: set[int]
    ) -> None:
        match what:
            case JobEvent(job=number) | JobOrder(job=number):
                changed.add(number)
                self._apply_to_job(journal, time, number, what)
            case NodeJoined(node=node):
                self._read_hosts(journal)
                self._close("down", node, time)
            case NodeLost(node=node):
                self._block("down", node, time, f"node {node} is down")
            case NodeRemoved(node=node):
                self._block("down", node, time, f"node {node} is removed")
            case DrainChanged(node=node, drains=True, why=why):
                text = f"node {node} drains: {why}" if why else f"node {node} drains"
                self._block("drained", node, time, plain(text))
            case DrainChanged(node=node):
                self._close("drained", node, time)
                self._close("down", node, time)
            case Reserve(name=name):
                begin = what.begin + self._ahead_s - (self.origin or 0.0)
                self._block("reservation", name, begin, plain(f"reservation {name}"), what)
            case ReservationCancelled(name=name):
                self._close("reservation", name, time)

    def _apply_to_job(
        self, journal: JournalReader, time: float, number: int, what: Event | Order
    ) -> None:
        spec = what.spec if isinstance(what, JobSubmitted) else None
        job = self._job(journal, number, time, spec)
        if job is None:
            return
        row = self.rows[job.row]
        match what:
            case Start(restart=False):
                row.started, row.state = row.started or time, "RUNNING"
            case JobEnded() | Drop():
                row.ended, row.state = time, "COMPLETED"
            case Requeue():
                row.ended, row.state = None, PENDING
                row.started, row.requeued = None, time
            case JobUpdated(spec=new):
                row.requested, row.most = new.processors, new.largest
                row.least = new.min_processors or new.processors
                row.name = plain(new.name)
        job.apply(what)
        self._note_groups(job, time)

    def _note_groups(self, job: _LiveJob, time: float) -> None:
        """Close the segments of groups that changed, and open those that follow."""
        present = job.now_held()
        closed = {
            group: span
            for group, span in job.open.items()
            if present.get(group) != (span[0], span[2])
        }
        if closed:
            _add_groups(self._segments, job.row, closed.values(), time)
            self._closed = None
        for group in closed:
            del job.open[group]
        for group, (held, kind) in present.items():
            if group not in job.open:
                job.open[group] = held, time, kind

    def _job(self, journal: JournalReader, number: int, time: float, spec: Any) -> _LiveJob | None:
        """Return a job; one that is not known is added, by its record unless `spec` is given."""
        if number in self._jobs:
            return self._jobs[number]
        label = ""
        if spec is None or spec.task_of or spec.step_of or spec.array:
            recorded = recorded_job(journal, number)
            if recorded is not None:
                spec, label = recorded.spec, label_of(recorded)
                time = recorded.submitted_at + self._ahead_s - (self.origin or 0.0)
        if spec is None:
            return None
        job = self._jobs[number] = _LiveJob(len(self.rows), spec.step_of is not None)
        self.numbers.append(number)
        self.rows.append(
            JobRow(
                label or str(number),
                plain(spec.name),
                plain(spec.user),
                time,
                spec.processors,
                spec.min_processors or spec.processors,
                spec.largest,
                spec.walltime_s,
            )
        )
        return job

    def _refresh(self, journal: JournalReader, changed: set[int]) -> None:
        """Take the states of jobs, and their users, from their records."""
        numbers = sorted(changed & self._jobs.keys())
        for at in range(0, len(numbers), 500):
            part = numbers[at : at + 500]
            places = ",".join("?" * len(part))
            query = f"SELECT job, state, user, name FROM records WHERE job IN ({places})"
            for number, state, user, name in journal.rows(query, *part):
                row = self.rows[self._jobs[number].row]
                row.state, row.user = str(state), plain(str(user)) or row.user
                row.name = plain(str(name)) or row.name
                if row.least < row.most and row.group == "ended":
                    job = recorded_job(journal, number)
                    row.gained_s = None if job is None else gained_s(job, 0.0)

    def _forget(self) -> None:
        """Drop the jobs that ended first if there are more than `MOST_JOBS`."""
        if len(self.rows) <= MOST_JOBS:
            return
        ended = sorted(
            (row.ended, i)
            for i, row in enumerate(self.rows)
            if row.group == "ended" and row.ended is not None
        )
        dropped = {i for _, i in ended[: len(self.rows) - MOST_JOBS // 2]}
        place = np.full(len(self.rows), -1, np.int32)
        kept = [i for i in range(len(self.rows)) if i not in dropped]
        place[kept] = np.arange(len(kept))
        rows = self._segments.rows()
        rows["job"] = place[rows["job"]]
        self._segments, self._closed = Segments.of(rows[rows["job"] >= 0]), None
        self._jobs = {n: job for n, job in self._jobs.items() if place[job.row] >= 0}
        for job in self._jobs.values():
            job.row = int(place[job.row])
        self.rows = [self.rows[i] for i in kept]
        self.numbers = [self.numbers[i] for i in kept]

    def expected_ends(self, now: float) -> Iterator[tuple[int, ProcSet, float]]:
        """Yield row, processors and end by the walltime (s) of each job that holds processors."""
        for job in self._jobs.values():
            row = self.rows[job.row]
            if job.open and row.started is not None and row.started + row.walltime_s > now:
                own = [held for held, _, kind in job.open.values() if kind != Kind.LENT]
                yield job.row, ProcSet.union(own), row.started + row.walltime_s

    def row_of(self, number: int) -> JobRow | None:
        """Return what tables show of a job; None if it is not known."""
        job = self._jobs.get(number)
        return None if job is None else self.rows[job.row]

    def _read_hosts(self, journal: JournalReader) -> None:
        recorded = journal.core_record()
        for part in recorded.partitions if recorded else ():
            for node in part.nodes:
                self.hosts[node.name] = self.hosts.get(node.name, ProcSet()) | node.processors

    def _block(
        self, kind: str, name: str, begin: float, text: str, reserved: Reserve | None = None
    ) -> None:
        """Note that processors are not available: those of a node, or of a reservation."""
        held = self.hosts.get(name, ProcSet()) if reserved is None else reserved.processors
        if (kind, name) not in self._open or reserved is not None:
            end = inf if reserved is None else begin + reserved.end - reserved.begin
            self._open[kind, name] = Blocked(kind, held, begin, end, text)
            self.blocked.append(self._open[kind, name])

    def _close(self, kind: str, name: str, time: float) -> None:
        if (span := self._open.pop((kind, name), None)) is not None:
            span.end = min(span.end, max(time, span.begin))

    def data(self, now: float | None = None) -> RunData:
        """Return the run as it is at a time; None: at the latest event.

        Parameters
        ----------
        now : seconds from the origin.
        """
        now = self.now if now is None else max(now, self.now)
        if self._closed is None:
            self._closed = self._segments.rows()
        still = Segments()
        for job in self._jobs.values():
            _add_groups(still, job.row, job.open.values(), now)
        segments = np.concatenate([self._closed, still.rows()])
        used = int((segments["first"] + segments["count"]).max()) if len(segments) else 0
        of_hosts = ProcSet.union(self.hosts.values()).intervals
        return RunData(
            self.name,
            self.origin,
            segments,
            now,
            max(used, of_hosts[-1][1] + 1 if of_hosts else 0),
            self.hosts,
            self.rows,
            self.numbers,
            self.blocked,
        )


def story(journal: JournalReader, number: int, now: float | None = None) -> dict[str, Any]:
    """Tell what became of a job: decisions in sentences, sizes, iteration times, resizes.

    Times are Unix seconds.

    Parameters
    ----------
    now : time up to which a job that has not ended is described; None: the latest event.

    Raises
    ------
    ReshapeError : there is no such job.
    """
    job = recorded_job(journal, number)
    if job is None:
        raise ReshapeError(f"there is no job {number} in {journal.path}")
    ahead_s = ahead_of_job_s(journal, job)
    events = journal.events_of(number)
    if job.spec.task_of is not None:
        events = [*events_of_task(journal, job.spec.task_of.array, number), *events]
    orders = journal.orders_of(number, routine=True)
    lines = explanation_lines(events, orders, journal.phases_of(number), ahead_s)
    lines += removed_lines(journal, number, ahead_s)
    lines.sort(key=lambda line: line.at)
    until = journal.latest_event_at() if now is None else now - ahead_s
    info = _info(journal, job, until, ahead_s)
    return {
        "job": number,
        "label": info.label or str(number),
        "lines": [(line.at, plain(line.text), line.rule) for line in lines[-MOST_LINES:]],
        "left_out": max(0, len(lines) - MOST_LINES),
        "sizes": info.sizes,
        "ended": info.ended_at,
        "iterations": iteration_times(job),
        "gained_s": gained_s(job, until),
        "resizes": [
            {name: getattr(resize, name) for name in _RESIZE} | {"outcome": plain(resize.outcome)}
            for resize in info.resizes
        ],
        "facts": _facts(info),
        "output": plain(info.last_lines).replace("\\n", "\n"),
        "advice": advice(job, info),
    }


_RESIZE = (
    *("at", "serial", "old", "new", "start_s", "close_s", "join_s", "plan_s", "move_s"),
    *("resume_s", "moved_bytes"),
)


def _info(journal: JournalReader, job: Job, until: float, ahead_s: float) -> m.JobInfo:
    if job.state in FINAL:
        return ended_info(journal, job)
    submission = noted_submission(journal, job)
    return describe(job, journal, submission, until, reason=job.why, ahead_s=ahead_s)


def _facts(info: m.JobInfo) -> Mapping[str, Any]:
    """Facts about a job by name, in the order in which a page shows them."""
    facts = {
        "state": info.state,
        "user": info.user,
        "partition": info.partition,
        "requested": info.requested,
        "processors": info.processors,
        "nodes": info.nodes,
        "program": " ".join(info.argv),
        "reason": info.reason,
        "exit code": f"{info.exit_code}:{info.signal}" if info.ended_at is not None else "",
        "memory": f"{info.max_memory_mib} MiB" if info.max_memory_mib else "",
        "output": info.output,
        **{name: value for name, value in info.facts.items() if name not in _RESIZE},
    }
    shown = {plain(name): plain(str(value)) for name, value in facts.items()}
    return {name: value for name, value in shown.items() if value}


def iteration_times(job: Job) -> list[tuple[int, float]]:
    """Return (size, typical iteration time in s) of each size on which a job was measured."""
    history = job.recorded_history
    if history is None:
        return []
    times = ((size, history.time_s(size)) for size in sorted(history.visited))
    return [(size, seconds) for size, seconds in times if seconds]


def gained_s(job: Job, until: float) -> float | None:
    """Run time that resizes have saved a job by its iteration times, s; None: not known.

    The iterations that it did on each size are compared with as many on the size that it started
    on, and the pauses of its resizes are subtracted.

    Parameters
    ----------
    until : the end of the job, or now, on the service's clock, s.
    """
    times = dict(iteration_times(job))
    if len(job.sizes) < 2 or job.sizes[0][1] not in times:
        return None
    start_s = times[job.sizes[0][1]]
    end = job.ended_at if job.ended_at is not None else until
    saved = -job.paused_s
    for (begin, size), (then, _) in pairwise([*job.sizes, (end, 0)]):
        if size not in times:
            return None
        saved += (then - begin) * (start_s / times[size] - 1)
    return saved


#: A size must shorten the iterations by this part of the time on a smaller one to be worth it.
WORTH = 0.05
#: A request of more than this many times the memory that was used is pointed out.
SPARE_MEMORY = 4


def advice(job: Job, info: m.JobInfo) -> list[str]:
    """Say what another request for the same program would have made better."""
    sentences = []
    times = iteration_times(job)
    if len(times) > 1:
        best = min(seconds for _, seconds in times)
        enough = next(size for size, seconds in times if seconds <= best * (1 + WORTH))
        if enough < times[-1][0]:
            sentences.append(f"It gains nothing beyond {enough} processors: --max {enough}")
    memory = info.resources.get("memory", 0)
    used = info.max_memory_mib
    if memory and used and memory > SPARE_MEMORY * used:
        share = 100 * used / memory
        sentences.append(
            f"It uses {share:.0f} % of its memory, {used} of {memory} MiB: request less"
        )
    if info.ended_at is not None and info.started_at is not None and info.state == "COMPLETED":
        ran = info.ended_at - info.started_at
        if ran and info.walltime_s > 4 * ran and info.walltime_s - ran > 60:
            sentences.append(
                f"It ran for {100 * ran / info.walltime_s:.0f} % of its walltime: a shorter one"
                " lets it start earlier"
            )
    return sentences


#: More stories than any page has.
ALL_STORIES = 1 << 31
#: Bytes of all stories of a page, at most; they are compressed to about a tenth.
MOST_BYTES = 8 << 20


def recorded_run(journal: JournalReader, name: str, stories: int = 0) -> RunData:
    """Read a whole journal as a run.

    Parameters
    ----------
    name : of the run, for people.
    stories : number of jobs whose stories are told, the latest ones.

    Raises
    ------
    ReshapeError : the journal cannot be read.
    """
    followed = JournalRun(name)
    followed.update(journal)
    run = followed.data()
    told: dict[int, dict[str, Any]] = {}
    size = 0
    for number in reversed(followed.numbers[-stories:] if stories else ()):
        one = story(journal, number)
        size += len(msgspec.json.encode(one))
        if size > MOST_BYTES:
            break
        told[number] = one
    left_out = len(followed.numbers) - len(told)
    run.stories = told
    if left_out and stories:
        run.notes = [f"Decisions about the first {left_out} jobs are left out"]
    if journal.unreadable:
        run.notes = [*run.notes, *map(plain, journal.unreadable)]
    return run
