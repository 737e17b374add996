"""A user-defined queue order in one file, for the live service and the simulator.

    python examples/my_order.py                                               # simulate it
    cd examples; reshape serve --scenario easy --set order=my_order:SmallestArea
    cd examples; reshape simulate trace.swf --backfill-order my_order:SmallestArea

An installed package registers it under a name, here `--queue-order area`, with an entry point:

    [project.entry-points."reshape.policies"]
    area = "my_order:SmallestArea"
"""

from __future__ import annotations

import msgspec

from scheduler.policies.api import JobView, QueueOrder


class SmallestArea(QueueOrder, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs with the fewest processor-seconds first; a long wait counts like a smaller job.

    Parameters
    ----------
    patience_s : a job that has waited so long is before all jobs that have not, s.
    """

    #: Whether keys change with time: a job becomes urgent while it waits.
    ages = True
    #: Jobs of equal requests keep the order in which they came, which makes long queues faster.
    keeps_alike = True

    patience_s: float = 4 * 3600.0

    def __post_init__(self) -> None:
        """Check the parameter; users of the order read this message."""
        if not self.patience_s > 0:
            raise ValueError(f"patience_s must be > 0, got {self.patience_s}")

    def key(self, job: JobView, now: float) -> tuple[bool, float, float]:
        """Sort key of a queued job at a time (s); the job with the smallest one is the first."""
        has_waited = now - job.queued_at >= self.patience_s
        area = 0.0 if has_waited else job.processors * job.estimate_s
        return not has_waited, area, job.queued_at


def simulate(jobs: int = 1000) -> None:
    """Compare the order with others on a workload of rigid jobs, under EASY."""
    import numpy as np

    import simulator as sim

    rng = np.random.default_rng(1)
    arrivals = np.cumsum(rng.exponential(220.0, jobs))
    sizes, run_s = 2 ** rng.integers(0, 6, jobs), rng.exponential(2400.0, jobs)
    workload = sim.Jobs(submit_s=arrivals, processors=sizes, run_s=run_s, walltime_s=1.5 * run_s)
    print("order                  mean wait s  longest wait s  mean bounded slowdown")
    for name in ("fcfs", "sjf", "my_order:SmallestArea"):
        metrics = sim.simulate(workload, processors=128, scenario="easy", queue_order=name).metrics
        print(
            f"{name:22} {metrics['mean_wait_s']:11.0f} {metrics['max_wait_s']:15.0f}"
            f" {metrics['mean_bounded_slowdown']:22.2f}"
        )


if __name__ == "__main__":
    simulate()
