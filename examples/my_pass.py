"""A user-defined scheduling pass in one file, for the live service and the simulator.

    python examples/my_pass.py                                            # simulate it
    PYTHONPATH=examples reshape serve --scenario my_pass:LargestFirst     # run jobs under it
    cd examples; reshape simulate trace.swf --policy my_pass:LargestFirst

An installed package registers it under a name, here `--scenario largest`, with an entry point:

    [project.entry-points."reshape.policies"]
    largest = "my_pass:LargestFirst"
"""

from __future__ import annotations

import msgspec

from scheduler.policies.api import CurrentPass, JobView


class LargestFirst(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs with the most processor-seconds first; some of those that do not fit hold reservations.

    Parameters
    ----------
    reservations : number of jobs that hold one, so that smaller jobs do not delay them.
    patience_s : a job that has waited so long is before all jobs that have not, s.
    """

    reservations: int = 1
    patience_s: float = 24 * 3600.0

    def __post_init__(self) -> None:
        """Check the parameters; users of the pass read this message."""
        if self.reservations < 0:
            raise ValueError(f"reservations must be >= 0, got {self.reservations}")

    def schedule(self, current: CurrentPass) -> None:
        """Start the jobs that fit, and reserve for the first ones that do not."""

        def rank(job: JobView) -> tuple[bool, float]:
            has_waited = current.now - job.submitted_at >= self.patience_s
            return not has_waited, -job.processors * job.estimate_s

        for job in sorted(current.queue, key=rank):
            if not current.start(job) and len(current.reserved) < self.reservations:
                current.reserve(job)


def simulate() -> None:
    """Compare the pass with built-in scenarios on a model of a workload."""
    import simulator as sim

    jobs = sim.Jobs.drawn("lublin", jobs=400, processors=64, load=0.8)
    print("scenario               mean wait s  longest wait s  mean bounded slowdown")
    for name in ("fcfs", "easy", "my_pass:LargestFirst"):
        metrics = sim.simulate(jobs, processors=64, scenario=name, seed=1).metrics
        print(
            f"{name:22} {metrics['mean_wait_s']:11.0f} {metrics['max_wait_s']:15.0f}"
            f" {metrics['mean_bounded_slowdown']:22.2f}"
        )


if __name__ == "__main__":
    simulate()
