"""Progress of one long simulation, and how far it was when it is interrupted."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simulator.study import is_computing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

#: Simulations that are shorter show nothing, s.
SHOWN_AFTER_S = 3.0
#: Time between two lines where there is no bar, s.
LINE_EVERY_S = 30.0


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
