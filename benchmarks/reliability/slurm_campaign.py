"""Faults of Slurm in each phase of a resize across the hosts of an elastic pool.

    python benchmarks/reliability/slurm_campaign.py [--rounds controller:both,expiry:left:slurm-2]
        [--node-lost SECONDS] [--out FILE] [--json]

A round has a real Slurm on three hosts of two processors, made of namespaces (root is needed;
`examples/cluster/slurm_cluster.py`), and a service without nodes of its own, whose pool holds all
three hosts by one Slurm job each. A resizable job begins on slurm-1, expands onto slurm-2 and
leaves slurm-1; it verifies all of its data, and is queued again if its processes die. A second job
runs on slurm-3. As soon as the service notes the phase, the fault happens:

    controller    slurmctld is killed, and started again after 15 s
    scancel       the Slurm job of the node is cancelled
    expiry        it is changed to end after 25 s
    late-expiry   it is changed to end after 8 s, of which the service may notice 3 s before

In rounds of the last two faults the job expands and leaves a host all the time, so that its node
expires within a resize in most of them.

The exit code is 0 if, in every round, both jobs complete with a right result, the job on slurm-3 is
not disturbed, the pool gets its nodes again and runs a job on all their processors, no process and
no shared memory of a job is left, and Slurm has no job of the pool any more after its removal; 77
if no Slurm can run here. Rounds that FILE has already are not run again.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from phase_rounds import (
    PATIENCE_S,
    PROCESSORS,
    STEPS,
    SUPPORT,
    Campaign,
    Outcome,
    Round,
    drained,
    outcome_of,
    run_campaign,
    synthetic,
    until_phase,
    wrong_end,
    wrong_next_job,
    wrong_of_job,
    wrong_output,
    wrong_remains,
)
from slurm_cluster import SlurmCluster
from slurm_pool import PoolService

from scheduler.protocol import messages as m

FAULTS = ("controller", "scancel", "expiry", "late-expiry")
#: Seconds from the fault to the new end of a Slurm job.
ENDS_S = {"expiry": 25, "late-expiry": 8}
NODES = ("slurm-1", "slurm-2", "slurm-3")
POOL = {
    "nodes": f"{len(NODES)}-{len(NODES)}",
    "backlog": str(len(NODES)),
    "processors": str(PROCESSORS),
    "time_limit": "20:00",
}
#: Seconds for which slurmctld is away; it saves its state every 5 s.
AWAY_S, SAVED_S = 15.0, 6.0
#: Steps of a job that expands and leaves a host all the time, every third iteration.
RESTLESS = " ".join(f"4 2/{group}" for group in range(1, 16))


def run_round(this: Round, node_lost_s: float) -> Outcome:
    """Run one round with a Slurm and a service of its own."""
    config = f"deadlines: {{node_lost_s: {node_lost_s:g}, heartbeat_s: 0.3, join_s: 5}}"
    options = list(STEPS)
    if this.fault in ENDS_S:
        options += ["--set", f"resizing.steps='{RESTLESS}'", "--set", "resizing.hold=3"]
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="reshape-slurm-rounds-") as folder,
        SlurmCluster(len(NODES), PROCESSORS) as slurm,
        PoolService(
            Path(folder), slurm, POOL, config=config, options=options, policies=SUPPORT
        ) as service,
    ):
        service.add_pool()
        service.until(lambda: service.allocations() == ["running"] * len(NODES), 60.0)
        times = {"walltime_s": 600.0, "processors": PROCESSORS}
        with drained(service, "slurm-1", "slurm-2"):
            sleep = "import time; time.sleep(40); print('right')"
            other = service.submit([sys.executable, "-c", sleep], **times)
            service.until(lambda: service.job(other).state == "RUNNING")
        time.sleep(SAVED_S)
        iterations = 250 if this.fault in ENDS_S else 100
        job = service.submit(
            synthetic(iterations), max_processors=2 * PROCESSORS, requeue=True, **times
        )
        return outcome_of(service, job, began, _faults_of(service, this, job, other))


def _faults_of(service: PoolService, this: Round, job: int, other: int) -> Iterator[str]:
    """Let the fault of a round happen to its resizable job; yield what goes wrong."""
    slurm = service.slurm
    allocations = {node: each.id for each in service.pool().allocations for node in each.nodes}
    until_phase(service, job, this.phase)
    if this.fault == "controller":
        slurm.stop_controller(kill=True)
        time.sleep(AWAY_S)
        slurm.start_controller()
    elif this.fault == "scancel":
        slurm.run("scancel", allocations[this.host])
    else:
        end = f"EndTime=now+{ENDS_S[this.fault]}"
        slurm.run("scontrol", "update", f"JobId={allocations[this.host]}", end)
    yield from wrong_of_job(service, job, PATIENCE_S)
    yield from wrong_end(service, other, PATIENCE_S)
    yield from wrong_output(service, other, "right")
    yield from wrong_next_job(service, PROCESSORS * len(NODES))
    yield from wrong_remains(service, slurm.names)
    if (state := service.pool()).reason:
        yield f"the pool is {state.state}: {state.reason}"
    service.ask(m.ChangeMachine(change=m.RemovePool("slurm")))
    try:
        service.until(lambda: not _batch_jobs(slurm), 60.0)
    except TimeoutError:
        yield f"Slurm still has: {_batch_jobs(slurm)}"


def _batch_jobs(slurm: SlurmCluster) -> str:
    """Jobs of Slurm that have not ended."""
    states = "--states=PENDING,CONFIGURING,RUNNING,COMPLETING"
    return slurm.run("squeue", "--noheader", states, "--format=%i %j %T").stdout.strip()


def main(words: Sequence[str] | None = None) -> int:
    """Run the rounds and print the table; return the exit code."""
    assert __doc__ is not None
    campaign = Campaign(__doc__, FAULTS, ("controller",), NODES[:2], run_round)
    return run_campaign(campaign, words)


if __name__ == "__main__":
    sys.exit(main())
