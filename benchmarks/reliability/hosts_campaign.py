"""Faults of hosts in each phase of a resize across hosts.

    python benchmarks/reliability/hosts_campaign.py [--rounds cut-6:joining:n2,service:both]
        [--node-lost SECONDS] [--parallel 2] [--out FILE] [--json]

A round has a real service and three hosts of two processors, made of namespaces
(`examples/cluster/hosts.py`; root is needed). A job begins on n1, expands onto n2 and leaves n1; it
verifies all of its data, and is queued again if its processes die. A second job runs on n3. As soon
as the service notes the phase, the fault happens:

    cut-S         the host is cut from the network for S seconds
    agent         the agent of the host is killed, and started again after a second
    host          the host is killed
    service       the service is killed, and started again after a second
    service+agent both are killed, and started again after a second, the agent first

The exit code is 0 if, in every round, both jobs complete with a right result, the job on n3 is not
disturbed, the remaining hosts run a job on all their processors afterwards, and no process and no
shared memory of a job is left; 77 if such hosts cannot be made. Rounds that FILE has already are
not run again.
"""

from __future__ import annotations

import os
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
    Cluster,
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

from scheduler.protocol import messages as m

FAULTS = ("cut-5", "cut-30", "cut-120", "agent", "host", "service", "service+agent")


def run_round(this: Round, node_lost_s: float) -> Outcome:
    """Run one round with a service of its own."""
    config = f"deadlines: {{node_lost_s: {node_lost_s:g}, heartbeat_s: 0.3, join_s: 5}}"
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="reshape-hosts-") as folder,
        Cluster(Path(folder), 3, PROCESSORS, config, STEPS, policies=SUPPORT) as cluster,
    ):
        sleep = f"import time; time.sleep({12 + this.cut_s}); print('right')"
        with drained(cluster, "n1", "n2"):
            other = cluster.submit([sys.executable, "-c", sleep], PROCESSORS)
            cluster.until(lambda: cluster.job(other).state == "RUNNING")
        size = {"processors": PROCESSORS, "max_processors": 2 * PROCESSORS}
        job = cluster.submit(synthetic(100), requeue=True, **size)
        return outcome_of(cluster, job, began, _faults_of(cluster, this, job, other))


def _faults_of(cluster: Cluster, this: Round, job: int, other: int) -> Iterator[str]:
    """Let the fault of a round happen to its resizable job; yield what goes wrong."""
    answer = cluster.ask(m.ServerInfo())
    assert isinstance(answer, m.Info)
    until_phase(cluster, job, this.phase)
    _strike(cluster, this, answer.pid)
    yield from wrong_of_job(cluster, job, PATIENCE_S + this.cut_s)
    yield from wrong_end(cluster, other, PATIENCE_S + this.cut_s)
    yield from wrong_output(cluster, other, "right")
    names = [name for name in cluster.names if this.fault != "host" or name != this.host]
    try:
        cluster.until(lambda: all(cluster.nodes()[name] == "up" for name in names), 60.0)
    except TimeoutError:
        yield f"not up again: {cluster.nodes()}"
        return
    yield from wrong_next_job(cluster, PROCESSORS * len(names))
    yield from wrong_remains(cluster, names)


def _strike(cluster: Cluster, this: Round, service: int) -> None:
    """Let the fault of a round happen."""
    hits = this.fault.split("+")
    if "service" in hits or "agent" in hits:
        if "service" in hits:
            os.kill(service, 9)
        if "agent" in hits:
            cluster.kill_agent(this.host)
        time.sleep(1)
        if "agent" in hits:
            cluster.start_agent(this.host)
        if "service" in hits:
            cluster.start_service()
    elif this.fault == "host":
        cluster.hosts[this.host].kill()
    else:
        cluster.hosts.cut(this.host)
        time.sleep(this.cut_s)
        cluster.hosts.join(this.host)


def main(words: Sequence[str] | None = None) -> int:
    """Run the rounds and print the table; return the exit code."""
    assert __doc__ is not None
    campaign = Campaign(__doc__, FAULTS, ("service",), ("n1", "n2"), run_round)
    return run_campaign(campaign, words)


if __name__ == "__main__":
    sys.exit(main())
