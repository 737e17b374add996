"""Progress of the runs of a study, and of one long simulation."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from scheduler.text.formats import counted, format_time

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

#: Simulations that are shorter show nothing, s.
SHOWN_AFTER_S = 3.0
#: Time between two lines where there is no bar, s.
LINE_EVERY_S = 30.0
#: Whether a run of a study is computed; the study shows the progress of all.
is_computing: ContextVar[bool] = ContextVar("is_computing", default=False)


class StudyProgress:
    """Shows the number of finished runs and the time left; a context manager.

    Parameters
    ----------
    before : runs that had finished before.
    runs : all runs of the study.
    """

    def __init__(self, console: Console, title: str, before: int, runs: int) -> None:
        self._console, self._title = console, title
        self._before, self._done, self._runs = before, before, runs
        self._begin = time.monotonic()
        self._next = self._begin + LINE_EVERY_S
        self._bar: Progress | None = None
        if console.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            name = TextColumn("{task.description}", markup=False)
            left = TextColumn("{task.fields[left]}")
            self._bar = Progress(name, BarColumn(), MofNCompleteColumn(), left, console=console)
            self._task = self._bar.add_task(title, total=runs, completed=before, left="")

    def __enter__(self) -> StudyProgress:
        """Start the display."""
        if self._bar is not None:
            self._bar.start()
        else:
            earlier = f", {self._before} of them done before" if self._before else ""
            self._line(f"{counted(self._runs, 'run')}{earlier}")
        return self

    def __exit__(self, *error: object) -> None:
        """Show the final state."""
        if self._bar is not None:
            self._bar.stop()
        else:
            self._line(f"{self._done} of {counted(self._runs, 'run')} done")

    def step(self) -> None:
        """Count a finished run."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, left=self._left())
        elif self._done < self._runs and time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_EVERY_S
            self._line(f"{self._done} of {counted(self._runs, 'run')} done, {self._left()}")

    def _left(self) -> str:
        passed = time.monotonic() - self._begin
        left_s = passed / (self._done - self._before) * (self._runs - self._done)
        return f"about {format_time(round(left_s))} left"

    def _line(self, text: str) -> None:
        self._console.print(f"{self._title}: {text}", highlight=False, soft_wrap=True, markup=False)


class SimulationProgress:
    """Shows which share of the submissions a simulation has come to; a context manager.

    A terminal has a bar, a notebook a line every 30 s; other outputs have nothing but a line if the
    simulation is interrupted.

    Parameters
    ----------
    title : name of the simulation.
    first, last : times of the first and the last submission, s.
    shows : whether to show anything; a run of a study does not.
    console : to write to; None: standard error.
    clock : gives the present time, s.
    """

    def __init__(
        self,
        title: str,
        first: float,
        last: float,
        *,
        shows: bool = True,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._first, self._last = title, first, last
        self._shows = shows and not is_computing.get()
        self._draws = self._shows
        self._console, self._clock = console, clock
        self._begin = self._line_at = clock()
        self._share = 0.0
        self._bar: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> SimulationProgress:
        """Begin."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Remove the bar; tell how far an interrupted simulation was."""
        if self._bar is not None:
            self._bar.stop()
        if kind is KeyboardInterrupt and self._shows:
            passed = self._clock() - self._begin
            text = f"{self._title}: interrupted after {passed:.0f} s, {self._share:.0%} simulated"
            self._say(text)

    def tick(self, now: float) -> None:
        """Note that the simulation has come to a time (s)."""
        span = self._last - self._first
        self._share = min(1.0, (now - self._first) / span) if span > 0 else 1.0
        if self._draws and self._clock() - self._begin >= SHOWN_AFTER_S:
            self._show()

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=round(100 * self._share))
            return
        if self._console is None:
            from rich.console import Console  # late: few simulations are long

            self._console = Console(stderr=True)
        if self._console.is_terminal:
            self._bar = _bar(self._console)
            done = round(100 * self._share)
            self._task = self._bar.add_task(self._title, total=100, completed=done)
            self._bar.start()
        elif not self._console.is_jupyter:
            self._draws = False
        elif self._clock() >= self._line_at:
            self._line_at = self._clock() + LINE_EVERY_S
            self._say(f"{self._title}: {self._share:.0%}")

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr if self._console is None else self._console.file)


def _bar(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    name, share = TextColumn("{task.description}", markup=False), "{task.percentage:>3.0f} %"
    columns = (name, BarColumn(), TextColumn(share), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True)
