"""Steps of job scripts: which have not ended, and which processors of their jobs are idle.

The first group of a step is lent: its processors are among those that the step's job was granted,
and remain allocated to the job. The step gives them back at its end without a release. What a step
has beyond its first group is its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.model.job import PENDING, Job
from scheduler.model.orders import Facts, Reason
from scheduler.model.procset import ProcSet


class Steps:
    """The steps of a partition that have not ended.

    Attributes
    ----------
    by_job : job number -> its steps by number; a job without such steps is not among the keys.
    """

    def __init__(self) -> None:
        self.by_job: dict[int, dict[int, Job]] = {}

    def add(self, step: Job) -> None:
        """Note a step."""
        self.by_job.setdefault(_job_of(step), {})[step.id] = step

    def remove(self, step: Job) -> None:
        """Forget a step that has ended."""
        steps = self.by_job[_job_of(step)]
        del steps[step.id]
        if not steps:
            del self.by_job[_job_of(step)]

    def of(self, job: int) -> list[Job]:
        """Steps of a job that have not ended, in the order of their requests."""
        return list(self.by_job.get(job, {}).values())

    def waiting(self, job: int) -> list[Job]:
        """Steps of a job that wait for processors, in the order of their requests."""
        return [step for step in self.of(job) if step.state is PENDING]

    def idle(self, job: Job) -> ProcSet:
        """Processors that a job was granted and that no step of it has."""
        granted = ProcSet.union(job.groups.values())
        return granted - ProcSet.union(lent_group(step) for step in self.of(job.id))

    def held(self, job: Job) -> ProcSet:
        """Processors that a job and its steps hold."""
        groups: Iterable[ProcSet] = job.groups.values()
        if job.id in self.by_job:
            groups = [held for each in (job, *self.of(job.id)) for held in each.groups.values()]
        return ProcSet.union(groups)

    def reason(self, step: Job, job: Job) -> Reason:
        """Why a step waits."""
        facts: Facts = {
            **{"needed": step.processors, "idle": self.idle(job).count(), "job": job.id},
            "granted": sum(map(len, job.groups.values())),
        }
        text = "{needed} processors wanted, job {job} has {idle} idle of {granted}"
        return Reason("Step", text, facts)


def lent_group(step: Job) -> ProcSet:
    """Processors that a step has from its job; none if it waits, or if the job has ended."""
    return next(iter(step.groups.values())) if step.is_lent and step.groups else ProcSet()


def _job_of(step: Job) -> int:
    assert step.spec.step_of is not None
    return step.spec.step_of.job
