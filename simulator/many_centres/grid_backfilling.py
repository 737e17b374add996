"""Grid-Backfilling: one queue and one backfilling for all centres (GUIM chapter 9).

A centralised model for comparison: the centres have no queues. One core has the processors of all
centres, numbered centre by centre, and its processor selection keeps a job within one centre. The
head of the queue has a reservation at the centre where it can start first; other jobs may start
anywhere before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

from scheduler.model.events import Event
from scheduler.model.interfaces import Selection
from scheduler.model.job import Job
from scheduler.model.job_view import original
from scheduler.model.machine import Machine
from scheduler.model.orders import Order, Start
from scheduler.model.procset import ProcSet
from scheduler.model.space import Space
from scheduler.policies.scenario import Scenario
from scheduler.predictions.predictor import Predictor
from scheduler.state.records import copied
from simulator.engine.engine import simulated_core
from simulator.many_centres.rules import CentreDescription


class WithinCentre(Selection, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Select processors of one centre, the first that has enough free ones.

    Parameters
    ----------
    firsts : first processor number of each centre, then the number behind the last one.
    """

    firsts: tuple[int, ...]

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose the lowest free numbers of the first centre that has enough."""
        free = space.free
        for first, behind in zip(self.firsts, self.firsts[1:], strict=False):
            if behind - first >= processors:
                part = free.between(first, behind - 1)
                if part.count() >= processors:
                    return part.first(processors)
        return None


class OnFactorOne(Predictor):
    """Predictor that learns run times as they would be on CPU factor 1, for one core.

    Parameters
    ----------
    inner : predicts by what it learns.
    cpu_factors : job number -> CPU factor of its centre, where it is not 1.
    """

    def __init__(self, inner: Predictor, cpu_factors: Mapping[int, float]) -> None:
        self._inner, self._cpu_factors = inner, cpu_factors
        self.beyond_walltime, self.deadlines = inner.beyond_walltime, inner.deadlines

    def predictor(self) -> Predictor:
        """Predictor of the core: this one, which has not learned yet."""
        return self

    def predict(self, job: Job) -> float:
        """Return the prediction, s; the estimate of a job that starts is multiplied later."""
        return self._inner.predict(job)

    def missed(self, job: Job) -> float:
        """Return the next prediction, s; estimate and walltime of the job are those here."""
        return self._inner.missed(job)

    def ended(self, job: Job) -> None:
        """Let the predictor learn the run time on CPU factor 1."""
        factor = self._cpu_factors.get(job.id)
        if factor is not None and job.started_at is not None and job.ended_at is not None:
            ended_at = job.started_at + (job.ended_at - job.started_at) / factor
            job = copied(original(job))
            job.ended_at = ended_at
            shorter_s = job.spec.walltime_s / factor
            job.change_limits(msgspec.structs.replace(job.spec, walltime_s=shorter_s))
        self._inner.ended(job)


class GridBackfilling:
    """All centres under one core, driven as one site.

    Parameters
    ----------
    descriptions : of the centres; their own scenarios are not used.
    scenario : rules of the one core: FCFS or EASY, with any order of backfilling and estimates.
    keep_ended, kill_at_walltime : of the core.

    Attributes
    ----------
    cores : the one core; machine, jobs, live : of it.
    ran_at : job number -> index of the centre at which the job started.
    cpu_factors : job number -> CPU factor of that centre, where it is not 1.
    moved, quotes : 0 and None, as no job waits at a centre, and none is quoted.
    """

    def __init__(
        self,
        descriptions: Sequence[CentreDescription],
        scenario: Scenario,
        *,
        keep_ended: bool = False,
        kill_at_walltime: bool = False,
    ) -> None:
        self._firsts = (0, *accumulate(description.processors for description in descriptions))
        self._factors = [description.cpu_factor for description in descriptions]
        self.cpu_factors: dict[int, float] = {}
        inner = scenario.estimates.predictor()
        self.core = simulated_core(
            msgspec.structs.replace(
                scenario,
                selection=WithinCentre(self._firsts),
                estimates=(
                    scenario.estimates if inner is None else OnFactorOne(inner, self.cpu_factors)
                ),
            ),
            Machine([(description.name, description.processors) for description in descriptions]),
            kill_at_walltime=kill_at_walltime,
            keep_ended=keep_ended,
        )
        self.cores = [self.core]
        self.machine, self.jobs, self.live = self.core.machine, self.core.jobs, self.core.live
        self.ran_at: dict[int, int] = {}
        self.moved, self.quotes = 0, None

    def forget(self, job: int) -> None:
        """Drop the record of a job that has ended."""
        self.core.forget(job)

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Apply the events of one instant and return the orders that follow from them.

        Estimate and walltime of a job that starts are multiplied by the CPU factor of its centre,
        so that later reservations expect its end there.
        """
        orders = self.core.handle(events)
        for order in orders:
            if type(order) is Start:
                first = order.processors.intervals[0][0]
                index = bisect_right(self._firsts, first) - 1
                self.ran_at[order.job] = index
                factor = self._factors[index]
                if factor != 1.0:
                    self.cpu_factors[order.job] = factor
                    job = self.core.live[order.job]
                    longer_s = job.spec.walltime_s * factor
                    job.change_limits(msgspec.structs.replace(job.spec, walltime_s=longer_s))
                    job.estimate_s *= factor
                    job.first_estimate_s *= factor
                    self.core.partitions[0].state.expect(job)
        return orders
