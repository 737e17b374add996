"""Progress of a run: a live table on a terminal, otherwise one line every few seconds."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from scheduler.client.tables import running_s, sizes_text
from scheduler.model.procset import ProcSet
from scheduler.protocol.messages import JobInfo, JobListing

PLAIN_EVERY_S = 5.0


class RunProgress:
    """Display the progress of a run; a context manager.

    Parameters
    ----------
    console : console to write to.
    title : name of the run.
    processors : number of processors of the machine.
    """

    def __init__(self, console: Console, title: str, processors: int) -> None:
        self._console, self._title, self._processors = console, title, processors
        self._next = 0.0
        self._live = (
            Live(console=console, transient=True, auto_refresh=False)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> RunProgress:
        """Start the live display."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the live display."""
        if self._live is not None:
            self._live.stop()

    def __call__(self, passed: float, listing: JobListing, coming: int) -> None:
        """Show the current state.

        Parameters
        ----------
        passed : seconds since the start of the run.
        listing : all jobs submitted so far.
        coming : number of jobs still to submit.
        """
        jobs = listing.jobs
        running = [job for job in jobs if job.started_at is not None and job.ended_at is None]
        ended = sum(job.ended_at is not None for job in jobs)
        waiting = len(jobs) - len(running) - ended
        busy = sum(len(ProcSet.parse(job.processors)) for job in running)
        line = (
            f"{self._title}  {passed:5.1f} s  {busy}/{self._processors} processors busy  "
            f"{len(running)} running, {waiting} waiting, {coming} to submit, {ended} ended"
        )
        if self._live is not None:
            table = _table(running, listing.now, self._processors)
            self._live.update(Group(Text(line, style="bold"), table), refresh=True)
        elif passed >= self._next:
            self._next = passed + PLAIN_EVERY_S
            sizes = "  ".join(f"{job.job}:{job.size}@{job.iteration}" for job in running)
            self._console.print(f"{line}  {sizes}".rstrip(), highlight=False, soft_wrap=True)


def _table(running: list[JobInfo], now: float, processors: int) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("JOB", "NAME", "ST", "TIME", "ITERATION", "SIZES"):
        table.add_column(
            heading, justify="right" if heading in ("JOB", "TIME", "ITERATION") else "left"
        )
    table.add_column("PROCESSORS", min_width=processors)
    for job in running:
        held = ProcSet.parse(job.processors)
        table.add_row(
            str(job.job),
            job.name,
            job.code,
            f"{running_s(job, now):.0f} s",
            str(job.iteration),
            sizes_text(job),
            "".join("█" if number in held else "·" for number in range(processors)),
        )
    return table
