"""A user-defined resizing policy in one file, for the live service and the simulator.

    python examples/my_policy.py                                          # simulate it
    PYTHONPATH=examples reshape serve --scenario my_policy:Patient        # run jobs under it
    PYTHONPATH=examples reshape serve --scenario my_policy:Patient --set resizing.reserve=2

An installed package registers it under a name, here `--scenario patient`, with an entry point:

    [project.entry-points."reshape.policies"]
    patient = "my_policy:Patient"
"""

from __future__ import annotations

import msgspec

from scheduler.policies.api import Decision, Grow, JobView, Reason, Shrink, Stay, View


class Patient(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Grow while no job is queued; shrink if the first queued job can start as a result.

    Parameters
    ----------
    reserve : processors to leave idle for jobs that arrive later.
    """

    reserve: int = 0

    def __post_init__(self) -> None:
        """Check the parameter; users of the policy read this message."""
        if self.reserve < 0:
            raise ValueError(f"reserve must be >= 0, got {self.reserve}")

    def decide(self, job: JobView, view: View) -> Decision:
        """Decide on a job at its resize point."""
        if view.head is not None:
            return self.make_room(job, view.head, view)
        to, idle = view.next_larger(job), view.free - self.reserve
        facts = {"free": view.free, "reserve": self.reserve, "size": job.size}
        if to is None or to - job.size > idle or job.history.benefited() is False:
            text = "{free} processors idle, {reserve} of them reserved: stays at {size}"
            return Stay(Reason("Patient", text, facts))
        return Grow(to, Reason("Patient", "no job is queued and {free} processors are idle", facts))

    def make_room(self, job: JobView, head: JobView, view: View) -> Decision:
        """Contract the job to its starting size if the first queued job can start as a result."""
        start, coming = job.spec.processors, view.free + view.freeing
        facts = {"head": head.id, "needed": head.spec.processors, "coming": coming}
        short = head.spec.processors - coming
        if start in job.history.contractions() and 0 < short <= job.size - start:
            text = "job {head} requests {needed} processors, {coming} are free or will be released"
            return Shrink(start, Reason("Patient", text, facts))
        return Stay(Reason("Patient", "job {head} waits for {needed} processors", facts))


def simulate(jobs: int = 60) -> None:
    """Compare the policy with the static baseline on a mix of resizable jobs."""
    import simulator as sim

    mix = sim.Jobs.drawn("prio", jobs=jobs)
    print("scenario           completion s  execution s  utilisation")
    for name in ("static", "my_policy:Patient"):
        metrics = sim.simulate(mix, processors=400, scenario=name, seed=1).metrics
        print(
            f"{name:18} {metrics['mean_turnaround_s']:12.1f} {metrics['mean_execution_s']:12.1f}"
            f" {metrics['utilization']:12.3f}"
        )


if __name__ == "__main__":
    simulate()
