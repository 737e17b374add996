"""Progress of a study on stderr: a bar on a terminal, else a line every 30 s."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from scheduler.text.formats import counted, format_time

PLAIN_EVERY_S = 30.0


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
        self._next = self._begin + PLAIN_EVERY_S
        self._bar: Bar | None = None
        if console.is_terminal:
            name = TextColumn("{task.description}", markup=False)
            left = TextColumn("{task.fields[left]}")
            self._bar = Bar(name, BarColumn(), MofNCompleteColumn(), left, console=console)
            self._task = self._bar.add_task(title, total=runs, completed=before, left="")

    def __enter__(self) -> StudyProgress:
        """Start the display."""
        if self._bar is not None:
            self._bar.start()
        else:
            known = f", {self._before} of them done before" if self._before else ""
            self._line(f"{counted(self._runs, 'run')}{known}")
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
            self._next = time.monotonic() + PLAIN_EVERY_S
            self._line(f"{self._done} of {counted(self._runs, 'run')} done, {self._left()}")

    def _left(self) -> str:
        passed = time.monotonic() - self._begin
        left_s = passed / (self._done - self._before) * (self._runs - self._done)
        return f"about {format_time(round(left_s))} left"

    def _line(self, text: str) -> None:
        self._console.print(f"{self._title}: {text}", highlight=False, soft_wrap=True, markup=False)
