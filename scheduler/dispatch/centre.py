"""A centre: a core with a CPU factor and a price, and its answers to a dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import msgspec

from scheduler.config.centres_file import CentreDescription
from scheduler.core.core import Core
from scheduler.forecasts.expected_start import expected_start, expected_start_of
from scheduler.model.events import JobSpec
from scheduler.model.machine import Machine
from scheduler.policies.assignment.interface import SiteRequest


class Centre:
    """A centre of a simulation: a core on counted processors, asked by dispatchers.

    Parameters
    ----------
    description : of the centre.
    clock : returns the present time, s.
    scale_estimates : multiply estimates by the CPU factor, as run times are.

    Attributes
    ----------
    core : decides for the centre.
    """

    def __init__(
        self,
        description: CentreDescription,
        clock: Callable[[], float],
        *,
        scale_estimates: bool = True,
    ) -> None:
        self.description = description
        self.name = description.name
        self.processors = description.processors
        self.cpu_factor = description.cpu_factor
        self.price = description.price
        self.core = Core(
            description.scenario,
            Machine([(description.name, description.processors)], counted=True),
            kill_at_walltime=False,
            keep_ended=False,
        )
        self._clock = clock
        self._scale = description.cpu_factor if scale_estimates else 1.0
        self._submitted = 0
        self._work: dict[int, float] = {}  # of the queued jobs, processor-seconds
        self._work_sum = 0.0

    # Answers to a dispatcher.

    def submitted(self) -> int:
        """Number of jobs that were submitted so far."""
        return self._submitted

    def queued(self) -> int:
        """Number of queued jobs."""
        return len(self.core.queue.jobs)

    def free(self) -> int:
        """Number of free processors."""
        return self.core.machine.free_count

    def work_left(self) -> float:
        """Processors times estimate, summed over the queued jobs, processor-seconds."""
        return self._work_sum

    def load(self) -> float:
        """Processors that live and queued jobs hold or request, divided by those of the centre."""
        requested = sum(job.processors for job in self.core.queue.jobs.values())
        return (self.processors - self.core.machine.free_count + requested) / self.processors

    def wait_s(self, request: SiteRequest, at_most_s: float = inf) -> float:
        """Wait that the same core predicts by running forward, s; inf beyond `at_most_s`."""
        now = self._clock()
        return expected_start(self.core, now, self.spec(request), now + at_most_s) - now

    def wait_of(self, job: int) -> float:
        """Wait that is left to a queued job, by the same prediction, s."""
        return expected_start_of(self.core, self._clock(), job) - self._clock()

    def spec(self, request: SiteRequest) -> JobSpec:
        """SiteRequest as this centre gets it: the walltime is the expected run time here."""
        spec = request.spec
        walltime_s = request.run_s * self._scale
        if walltime_s == spec.walltime_s:
            return spec
        return msgspec.structs.replace(spec, walltime_s=walltime_s)

    # What happens to its jobs.

    def was_submitted(self, job: int, spec: JobSpec) -> None:
        """Count a job that is about to be submitted."""
        self._submitted += 1
        work = spec.processors * spec.walltime_s
        self._work[job] = work
        self._work_sum += work

    def left_queue(self, job: int) -> None:
        """Note that a job started or was withdrawn."""
        self._work_sum -= self._work.pop(job, 0.0)
        if not self._work:
            self._work_sum = 0.0
