"""``reshape stats``: what a service did in a time: utilisation, waits, resizes, ends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean, median

import click
import msgspec

from reshape.cli.options import example
from scheduler.client.api.client import Client, ended_jobs
from scheduler.client.api.service_option import service_option
from scheduler.client.columns import waited_s
from scheduler.client.options import MOMENT, echo_json, json_option
from scheduler.model.procset import ProcSet
from scheduler.protocol.messages import JobInfo
from scheduler.text.formats import counted, format_moment, format_time
from scheduler.text.tables import Table, labelled, render

#: Classes of sizes: names, and largest requested number of processors.
CLASSES = (("1", 1), ("2-4", 4), ("5-16", 16), ("17-64", 64), ("65-", 2**31))


class ClassWaits(msgspec.Struct, frozen=True):
    """Waits of the jobs of one size class that started, seconds.

    Attributes
    ----------
    processors : sizes of the class, such as 2-4.
    jobs : number of its jobs.
    mean_s, median_s, longest_s : of their waits.
    """

    processors: str
    jobs: int
    mean_s: float
    median_s: float
    longest_s: float


class Stats(msgspec.Struct, frozen=True):
    """What a service did from `since` to `until`, Unix seconds.

    Attributes
    ----------
    since, until : Unix seconds.
    processors : number of processors of the service.
    utilization : share of the processor-seconds that jobs held; of the processors that are up now.
    states : number of jobs by final state.
    waits : by requested processors, of the jobs that started.
    resizes : number of resizes by kind and outcome, such as ``expand done``.
    pause_s : time for which committed resizes stopped jobs, seconds.
    gained, lost : processor-seconds that jobs held above and below their requested sizes; the
        processor-seconds of pauses are lost, too.
    """

    since: float
    until: float
    processors: int
    utilization: float
    states: dict[str, int]
    waits: list[ClassWaits]
    resizes: dict[str, int]
    pause_s: float
    gained: float
    lost: float


@click.command()
@service_option
@click.option("--since", type=MOMENT, help="Start of the period.  [default: start of the service]")
@click.option("--until", type=MOMENT, help="End of the period.  [default: now]")
@json_option
@example("reshape stats --since 2026-05-01")
def stats(service: Client, since: float | None, until: float | None, as_json: bool) -> None:
    """Show utilisation, waits, resizes and ends of jobs.

    GAINED counts the processor-seconds that jobs held above their requested sizes. LOST counts the
    ones that they lacked below them, and the ones of pauses. Utilisation refers to the processors
    that are up now.
    """
    info = service.info()
    begin = info.started_at if since is None else since
    end = min(time.time(), info.now if until is None else until)
    if end <= begin:
        raise click.UsageError(
            f"the time from {format_moment(begin)} to {format_moment(end)} is empty"
        )
    jobs = service.queue() + ended_jobs(service, {"since": begin})
    statistics = stats_of(jobs, begin, end, info.processors)
    if as_json:
        echo_json(statistics)
    else:
        click.echo(stats_text(statistics))


def stats_of(jobs: Sequence[JobInfo], since: float, until: float, processors: int) -> Stats:
    """Compute the statistics of jobs.

    Parameters
    ----------
    since, until : the time, Unix seconds; what jobs held before and after does not count.
    processors : of the machine.
    """
    held = gained = lost = pause_s = 0.0
    resizes: Counter[str] = Counter()
    own = [job for job in jobs if not job.step_of]  # a step is on the processors of its job
    for job in own:
        sizes = ((at, len(ProcSet.parse(text)) if text else 0) for at, text in job.allocation)
        for begin, end, size in _spans(sizes, since, until):
            held += (end - begin) * size
        for begin, end, size in _spans(job.sizes, since, until):
            beyond = (end - begin) * (size - job.requested) if size else 0.0
            gained, lost = gained + max(0.0, beyond), lost + max(0.0, -beyond)
    for job in jobs:
        for resize in job.resizes:
            if since <= resize.at <= until:
                kind = "expand" if resize.new > resize.old else "contract"
                resizes[f"{kind} {resize.outcome}"] += 1
                pause_s += resize.pause_s
                lost += resize.pause_s * resize.old
    ended = [job for job in own if job.ended_at is not None and since <= job.ended_at <= until]
    started = [
        job for job in own if job.started_at is not None and since <= job.started_at <= until
    ]
    return Stats(
        since,
        until,
        processors,
        held / (processors * (until - since)) if processors else 0.0,
        dict(sorted(Counter(job.state for job in ended).items())),
        [*_waits(started, until)],
        dict(sorted(resizes.items())),
        pause_s,
        gained,
        lost,
    )


def _spans(
    changes: Iterable[tuple[float, int]], since: float, until: float
) -> Iterator[tuple[float, float, int]]:
    """Yield begin, end and value of each span of a value that changes, within a time."""
    last: tuple[float, int] | None = None
    for at, value in [*changes, (until, 0)]:
        if last is not None:
            begin, end = max(last[0], since), min(at, until)
            if begin < end:
                yield begin, end, last[1]
        last = at, value


def _waits(jobs: Sequence[JobInfo], now: float) -> Iterator[ClassWaits]:
    least = 0
    for name, most in CLASSES:
        waits = [waited_s(job, now) for job in jobs if least < job.requested <= most]
        least = most
        if waits:
            yield ClassWaits(name, len(waits), fmean(waits), median(waits), max(waits))


def stats_text(stats: Stats) -> str:
    """Write statistics for people."""
    lines = {
        "Time": f"{format_moment(stats.since)} to {format_moment(stats.until)}",
        "Utilisation": f"{100 * stats.utilization:.1f} % of {stats.processors} processors",
        "Ended": ", ".join(f"{count} {state}" for state, count in stats.states.items()) or "-",
        "Resizes": ", ".join(f"{count} {kind}" for kind, count in stats.resizes.items()) or "-",
        "Pauses": f"{stats.pause_s:.1f} s",
        "Gained": counted(round(stats.gained), "processor-second"),
        "Lost": counted(round(stats.lost), "processor-second"),
    }
    text = labelled(lines)
    rows = [
        (wait.processors, str(wait.jobs), *map(format_time, (wait.mean_s, wait.median_s)),
         format_time(wait.longest_s))
        for wait in stats.waits
    ]  # fmt: skip
    heads = ("PROCS", "STARTED", "MEAN WAIT", "MEDIAN", "LONGEST")
    return f"{text}\n\n{render(Table(heads, rows))}" if rows else text
