"""Warm-up and cool-down: what of a run the metrics leave out.

A simulation begins on an empty machine and ends with a queue that only becomes shorter. Neither is
the state that a study is about, so that results are taken from a window of the submissions. Jobs
that are submitted before or after it run, and keep processors from the others, but count in no
mean.
"""

from __future__ import annotations

import msgspec
import numpy as np

from reshape.errors import ConfigError
from simulator.results.held import held_sizes
from simulator.results.metrics import Metrics, metrics_of
from simulator.results.schedule import Schedule


class Window(msgspec.Struct, frozen=True):
    """Submissions that count.

    Parameters
    ----------
    warm_up_s : time from the first submission to the begin of the window, s.
    cool_down_s : time from its end to the last submission, s.
    """

    warm_up_s: float = 0.0
    cool_down_s: float = 0.0

    def metrics(self, schedule: Schedule, tau: float) -> tuple[Metrics, int]:
        """Compute the metrics of the jobs that are submitted in the window.

        Utilisation is that of the window: of the processor-seconds installed from its begin to its
        end, those that jobs held, whenever these were submitted.

        Parameters
        ----------
        tau : see `Schedule.metrics`.

        Returns
        -------
        the metrics, and the number of jobs that are left out.

        Raises
        ------
        ConfigError : the window is empty, or no job is submitted in it.
        """
        submitted = schedule.jobs.submitted
        first, last = float(submitted.min()), float(submitted.max())
        begin, end = first + self.warm_up_s, last - self.cool_down_s
        inside = (submitted >= begin) & (submitted <= end)
        if not (begin < end and inside.any()):
            raise ConfigError(
                "warm-up and cool-down leave out all jobs, which are submitted within"
                f" {last - first:g} s; make them shorter",
                field="warm_up_s" if self.warm_up_s else "cool_down_s",
            )
        counted = inside & schedule.ran
        redirected = [run for run in schedule.redirected if counted[run[0] - 1]]
        sizes = schedule.sizes or {}
        metrics = metrics_of(
            submitted[counted],
            schedule.started[counted],
            schedule.ended[counted],
            processors=schedule.processors,
            held_s=0.0,
            tau=tau,
            unstarted=int((inside & ~schedule.ran).sum()),
            killed=int(schedule.killed[counted].sum()),
            redirected=len(redirected),
            lost_processor_s=sum(
                int(schedule.jobs.processors[job - 1]) * (end - start)
                for job, start, end in redirected
            ),
            sizes=[held for job, held in sizes.items() if counted[job - 1]],
        )
        used = _held_s(schedule, begin, end) / (schedule.processors * (end - begin))
        return msgspec.structs.replace(metrics, utilization=used), int((~inside).sum())


def _held_s(schedule: Schedule, begin: float, end: float) -> float:
    """Processor-seconds that jobs hold in a span of time."""
    held = held_sizes(schedule)
    inside = np.minimum(held.end, end) - np.maximum(held.begin, begin)
    return float((np.maximum(inside, 0.0) * held.processors).sum())
