"""Job startup: starts and ends the processes of jobs (PRIO 2, Job Startup).

Commands are not queued. For every job the groups in the core's state are compared with those that
the agents report; missing groups are started, surplus groups are ended. A command that was lost
with a service, an agent or a message is therefore sent again.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from reshape.wire import messages as m
from scheduler.model.job import FINAL, Job, JobState
from scheduler.node.directory import ServiceDirectory
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.service.record.descriptions import output_path
from scheduler.sites.site import Site

log = logging.getLogger(__name__)

#: Seconds after which a command is repeated if the agent does not report its effect.
REPEAT_S = 3.0
#: Variables of a job that its submission may set otherwise. Each rank has one processor, so a BLAS
#: with a thread per core would oversubscribe them. UCX warns of requests that a group leaves behind
#: when it disconnects from another host, which does no harm.
DEFAULTS = {"OMP_NUM_THREADS": "1", "UCX_LOG_LEVEL": "error"}
#: Seconds from SIGTERM to SIGKILL.
GRACE_S = 2.0


@dataclass
class Launch:
    """How a job is started: its submission, and the token that its processes send."""

    submission: m.Submission
    token: str


class JobStartup:
    """Makes the groups of every job those that the core has.

    Parameters
    ----------
    launches : job number -> how the job is started.
    """

    def __init__(
        self,
        core: Site,
        monitor: SystemMonitor,
        directory: ServiceDirectory,
        launches: dict[int, Launch],
    ) -> None:
        self._core, self._monitor, self._directory = core, monitor, directory
        self._launches = launches
        # A process of a job finds the same path on every host.
        remote = any(map(monitor.is_remote, monitor.nodes))
        self._server = str(directory.job_access) if remote else directory.endpoint
        self._sent_at: dict[tuple[str, int, int], float] = {}  # command and group -> monotonic s

    def node_of(self, job: Job, group: int) -> str:
        """Return the node whose agent starts and watches a group: that of its first processor."""
        return next(iter(self._core.machine.by_node(job.groups[group])))

    def status(self, job: Job, group: int) -> m.GroupStatus | None:
        """Return the status of a group, None if its agent does not report it."""
        return self._monitor.status(self.node_of(job, group), job.id, group)

    def arrange(self, job: Job) -> bool:
        """Start the groups of a job that do not run, and end those that it does not have.

        Returns
        -------
        whether exactly the groups of the job run, and no start or end is under way.
        """
        if job.state in FINAL:
            self.remove_remains(job.id, job.why)
            return self.is_removed(job.id)
        wanted = {} if job.state is JobState.COMPLETING else job.groups
        known = self._monitor.statuses(job.id)
        before = [(node, status) for node, status in known if status.group < job.first_group]
        # A second life begins when every agent has removed what the first one left.
        for group in wanted if not before else ():
            joins = job.resize is not None and job.resize.group == group
            if (job.state is JobState.STARTING or joins) and self.status(job, group) is None:
                self._start(job, group, "join" if joins else "first")
        for node, status in known:
            if status.alive and status.group not in wanted:
                self.kill(
                    node,
                    job.id,
                    status.group,
                    job.why or "the job does not have this group any more",
                )
        self._sweep(job.id, {node for node, _ in before}, known)
        if job.state is not JobState.RUNNING:
            return not known and job.state is JobState.PENDING
        if not before:
            self._forget_ended(job, known)
        alive = {status.group for _, status in known if status.alive}
        return alive == job.groups.keys() and len(known) == len(alive)

    def remove_remains(self, job: int, why: str = "") -> None:
        """End what an ended job still runs, and let the agents remove what it left."""
        known = self._monitor.statuses(job)
        for node, status in known:
            if status.alive:
                why = why or "the job does not have this group any more"
                self.kill(node, job, status.group, why)
        # A new agent reports what the agent before it has left.
        nodes = {node for node, _ in known} | set(self._monitor.nodes_with_folder(job))
        self._sweep(job, nodes, known)

    def _sweep(self, job: int, nodes: set[str], known: list[tuple[str, m.GroupStatus]]) -> None:
        if nodes and not any(status.alive for _, status in known):
            for node in sorted(nodes):
                self._command(node, job, -1, m.SweepJob(job=job))

    def is_removed(self, job: int) -> bool:
        """Whether no agent reports a process or a folder of a job."""
        return not self._monitor.statuses(job) and not self._monitor.nodes_with_folder(job)

    def _forget_ended(self, job: Job, known: list[tuple[str, m.GroupStatus]]) -> None:
        """Let agents drop the groups that left in earlier resizes, so that reports stay short."""
        ended: dict[str, list[int]] = {}
        for node, status in known:
            if not status.alive and status.group not in job.groups:
                ended.setdefault(node, []).append(status.group)
        for node, groups in ended.items():
            self._command(node, job.id, -1, m.ForgetGroups(job=job.id, groups=groups))

    def kill(self, node: str, job: int, group: int, why: str, grace_s: float = GRACE_S) -> None:
        """Let an agent end a group; without grace mpiexec prints no error message either."""
        self._command(node, job, group, m.KillGroup(job=job, group=group, grace_s=grace_s, why=why))

    def let_end(self, job: Job, group: int) -> None:
        """Give a group that has been told to end `REPEAT_S` to do so before it is killed."""
        self._sent_at[f"{self.node_of(job, group)} KillGroup", job.id, group] = time.monotonic()

    def kill_all(self, job: Job, why: str) -> None:
        """Let the agents end every group of a job."""
        for node, status in self._monitor.statuses(job.id):
            if status.alive:
                self.kill(node, job.id, status.group, why)

    def environment(self, job: int) -> dict[str, str]:
        """Return the environment a job was submitted with."""
        return dict(self._launches[job].submission.environment)

    def _start(self, job: Job, group: int, role: str) -> None:
        for key in [key for key in self._sent_at if key[1:] == (job.id, -1)]:
            del self._sent_at[key]  # what this life leaves is removed at once, too
        launch = self._launches[job.id]
        world = {}
        if role == "first" and job.restarts:
            role = "restart"
            sizes = (f"{number}:{len(held)}" for number, held in job.groups.items())
            world["RESHAPE_GROUPS"] = " ".join(sizes)
        environment = (
            DEFAULTS
            | self.environment(job.id)
            | {
                "RESHAPE_SERVER": self._server,
                "RESHAPE_JOB": str(job.id),
                "RESHAPE_GROUP": str(group),
                "RESHAPE_TOKEN": launch.token,
                "RESHAPE_SHM": str(self._directory.shm(job.id)),
                "RESHAPE_ROLE": role,
            }
            | world
        )
        order = m.StartGroup(
            job=job.id,
            group=group,
            size=len(job.groups[group]),
            argv=launch.submission.argv,
            cwd=launch.submission.cwd,
            environment=environment,
            output=output_path(job.id, launch.submission),
        )
        self._command(self.node_of(job, group), job.id, group, order)

    def _command(self, node: str, job: int, group: int, message: m.Message) -> None:
        # At most one command of a kind is under way to a group; a kill may follow a start at once.
        key = (f"{node} {type(message).__name__}", job, group)
        now = time.monotonic()
        if now - self._sent_at.get(key, -REPEAT_S) >= REPEAT_S:
            self._sent_at[key] = now
            self._monitor.send_to(node, message)

    def starts(self, job: Job, group: int) -> bool:
        """Whether a group's start was sent so recently that its agent may not report it yet."""
        key = (f"{self.node_of(job, group)} StartGroup", job.id, group)
        return time.monotonic() - self._sent_at.get(key, -REPEAT_S) < REPEAT_S

    def forget_old(self) -> None:
        """Drop the send times that `_command` does not need any more."""
        now = time.monotonic()
        self._sent_at = {key: at for key, at in self._sent_at.items() if now - at < REPEAT_S}
