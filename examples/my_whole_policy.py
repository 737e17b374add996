"""A policy that decides on starts, with sizes, and on resizes, in one file: a rival of `malleable`.

    python examples/my_whole_policy.py                                          # simulate it
    PYTHONPATH=examples reshape serve --scenario my_whole_policy:EqualParts     # run jobs under it
    cd examples; reshape simulate trace.swf --policy my_whole_policy:EqualParts --resizable 0.5

Each part is what the machine has for one job if all jobs get the same.
"""

from __future__ import annotations

from math import inf

import msgspec

from scheduler.policies.api import CurrentPass, Decision, Grow, JobView, Reason, Shrink, Stay, View


class EqualParts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All jobs get the same number of processors as far as their minima and maxima allow.

    Parameters
    ----------
    ahead : queued jobs that running ones contract for at a time.
    """

    ahead: int = 4

    def __post_init__(self) -> None:
        """Check the parameters; users of the policy read this message."""
        if self.ahead < 1:
            raise ValueError(f"ahead must be >= 1, got {self.ahead}")

    def schedule(self, current: CurrentPass) -> None:
        """Start jobs in queue order on what is free; name those that contractions are for."""
        waiting = 0
        for job in current.queue:
            size = job.starts_on(current.free) if not waiting else None
            if size is not None and current.start(job, None, size):
                continue
            current.expect(job, inf)
            waiting += 1
            if waiting == self.ahead:
                break

    def decide(self, job: JobView, view: View) -> Decision:
        """Contract to an equal part if a job waits, and expand if none does."""
        part = view.once(_equal_part)
        facts = {"size": job.size, "part": part, "waiting": len(view.expected)}
        if view.expected and job.size > part:
            to = job.contracts_to(max(part, job.least))
            if to is not None and to < job.size:
                return Shrink(to, Reason("equal parts", "{waiting} wait, a part is {part}", facts))
        if not view.expected and job.history.settled >= 1:
            to = job.valid_up_to(job.size + view.free_for(job))
            if to is not None and to > job.size:
                return Grow(to, Reason("equal parts", "no job waits", facts))
        return Stay(Reason("equal parts", "keep {size}, a part is {part}", facts))


def _equal_part(view: View) -> int:
    """Processors of each job that runs or is named; the same until the state changes."""
    return max(1, view.processors // (len(view.running) + len(view.expected)))


def simulate() -> None:
    """Compare the policy with built-in scenarios on a model of a workload."""
    import simulator as sim

    jobs = sim.Jobs.drawn("lublin", jobs=400, processors=64, load=0.8)
    jobs = jobs.with_resizable(speedup="amdahl:serial=0.02", iterations=100, expand_least=0.25)
    print("scenario                    mean turnaround s  mean wait s  resizes of a job")
    for name in ("easy", "my_whole_policy:EqualParts", "malleable"):
        metrics = sim.simulate(jobs, processors=64, scenario=name, seed=1).metrics
        resizes = (metrics["expansions"] + metrics["contractions"]) / metrics["jobs"]
        print(
            f"{name:26} {metrics['mean_turnaround_s']:18.0f} {metrics['mean_wait_s']:12.0f}"
            f" {resizes:17.1f}"
        )


if __name__ == "__main__":
    simulate()
