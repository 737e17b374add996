"""A live run as its journal tells it, followed from one look to the next.

A journal is only read. What jobs are comes from their records, and what they held from events and
orders. All that pages need of the journal is imported here.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import Any, TypeAlias

import msgspec
import numpy as np

from reshape.errors import ReshapeError
from scheduler.client.tables import job_lines, resize_table
from scheduler.client.web.run_data import Blocked, JobRow, Kind, RunData, Segments
from scheduler.forecasts.answers import JobForecast
from scheduler.journal.clock import ahead_of_job_s, moved_time, noted_ahead_s
from scheduler.journal.descriptions import describe_recorded, iteration_times, label_of
from scheduler.journal.ended_jobs import ended_info, explanation
from scheduler.journal.explanations import HeldGroups
from scheduler.journal.journal_format import event_decoder, order_decoder
from scheduler.journal.journal_reader import JournalReader
from scheduler.model import events as e
from scheduler.model import orders as o
from scheduler.model.job import FINAL, Job
from scheduler.model.procset import ProcSet
from scheduler.protocol import messages as m
from scheduler.text.formats import counted
from scheduler.text.plain import plain

_Happening: TypeAlias = e.Event | o.Order
#: Kinds of events and of orders that change what is drawn.
_EVENTS = (
    *(e.JobSubmitted, e.JobUpdated, e.JobStarted, e.JobEnded, e.ResizeDone, e.ResizeFailed),
    *(e.NodeJoined, e.NodeLost, e.NodeRemoved, e.DrainChanged, e.ReservationCancelled),
)
_ORDERS = (o.Start, o.Expand, o.Contract, o.Requeue, o.Drop, o.Reserve)
#: Jobs that a run has at most; those that ended first are dropped.
MOST_JOBS = 200_000
#: Lines of a story, at most: the latest ones.
MOST_LINES = 400
_NEWS = f"""
SELECT 0, seq, NULL, event, batch FROM events
WHERE seq>? AND kind IN {tuple(kind.__name__ for kind in _EVENTS)}
UNION ALL
SELECT 1, seq, at, "order", batch FROM orders
WHERE seq>? AND kind IN {tuple(kind.__name__ for kind in _ORDERS)}
ORDER BY 5, 1, 2"""


class _LiveJob:
    """A job: its row, its place among the rows, its forecast, and the groups that it holds.

    Each group has its processors, its kind, and since when it has been so (s).
    """

    def __init__(self, row: JobRow, place: int, is_step: bool) -> None:
        self.row, self.place, self.is_step = row, place, is_step
        self.forecast: JobForecast | None = None
        self.groups: dict[int, tuple[ProcSet, Kind, float]] = {}
        self._held = HeldGroups()
        self._runs = False
        self._first_group = 0

    def apply(self, what: _Happening, time: float, segments: Segments) -> None:
        """Apply an event or an order; add the segments of groups that it changes."""
        match what:
            case o.Start(group=group):
                self._runs, self._first_group = False, group
            case e.JobStarted():
                self._runs = True
        self._held.apply(what)
        present = {group: (held, self._kind(group)) for group, held in self._held.groups.items()}
        changed = [g for g, span in self.groups.items() if present.get(g) != span[:2]]
        self.add([self.groups.pop(group) for group in changed], time, segments)
        for group, span in present.items():
            self.groups.setdefault(group, (*span, time))

    def add(
        self, groups: Iterable[tuple[ProcSet, Kind, float]], end: float, segments: Segments
    ) -> None:
        """Add the segments of groups until a time (s); those that began together become one."""
        together: dict[tuple[float, Kind], list[ProcSet]] = {}
        for held, kind, since in groups:
            together.setdefault((since, kind), []).append(held)
        for (since, kind), parts in together.items():
            segments.add(self.place, ProcSet.union(parts), since, end, kind)

    def _kind(self, group: int) -> Kind:
        if group == self._first_group and self.is_step:
            return Kind.LENT
        if group in self._held.joining or not self._runs:
            return Kind.STARTING
        return Kind.LEAVING if group in self._held.leaving else Kind.COMPUTING


class JournalRun:
    """What a journal tells, up to the latest `update`.

    Parameters
    ----------
    name : of the run, for people.
    only : numbers of the jobs that it has; None: all.
    origin : Unix time of second 0; None: that of the first event.
    """

    def __init__(
        self, name: str, only: Container[int] | None = None, origin: float | None = None
    ) -> None:
        self.name, self.origin = name, origin
        self._only = only
        self.sequence = 0
        self.now = 0.0
        self._hosts: dict[str, ProcSet] = {}
        self._blocked: list[Blocked] = []
        self._open: dict[tuple[str, str], Blocked] = {}
        self._ahead_s = 0.0  # what times of the journal become seconds from the origin by
        self._jobs: dict[int, _LiveJob] = {}
        self._segments = Segments()
        self._event = self._order = 0  # sequence numbers of what was read last

    def update(self, journal: JournalReader) -> bool:
        """Read what is new; return whether it changes what is drawn."""
        with journal.one_moment():
            before = (self._event, self._order)
            self.sequence = journal.sequence()
            ahead_s, current = noted_ahead_s(journal), set[int]()
            for at, what in self._news(journal):
                if self.origin is None:
                    self.origin = at + ahead_s
                self._ahead_s = ahead_s - self.origin
                time = at + self._ahead_s
                self.now = max(self.now, time)
                if isinstance(what, e.JobEvent | o.JobOrder):
                    if what.job not in current and (self._only is None or what.job in self._only):
                        current.add(what.job)
                        if (job := journal.recorded_job(what.job)) is not None:
                            self._describe(job)
                    if what.job in self._jobs:
                        self._jobs[what.job].apply(what, time, self._segments)
                else:
                    self._apply_to_machine(journal, what, time)
            self._forget()
        return before != (self._event, self._order)

    def _news(self, journal: JournalReader) -> Iterator[tuple[float, _Happening]]:
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

    def _describe(self, job: Job) -> None:
        """Make the row of a job from its record."""
        spec, ahead_s = job.spec, self._ahead_s
        is_resized = job.state in FINAL and job.committed
        row = JobRow(
            job.id,
            label_of(job),
            plain(spec.name),
            plain(spec.user),
            job.submitted_at + ahead_s,
            max([job.queued_at, *(at for at, size in job.sizes if not size)]) + ahead_s,
            spec.processors,
            spec.min_processors or spec.processors,
            spec.largest,
            spec.walltime_s,
            job.state.name,
            moved_time(job.started_at, ahead_s),
            moved_time(job.ended_at, ahead_s),
            gained_s=gained_s(job, 0.0) if is_resized else None,
        )
        new = _LiveJob(row, len(self._jobs), spec.step_of is not None)
        live = self._jobs.setdefault(job.id, new)
        if row.group == "queued":
            row.reason, row.expected = live.row.reason, live.row.expected
        live.row = row

    def _apply_to_machine(self, journal: JournalReader, what: _Happening, time: float) -> None:
        match what:
            case e.NodeJoined(node=node):
                self._hosts |= journal.nodes()
                self._close("down", node, time)
            case e.NodeLost(node=node):
                self._block(node, time, "down", "is down")
            case e.NodeRemoved(node=node):
                self._block(node, time, "down", "is removed")
            case e.DrainChanged(node=node, drains=True, why=why):
                self._block(node, time, "drained", f"drains: {why}" if why else "drains")
            case e.DrainChanged(node=node):
                self._close("drained", node, time)
                self._close("down", node, time)
            case o.Reserve(name=name, processors=held):
                begin, end = what.begin + self._ahead_s, what.end + self._ahead_s
                self._add(name, Blocked("reservation", held, begin, end, f"reservation {name}"))
            case e.ReservationCancelled(name=name):
                self._close("reservation", name, time)

    def _block(self, node: str, time: float, kind: str, what: str) -> None:
        """Note that the processors of a node are not available any more."""
        if (kind, node) not in self._open:
            held = self._hosts.get(node, ProcSet())
            self._add(node, Blocked(kind, held, time, inf, f"node {node} {what}"))

    def _add(self, name: str, span: Blocked) -> None:
        span.text = plain(span.text)
        self._open[span.kind, name] = span
        self._blocked.append(span)

    def _close(self, kind: str, name: str, time: float) -> None:
        if (span := self._open.pop((kind, name), None)) is not None:
            span.end = min(span.end, max(time, span.begin))

    def _forget(self) -> None:
        """Drop the jobs that ended first if there are more than `MOST_JOBS`."""
        if len(self._jobs) <= MOST_JOBS:
            return
        ended = sorted((row.ended, row.number) for row in self.rows if row.ended is not None)
        dropped = {number for _, number in ended[: len(self._jobs) - MOST_JOBS // 2]}
        kept = {number: job for number, job in self._jobs.items() if number not in dropped}
        places = np.full(len(self._jobs), -1, np.int32)
        for place, job in enumerate(kept.values()):
            places[job.place] = place
            job.place = place
        rows = self._segments.rows()
        rows = rows[places[rows["job"]] >= 0]
        rows["job"] = places[rows["job"]]
        self._segments = Segments(rows)
        self._jobs = kept

    @property
    def rows(self) -> list[JobRow]:
        """What tables show of each job."""
        return [job.row for job in self._jobs.values()]

    def row_of(self, number: int) -> JobRow | None:
        """Return what tables show of a job; None if it is not known."""
        job = self._jobs.get(number)
        return None if job is None else job.row

    def expect(self, reasons: Mapping[int, str], forecasts: Iterable[JobForecast]) -> None:
        """Take the reason for which each job waits, by number, and forecasts of their starts."""
        by_number = {forecast.job: forecast for forecast in forecasts}
        for number in reasons.keys() & self._jobs.keys():
            job, forecast = self._jobs[number], by_number.get(number)
            if job.row.group == "queued":
                start = None if forecast is None else forecast.start
                job.forecast, job.row.reason = forecast, plain(reasons[number])
                job.row.expected = None if start is None else start - (self.origin or 0.0)

    def data(self, now: float | None = None) -> RunData:
        """Return the run as it is at a time, with what is expected from then on.

        Parameters
        ----------
        now : seconds from the origin; None: at the latest event, and nothing is expected.
        """
        until = self.now if now is None else max(now, self.now)
        segments = Segments(self._segments.rows())
        for job in self._jobs.values():
            if job.groups:
                job.add(job.groups.values(), until, segments)
            if now is not None:
                self._add_expected(job, until, segments)
        rows = segments.rows()
        ends = [last + 1 for held in self._hosts.values() for _, last in held.intervals]
        used = int((rows["first"] + rows["count"]).max(initial=0))
        size, blocked = max([used, *ends]), self._blocked
        return RunData(self.name, self.origin, rows, until, size, self._hosts, self.rows, blocked)

    def _add_expected(self, job: _LiveJob, now: float, segments: Segments) -> None:
        """Add what a job holds until its walltime, or if it is queued, by its forecast."""
        row, forecast = job.row, job.forecast
        if job.groups and row.started is not None:
            own = [held for held, kind, _ in job.groups.values() if kind != Kind.LENT]
            end = row.started + row.walltime_s
            segments.add(job.place, ProcSet.union(own), now, end, Kind.EXPECTED)
        if forecast is not None and row.expected is not None and row.group == "queued":
            held, begin = ProcSet.parse(forecast.processors), max(now, row.expected)
            end = (forecast.end or 0.0) - (self.origin or 0.0)  # without an end nothing is added
            segments.add(job.place, held, begin, end, Kind.EXPECTED)


#: What `reshape info` shows of a job and stories show, too.
_FACTS = (
    *("Reason", "Partition", "Processors", "Nodes", "Resources", "Time", "ExitCode", "Held"),
    *("Resizes", "Memory", "Facts", "Command", "Output", "Error"),
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
    job = journal.recorded_job(number)
    if job is None:
        raise ReshapeError(f"there is no job {number} in {journal.path}")
    ahead_s = ahead_of_job_s(journal, job)
    now = journal.latest_event_at() + ahead_s if now is None else now
    is_ended = job.state in FINAL
    info = ended_info(journal, job) if is_ended else describe_recorded(job, journal, now - ahead_s)
    lines, table = explanation(journal, number, job.spec.task_of), resize_table(info)
    facts = {"Reason": info.reason, **job_lines(info, now)}
    shown = {name: plain(facts[name]) for name in _FACTS if facts.get(name)}
    return {
        "lines": [(line.at, plain(line.text), line.rule) for line in lines[-MOST_LINES:]],
        "left_out": max(0, len(lines) - MOST_LINES),
        "sizes": info.sizes,
        "iterations": iteration_times(job),
        "gained_s": gained_s(job, now - ahead_s),
        "resizes": [[plain(text) for text in row] for row in (table.headings, *table.rows)],
        "facts": shown,
        "output": plain(info.last_lines).replace("\\n", "\n"),
        "advice": advice(job, info),
    }


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
    sentences, times = [], iteration_times(job)
    if len(times) > 1:
        best = min(seconds for _, seconds in times)
        enough = next(size for size, seconds in times if seconds <= best * (1 + WORTH))
        if enough < times[-1][0]:
            size = counted(enough, "processor")
            sentences.append(f"It gains nothing beyond {size}: --max {enough}")
    memory, used = info.resources.get("memory", 0), info.max_memory_mib
    if used and memory > SPARE_MEMORY * used:
        share = f"{100 * used / memory:.0f} % of its memory, {used} of {memory} MiB"
        sentences.append(f"It uses {share}: request less")
    if info.ended_at is not None and info.started_at is not None and info.state == "COMPLETED":
        ran = info.ended_at - info.started_at
        if ran and info.walltime_s > 4 * ran and info.walltime_s - ran > 60:
            share = f"{100 * ran / info.walltime_s:.0f} % of its walltime"
            sentences.append(f"It ran for {share}: a shorter one lets it start earlier")
    return sentences


#: Bytes of all stories of a page, at most; they are compressed to about a tenth.
MOST_BYTES = 8 << 20


def recorded_run(
    journal: JournalReader,
    name: str,
    stories: int = 0,
    only: Container[int] | None = None,
    origin: float | None = None,
) -> RunData:
    """Read a whole journal as a run.

    Parameters
    ----------
    stories : number of jobs whose stories are told, the latest ones.
    name, only, origin : as of `JournalRun`.

    Raises
    ------
    ReshapeError : the journal cannot be read.
    """
    followed = JournalRun(name, only, origin)
    followed.update(journal)
    run, left_bytes = followed.data(), MOST_BYTES
    for row in reversed(run.jobs[-stories:] if stories else ()):
        told = story(journal, row.number)
        left_bytes -= len(msgspec.json.encode(told))
        if left_bytes < 0:
            break
        run.stories[row.number] = told
    left_out = len(run.jobs) - len(run.stories)
    if left_out and stories:
        run.notes.append(f"Left out: decisions about {counted(left_out, 'earlier job')}")
    run.notes += map(plain, journal.unreadable)
    return run
