"""What is known of a job and its user at submission: the features of an online regression.

Gaussier, Glesser, Reis and Trystram, Improving backfilling by using machine learning to predict
running times, SC 2015, table 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import cos, pi, sin
from typing import Any, Final

import msgspec

from scheduler.model.job import Job

#: Names of the features, in the order of `UserHistories.features`.
FEATURES: Final = (
    "walltime", "last_run", "second_last_run", "third_last_run", "mean_of_two", "mean_of_three",
    "mean_run", "processors", "mean_processors", "processors_to_mean", "running_mean_processors",
    "running_jobs", "running_processors", "longest_running", "sum_running", "since_last_end",
    "cos_day", "sin_day", "cos_week", "sin_week",
)  # fmt: skip
DAY_S: Final = 86400.0
WEEK_S: Final = 7 * DAY_S
_LAST: Final = 3


class UserHistory(msgspec.Struct):
    """What is kept of the jobs of a user.

    Parameters
    ----------
    last_s : run times of the last three ended jobs, the latest first, s.
    run_s, processors, jobs : sums over the ended jobs, and their number.
    ended_at : end of the last one, s.
    running : job -> (start in s, processors).
    """

    last_s: list[float] = []
    run_s: float = 0.0
    processors: int = 0
    jobs: int = 0
    ended_at: float = 0.0
    running: dict[int, tuple[float, int]] = {}


class UserHistories:
    """Histories of all users; unknown users share one."""

    def __init__(self) -> None:
        self._of: dict[str, UserHistory] = {}

    def started(self, job: Job, at: float) -> None:
        """Note the start of a job."""
        self._of.setdefault(job.spec.user, UserHistory()).running[job.id] = at, job.spec.processors

    def ended(self, job: Job, at: float, run_s: float | None) -> None:
        """Note the end of a job, with its run time; None if it never ran."""
        history = self._of.setdefault(job.spec.user, UserHistory())
        history.running.pop(job.id, None)
        if run_s is None:
            return
        history.last_s = [run_s, *history.last_s][:_LAST]
        history.run_s += run_s
        history.processors += job.spec.processors
        history.jobs += 1
        history.ended_at = at

    def features(self, job: Job, longest_s: float) -> list[float]:
        """Return the features of a job at its submission.

        Where the user has too few ended jobs, the walltime stands for a run time.

        Parameters
        ----------
        longest_s : longer walltimes count as this, s.
        """
        history = self._of.get(job.spec.user, UserHistory())
        now, size = job.submitted_at, float(job.spec.processors)
        walltime_s = min(job.spec.walltime_s, longest_s)
        last = history.last_s[:]
        first, second, third = (last + [walltime_s] * _LAST)[:_LAST]
        mean_size = history.processors / history.jobs if history.jobs else size
        running = [(now - at, held) for at, held in history.running.values()]
        held = float(sum(held for _, held in running))
        times = [seconds for seconds, _ in running]
        day, week = 2 * pi * (now % DAY_S) / DAY_S, 2 * pi * (now % WEEK_S) / WEEK_S
        return [
            walltime_s,
            first,
            second,
            third,
            _mean(last[:2], walltime_s),
            _mean(last, walltime_s),
            history.run_s / history.jobs if history.jobs else walltime_s,
            size,
            mean_size,
            size / mean_size,
            held / len(running) if running else 0.0,
            float(len(running)),
            held,
            max(times, default=0.0),
            sum(times),
            now - history.ended_at if history.jobs else 0.0,
            cos(day),
            sin(day),
            cos(week),
            sin(week),
        ]

    def learned(self) -> dict[str, Any]:
        """Return the histories as data that JSON can hold."""
        return {
            user: msgspec.to_builtins(history, str_keys=True) for user, history in self._of.items()
        }

    def relearn(self, learned: Mapping[str, Any]) -> None:
        """Take over what `learned` returned."""
        self._of = {
            user: msgspec.convert(each, UserHistory, strict=False) for user, each in learned.items()
        }


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
