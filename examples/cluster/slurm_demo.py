"""Resizable jobs inside a real Slurm, beside ordinary Slurm jobs: ``make demo-slurm``.

The Slurm has four hosts of four processors, which are namespaces of this machine (`slurm_cluster`).
``reshape serve --slurm`` runs in an allocation of three of them. A job grows from one host onto
another one and leaves the first one. A job that could not end before the end of the allocation
waits. The allocation is cancelled while a job runs; an ordinary Slurm job then gets the hosts. In
the next allocation the service continues: the job that ran restarts from its last checkpoint, and
the one that waited starts. An elastic pool then submits a Slurm job for a job that is too large; a
resizable job expands onto its host and contracts off it before it expires, and the pool gives it
back. Every program verifies its own result.

The last line of the output is JSON: jobs, verified, hosts_used, moved_between_hosts, restarted,
lost, allocations, returned, expired_with_loss. The exit code is 0 if all jobs are verified, 1 if
not, 77 if no Slurm can run here.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from demo import CANNOT_RUN, Demo, program, summary, synthetic, table
from hosts import NoHosts
from slurm_cluster import SlurmCluster
from slurm_service import SlurmService

from scheduler.protocol import messages as m

HOSTS, PROCESSORS = 4, 4
CONFIG = "deadlines: {node_lost_s: 4, heartbeat_s: 0.5}"
_QUEUED_S = 60.0


class OrdinaryJob:
    """A Slurm job that has nothing to do with the service: each task names its host.

    Parameters
    ----------
    nodes : number of nodes, all processors of which it uses.
    seconds : run time.
    """

    def __init__(self, slurm: SlurmCluster, folder: Path, nodes: int, seconds: float) -> None:
        self._slurm, self._nodes = slurm, nodes
        script = f"#!/bin/sh\nsrun hostname\nsleep {seconds}\necho done\n"
        options = [f"--nodes={nodes}", f"--ntasks-per-node={PROCESSORS}", "--exclusive"]
        self._output = folder / f"ordinary-{nodes}.out"
        where = [f"--output={self._output}", f"--chdir={folder}", "--job-name=ordinary"]
        sbatch = ["sbatch", "--parsable", "--time=10", *options, *where]
        self.number = slurm.run(*sbatch, stdin=script).stdout.strip()

    @property
    def state(self) -> str:
        """State in Slurm."""
        return self._slurm.state_of(self.number)

    def wait(self) -> None:
        """Wait for its end.

        Raises
        ------
        TimeoutError : it has not ended in time.
        """
        end = time.monotonic() + _QUEUED_S
        while self.state not in ("COMPLETED", "FAILED", "CANCELLED"):
            if time.monotonic() > end:
                raise TimeoutError(f"ordinary Slurm job {self.number} is {self.state}")
            time.sleep(0.2)

    @property
    def is_verified(self) -> bool:
        """Whether it has ended and has had all processors of its nodes."""
        lines = self._output.read_text().split()
        hosts = {name: lines.count(name) for name in self._slurm.names if name in lines}
        right = list(hosts.values()) == [PROCESSORS] * self._nodes
        return self.state == "COMPLETED" and right and lines[-1] == "done"


class SlurmDemo(Demo):
    """The steps of the demonstration.

    Attributes
    ----------
    cancelled, returned, expired_with_loss : allocations that were cancelled, that were given back,
        and jobs that lost processes by the end of an allocation.
    ended : its jobs, as they were before the last allocation was given back.
    """

    def __init__(self, slurm: SlurmCluster, service: SlurmService, length: float) -> None:
        super().__init__(service, length)
        self.slurm, self.service = slurm, service
        self.ordinary: list[OrdinaryJob] = []
        self.ended: list[m.JobInfo] = []
        self.hosts = service.names
        self.allocations = self.returned = self.expired_with_loss = 0

    def run(self) -> None:
        """Run all steps."""
        self.allocated()
        self.compete(1, 20 * self.length)
        self.move()
        self.cancel_allocation()
        for each in self.ordinary:
            each.wait()
            self.say(f"ordinary Slurm job {each.number}: {each.state}")
        self.continue_queue()
        self.use_pool()
        self.ended = [self.service.job(job) for job in self.jobs]
        self.service.release()  # the service ends with its allocation
        self.returned += 1
        self.say("the allocation is given back")

    def submit(self, argv: list[str], processors: int, sizes: str = "", **more: object) -> int:
        """Submit a job that can end before the end of the allocation, unless `more` says so."""
        return super().submit(argv, processors, sizes, **{"walltime_s": 300.0, **more})

    def allocated(self) -> None:
        """Note that the service has an allocation."""
        self.allocations += 1
        self.say(f"Slurm allocation of {', '.join(self.service.names)}")

    def compete(self, nodes: int, seconds: float) -> OrdinaryJob:
        """Submit an ordinary Slurm job."""
        job = OrdinaryJob(self.slurm, self.service.folder, nodes, seconds)
        self.ordinary.append(job)
        self.say(f"ordinary Slurm job {job.number} of {nodes} nodes is submitted")
        return job

    def cancel_allocation(self) -> None:
        """Cancel the allocation while a job runs, another one waits, and a Slurm job waits."""
        argv = program("jacobi", "--n", "512", "--sweeps", "10", "--checkpoint", "20")
        iterations = ["--iterations", str(round(150 * self.length))]
        running = self.submit(argv + iterations, 4, requeue=True)
        waiting = self.submit(program("lu", "--n", "256", "--block", "32"), 4, walltime_s=900.0)
        larger = self.compete(3, 3.0)
        self.cluster.until(lambda: self.cluster.job(running).iteration >= 25, timeout=60.0)
        self.say(f"job {waiting} waits: {self.cluster.job(waiting).reason}")
        if self.cluster.job(waiting).state != "PENDING" or larger.state != "PENDING":
            raise RuntimeError("a job runs that can only run in the next allocation")
        self.slurm.run("scancel", self.service.allocation)
        self.say("the allocation is cancelled")
        self.service.until_ended()
        self.say("the service has ended with it")
        self.service.release()

    def continue_queue(self) -> None:
        """Continue with the queue in another allocation."""
        self.service.request(nodes=2, time_limit="60")  # long enough for all jobs
        self.service.prepare_hosts()
        self.service.start_service()
        self.allocated()
        for job in self.jobs:
            if self.cluster.job(job).state not in ("COMPLETED", "NODE_FAIL", "FAILED"):
                self.wait(job)

    def use_pool(self) -> None:
        """Let a pool get a node for a job that is too large, and give it back when it expires."""
        options = ["--nodes=0-1", f"--processors={PROCESSORS}", "--time-limit=1:00"]
        options += ["--margin=0:10", "--idle-timeout=0:30", "--hysteresis=0:02"]
        self.reshape("pool", "add", "slurm", *options, "--", "--exclusive")
        growing = self.submit(synthetic(520), 4, "4,12")
        large = self.submit(program("lu", "--n", "256", "--block", "32"), 8, walltime_s=30.0)
        self.cluster.until(lambda: bool(self.pool_nodes()), timeout=60.0)
        (node,) = self.pool_nodes()
        self.hosts = [*self.hosts, node.host]
        allocation = self.pool_allocation()
        self.allocations += 1
        self.say(f"the pool has node {node.name} on {node.host}, Slurm job {allocation}")
        self.wait(large)
        self.until(growing, *self.service.names, node.host)
        self.cluster.until(lambda: self.cluster.job(growing).size == 12, timeout=30.0)
        self.cluster.until(lambda: self.cluster.job(growing).size == PROCESSORS, timeout=90.0)
        self.say(f"job {growing} has left {node.host}, which expires")
        self.cluster.until(lambda: not self.pool_nodes(), timeout=60.0)
        given_back = ("COMPLETED", "CANCELLED")  # and not TIMEOUT
        self.cluster.until(lambda: self.slurm.state_of(allocation) in given_back, timeout=60.0)
        self.returned += 1
        self.say("the pool has given its node back")
        self.expired_with_loss += self.wait(growing).state != "COMPLETED"
        self.reshape("pool", "remove", "slurm")

    def pool_allocation(self) -> str:
        """Id in Slurm of the only allocation of the pool."""
        answer = self.cluster.ask(m.ListMachine(part="pools"))
        assert isinstance(answer, m.PoolList)
        return answer.pools[0].allocations[0].id

    def pool_nodes(self) -> list[m.NodeInfo]:
        """Nodes of the pool that are up."""
        answer = self.cluster.ask(m.ListMachine(part="nodes"))
        assert isinstance(answer, m.Nodes)
        return [node for node in answer.nodes if node.name not in self.service.names and node.host]

    def reshape(self, *words: str) -> None:
        """Run a command of the service."""
        where = ["--dir", str(self.service.directory)]
        command = [sys.executable, "-m", "reshape", *words[:2], *where, *words[2:]]
        self.say(self.slurm.run(*command).stdout.strip())


def main(words: list[str] | None = None) -> int:
    """Run the demonstration; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--length", type=float, default=1.0, help="factor of iterations (1)")
    parser.add_argument("--report", type=Path, help="write a page that shows the jobs to this file")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="reshape-slurm-demo-") as folder:
        try:
            with SlurmCluster(HOSTS, PROCESSORS) as slurm:
                service = SlurmService(Path(folder), slurm, 3, "10", CONFIG, ["--verify"])
                with service:
                    demo = SlurmDemo(slurm, service, options.length)
                    demo.run()
                    jobs = demo.ended
                    if options.report is not None:
                        service.write_report(options.report, "Jobs inside Slurm")
                others = all(each.is_verified for each in demo.ordinary)
        except NoHosts as reason:
            print(f"the demonstration cannot run here: {reason}", file=sys.stderr)
            return CANNOT_RUN
    found = summary(jobs, demo.hosts) | {
        "allocations": demo.allocations,
        "returned": demo.returned,
        "expired_with_loss": demo.expired_with_loss,
    }
    if options.report is not None:
        print(f"Open in a browser: {options.report}")
    print(f"\n{table(jobs, demo.hosts)}\n\n{json.dumps(found)}")
    right = found["verified"] == found["jobs"] and not found["lost"] and others
    return 0 if right and not found["expired_with_loss"] else 1


if __name__ == "__main__":
    sys.exit(main())
