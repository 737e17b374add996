"""Job startup: starts and ends the processes of jobs (PRIO 2, Job Startup).

Commands are not queued. For every job the groups in the core's state are compared with those that
the agents report; missing groups are started, surplus groups are ended. A command that was lost
with a service, an agent or a message is therefore sent again.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Container, Iterable

from msgspec.structs import replace

from reshape.wire.identity import SCRIPT_VARIABLE, STEP_VARIABLE
from scheduler.config.settings import Binding
from scheduler.core.core import Core
from scheduler.journal.descriptions import output_path
from scheduler.journal.journal_format import KeptSubmission, Launch
from scheduler.journal.kept_parts import KeptParts
from scheduler.model.job import FINAL, Job, JobState
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.service.components.agent_reports import SentCommands
from scheduler.service.components.placements import Placements
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.service.components.transactions import KeptJobs

#: Seconds after which a command is repeated if the agent does not report its effect.
REPEAT_S = 3.0
#: Variables of a job that its submission may set otherwise, besides OMP_NUM_THREADS: a BLAS with a
#: thread for each core would oversubscribe the processors of a rank. UCX warns of requests that are
#: missing at its end in a group that has joined from another host (`reshape.ranks.leak_report`). It
#: closes idle connections to a host that has not answered for about 16 s unless its keepalive is
#: off; MPI does not report that, and the job would hang when the network is back. The service ends
#: the groups of a host that is lost.
DEFAULTS = {"UCX_LOG_LEVEL": "error", "UCX_TCP_KEEPIDLE": "inf"}
#: Number of the first group of a job; later ones, those of restarts included, have higher numbers.
FIRST_GROUP = 1
#: Seconds from SIGTERM to SIGKILL for the groups of a job that fails.
GRACE_S = 2.0
#: Characters of an error of a program that are kept.
MOST_CHARACTERS = 500
NOT_ITS_GROUP = "the job does not have this group any more"
#: Why a job ends whose program may need time for its last output.
_PATIENT = (JobState.CANCELLED, JobState.TIMEOUT)


class JobStartup:
    """Makes the groups of every job those that the core has.

    Parameters
    ----------
    launches : job number -> how the job is started.
    parts : environments, scripts and long commands of the jobs.
    kept : what is kept of each job.
    binding : nodes on which ranks are bound.
    kill_wait_s : time in seconds from SIGTERM to SIGKILL for a job that is cancelled or exceeds its
        walltime.

    Attributes
    ----------
    placements : on which nodes the groups are.
    node_of, nodes_of : whose agents start the processes of a group, see `Placements`.
    sent : when commands were sent.
    """

    def __init__(
        self,
        core: Core,
        monitor: SystemMonitor,
        directory: ServiceDirectory,
        launches: dict[int, Launch],
        parts: KeptParts,
        kept: KeptJobs,
        binding: Binding = "none",
        kill_wait_s: float = GRACE_S,
    ) -> None:
        self._core, self._monitor, self._directory = core, monitor, directory
        self._reports = monitor.reports
        self._launches, self._parts, self._kept = launches, parts, kept
        self._kill_wait_s = kill_wait_s
        self.placements = Placements(core, monitor, launches, binding)
        self.node_of, self.nodes_of = self.placements.node_of, self.placements.nodes_of
        self.sent = SentCommands(REPEAT_S, self._reports)

    def host_of(self, job: Job) -> str:
        """Return the host whose agent starts the mpiexec of a job's first group; "": none yet."""
        return self._name_of_host(self.node_of(job, min(job.groups))) if job.groups else ""

    def _name_of_host(self, node: str) -> str:
        """Name the host of a node as it does itself; "": its agent has not reported."""
        agent = self._reports.agents.get(node)
        return "" if agent is None else agent.hello.host or socket.gethostname()

    def is_script(self, job: Job) -> bool:
        """Whether the program of a job is a script, which runs once."""
        launch = self._launches.get(job.id)
        return launch is not None and launch.submission.script

    def has_groups_of(self, node: str) -> bool:
        """Whether the agent of a node starts processes of a group of any job."""
        return any(
            node in self.nodes_of(job, group)
            for job in self._core.live.values()
            for group in job.groups
        )

    def status(self, job: Job, group: int) -> m.GroupStatus | None:
        """Return the status of a group, None if its agent does not report it.

        A group on several hosts is alive as long as processes of it are alive on any of them.
        """
        first, *others = self._statuses(job, group).values()
        status = first
        if others and (status is None or not status.alive):
            reported = [part for part in others if part is not None]
            status = next((part for part in reported if part.alive), status)
            if status is not None and not status.alive:
                status = _joint_end([status, *reported])
        fault = self._kept[job.id].faults.get(group) if job.id in self._kept else ""
        if fault and status is not None and not status.alive:
            return replace(status, why="; ".join(filter(None, (fault, status.why))))
        return status

    def _statuses(self, job: Job, group: int) -> dict[str, m.GroupStatus | None]:
        """Status of a group by node, as far as it is reported; that of its mpiexec first."""
        nodes = self.nodes_of(job, group)
        return {node: self._reports.status(node, job.id, group) for node in nodes}

    def ended(self, job: Job, groups: Iterable[int]) -> list[m.GroupStatus]:
        """Return the statuses of those of some groups that have ended."""
        statuses = (self.status(job, group) for group in groups)
        return [status for status in statuses if status is not None and not status.alive]

    def alive(self, job: Job, groups: Iterable[int]) -> set[int]:
        """Return those of some groups that agents report as alive."""
        statuses = {group: self.status(job, group) for group in groups}
        return {group for group, status in statuses.items() if status and status.alive}

    def never_began(self, job: Job, group: int) -> bool:
        """Whether all agents of a group say that none of its programs has begun."""
        parts = self._statuses(job, group)
        ended = (part is None or not (part.alive or part.began) for part in parts.values())
        return any(parts.values()) and parts.keys() <= self._reports.agents.keys() and all(ended)

    def node_at_fault(self, job: Job, group: int) -> str:
        """Return the node that could not start a group; empty if no agent reports its end."""
        parts = self._statuses(job, group)
        ended = {node: s for node, s in parts.items() if s is not None and not s.alive}
        return next((n for n, s in ended.items() if _could_not_start(s)), next(iter(ended), ""))

    def note_fault(self, job: Job, fault: m.ProgramFault) -> None:
        """Note the error with which the program of a group ends; the first one is the cause."""
        if fault.group in job.groups:
            why = "".join(char if char.isprintable() else " " for char in fault.why)
            self._kept[job.id].faults.setdefault(fault.group, why[:MOST_CHARACTERS])

    def arrange(self, job: Job) -> bool:
        """Start the groups of a job that do not run, and end those that it does not have.

        Returns
        -------
        whether exactly the groups of the job run, and no start or end is under way.
        """
        if job.state in FINAL:
            launch = self._launches.get(job.id)
            ended = None if launch is None else (job, launch.submission)
            self.remove_remains(job.id, job.why, ended)
            return self.is_removed(job.id)
        groups = {} if job.state is JobState.COMPLETING else job.groups
        statuses = self._reports.statuses(job.id)
        before = self._nodes_of_earlier_life(job)
        # The job starts again when every agent has removed what the earlier start left.
        for group in groups if not before else ():
            joins = job.resize is not None and group in job.resize.joining
            starts = job.state is JobState.STARTING and self._may_write(job, group)
            if (starts or joins) and self.status(job, group) is None:
                self._start(job, group, "join" if joins else "first")
            if self._monitor.has_hosts:
                self._arrange_hosts(job, group)
        grace_s = 0.0  # what a running job does not need has no data, and mpiexec is to be silent
        if job.state is JobState.COMPLETING:
            grace_s = self._kill_wait_s if job.cause in _PATIENT else GRACE_S
        self.kill_all(job.id, job.why or NOT_ITS_GROUP, grace_s, but=groups)
        self._signal(job, statuses)
        self._sweep(job.id, before, statuses)
        if job.state is not JobState.RUNNING:
            return not statuses and not before and job.state is JobState.PENDING
        if not before:
            self._forget_ended(job, statuses)
        is_swept = self._sweep_left_hosts(job, statuses)
        alive = {status.group for _, status in statuses if status.alive}
        parts = len(alive)
        if self._monitor.has_hosts:
            parts = sum(len(self.nodes_of(job, group)) for group in job.groups)
        return is_swept and alive == job.groups.keys() and len(statuses) == parts

    def _may_write(self, job: Job, group: int) -> bool:
        """Whether the output that a group appends to is not emptied any more by the first one."""
        if group == FIRST_GROUP or FIRST_GROUP not in job.groups:
            return True
        status = self.status(job, FIRST_GROUP)
        is_open = status is not None and (status.began or not status.alive)
        return is_open or self._launches[job.id].submission.open_mode == "append"

    def _signal(self, job: Job, statuses: list[tuple[str, m.GroupStatus]]) -> None:
        """Send the signal that was ordered last to the groups that have not had it."""
        sent = job.sent
        if sent is None:
            return
        for node, status in statuses:
            if status.alive and status.group in sent.groups and status.signalled < sent.serial:
                order = m.SignalGroup(
                    job=job.id,
                    group=status.group,
                    serial=sent.serial,
                    number=sent.number,
                    to_script=sent.to_script,
                )
                self._command(node, job.id, status.group, order, sent.serial)

    def _arrange_hosts(self, job: Job, group: int) -> None:
        """Start the processes of a group on its further hosts, and end all if some are missing."""
        (first, status), *others = self._statuses(job, group).items()
        is_lost = status is None and not self._core.machine.nodes[first].up
        for number, (node, part) in enumerate(others):
            if status is not None and status.alive:
                if part is None and status.proxies:
                    self._start_proxy(job, group, node, status.proxies[number])
                elif part is not None and not part.alive and part.why:
                    self.kill(first, job.id, group, f"{node}: {part.why}")
            elif part is not None and part.alive and (is_lost or status is not None):
                # They end by themselves with their mpiexec, unless its host is gone.
                if not (is_lost or self.sent.has(node, job.id, group, m.KillGroup)):
                    self.sent.note(node, job.id, group, m.KillGroup)
                else:
                    self.kill(node, job.id, group, f"its processes on {first} have ended")

    def _start_proxy(self, job: Job, group: int, node: str, command: list[str]) -> None:
        bounds = self._bounds(job.id, self._launches[job.id].submission, "")
        order = m.StartGroup(
            job=job.id,
            group=group,
            size=sum(rank[0][0] == node for rank in self.placements.ranks(job, group)),
            argv=command,
            bounds=replace(bounds, output="", error=""),
            cpus=self.placements.cpus(job, group).get(node, {}),
            is_proxy=True,
        )
        self._command(node, job.id, group, order)

    def _bounds(
        self, job: int, submission: m.Submission, host: str, *, truncate: bool = False
    ) -> m.JobBounds:
        """Where processes of a job run and write; `host` is that of its first mpiexec."""
        return m.JobBounds(
            cwd=submission.cwd,
            output=output_path(submission.output, job, submission, host),
            error=output_path(submission.error, job, submission, host),
            truncate=truncate,
            own_folders=[str(self._directory.path)],
            umask=submission.umask,
            limits=submission.limits,
        )

    def _nodes_of_earlier_life(self, job: Job) -> set[str]:
        """Nodes with groups from before the job was last redirected or requeued.

        While the job is queued, also those with shared memory: an agent that was started after the
        job died reports nothing else.
        """
        if job.first_group == 1:
            return set()
        statuses = self._reports.statuses(job.id)
        nodes = {node for node, status in statuses if status.group < job.first_group}
        if job.state is JobState.PENDING:
            nodes.update(self._reports.nodes_with_folder(job.id))
        return nodes

    def remove_remains(
        self, job: int, why: str = "", ended: tuple[Job, KeptSubmission] | None = None
    ) -> None:
        """End what an ended job still runs, and let the agents remove what it left.

        Parameters
        ----------
        ended : the job, whose hook runs before; None: it is not known any more.
        """
        statuses = self._reports.statuses(job)
        self.kill_all(job, why or NOT_ITS_GROUP, grace_s=0)
        is_over = bool(statuses) and not any(status.alive for _, status in statuses)
        first = min(statuses, key=lambda part: part[1].group)[0] if is_over else ""
        if ended is not None and is_over and not self._run_hook(*ended, first):
            return  # again with a next share of all jobs
        # A new agent reports what the agent before it has left.
        nodes = {node for node, _ in statuses} | set(self._reports.nodes_with_folder(job))
        self._sweep(job, nodes, statuses)

    def _run_hook(self, job: Job, submission: KeptSubmission, node: str) -> bool:
        """Let an agent run the hook of a job, if it has one; return whether it is sent by now."""
        if not submission.hook_end or self.sent.has(node, job.id, -1, m.RunHook):
            return True
        if not self.sent.begins(node, job.id, -1, m.RunHook, self._parts.size(submission)):
            return False
        variables = {
            "RESHAPE_JOB": str(job.id),
            "RESHAPE_JOB_NAME": job.spec.name,
            "RESHAPE_JOB_STATE": job.state.name,
            "RESHAPE_EXIT_CODE": str(job.exit_code),
            "RESHAPE_EXIT_SIGNAL": str(job.signal),
        }
        order = m.RunHook(
            job=job.id,
            command=submission.hook_end,
            environment=self._parts.environment(job.id, submission) | variables,
            bounds=self._bounds(job.id, submission, self._name_of_host(node)),
        )
        self._monitor.send_to(node, order)
        return True

    def _sweep(self, job: int, nodes: set[str], statuses: list[tuple[str, m.GroupStatus]]) -> None:
        if nodes and not any(status.alive for _, status in statuses):
            for node in sorted(nodes):
                self._command(node, job, -1, m.SweepJob(job=job))

    def _sweep_left_hosts(self, job: Job, statuses: list[tuple[str, m.GroupStatus]]) -> bool:
        """Remove what killed groups of a running job left on other hosts; whether there was none.

        Nothing is removed while it is not known on which hosts the groups are.
        """
        if not self._monitor.has_hosts:
            return True
        host_of = self._monitor.memory_host_of
        in_use = {host_of(node) for group in job.groups for node in self.nodes_of(job, group)}
        in_use.update(host_of(node) for node, status in statuses if status.alive)
        if None in in_use:
            return False
        folders = self._reports.nodes_with_folder(job.id)
        left = {node for node in folders if host_of(node) not in in_use}
        self._sweep(job.id, left, [])
        return not left

    def is_removed(self, job: int) -> bool:
        """Whether no agent reports a process or a folder of a job."""
        return not self._reports.statuses(job) and not self._reports.nodes_with_folder(job)

    def _forget_ended(self, job: Job, statuses: list[tuple[str, m.GroupStatus]]) -> None:
        """Let agents drop the groups that left in earlier resizes, so that reports stay short."""
        ended: dict[str, list[int]] = {}
        for node, status in statuses:
            if not status.alive and status.group not in job.groups:
                ended.setdefault(node, []).append(status.group)
        for node, groups in ended.items():
            self._command(node, job.id, -1, m.ForgetGroups(job=job.id, groups=groups))

    def kill(self, node: str, job: int, group: int, why: str, grace_s: float = GRACE_S) -> None:
        """Let an agent end a group.

        Without grace mpiexec prints no error message. With it mpiexec may report that the program
        has failed: when the first rank has ended, it kills the others.
        """
        self._command(node, job, group, m.KillGroup(job=job, group=group, grace_s=grace_s, why=why))

    def end_soon(self) -> None:
        """End cancelled jobs like groups that are not needed any more: the service stops."""
        self._kill_wait_s = min(self._kill_wait_s, GRACE_S)

    def let_end(self, job: Job, group: int) -> None:
        """Give a group that was sent SIGTERM `REPEAT_S` seconds to end before it is killed."""
        self.sent.note(self.node_of(job, group), job.id, group, m.KillGroup)

    def kill_all(
        self, job: int, why: str, grace_s: float = GRACE_S, *, but: Container[int] = ()
    ) -> None:
        """Let the agents end every group of a job but some."""
        for node, status in self._reports.statuses(job):
            if status.alive and status.group not in but:
                self.kill(node, job, status.group, why, grace_s)

    def environment(self, job: int) -> dict[str, str]:
        """Return the environment a job was submitted with."""
        return self._parts.environment(job, self._launches[job].submission)

    def _start(self, job: Job, group: int, role: str) -> None:
        hosts = self.nodes_of(job, group)
        spans = len(hosts) > 1
        if spans and not all(node in self._reports.agents for node in hosts):
            return  # again when all agents report
        self.sent.forget(job.id, -1)  # what this start leaves is removed immediately, too
        node, small = self.node_of(job, group), self._launches[job.id].submission
        if self.starts(job, group):
            return
        if not self.sent.begins(node, job.id, group, m.StartGroup, self._parts.size(small)):
            return  # again when fewer large starts are under way
        submission = self._parts.whole(job.id, small)
        is_first = group == FIRST_GROUP and submission.open_mode == "truncate"
        on_hosts = self.placements.hosts_of(job, group) if submission.script else hosts
        order = m.StartGroup(
            job=job.id,
            group=group,
            size=self.placements.size(job, group),
            argv=submission.argv,
            bounds=self._bounds(job.id, submission, self.host_of(job), truncate=is_first),
            environment=self._variables(job, group, role, submission),
            hosts=on_hosts if len(on_hosts) > 1 else [],
            rank_hosts=self.placements.rank_hosts(job, group) if spans else [],
            address=self._reports.agents[hosts[0]].hello.address if spans else "",
            cpus=self.placements.cpus(job, group).get(hosts[0], {}),
            script=submission.script,
            text=submission.text,
            wrapper=submission.wrapper,
        )
        self._monitor.send_to(node, order)

    def _variables(
        self, job: Job, group: int, role: str, submission: m.Submission
    ) -> dict[str, str]:
        """Return the environment of the processes of a group; their agent adds its paths."""
        launch, step = self._launches[job.id], job.spec.step_of
        by_host = self.placements.processors_by_host(job, group)
        counts: dict[str, int] = {}
        for node, count in by_host.items():
            name = self._name_of_host(node) or node
            counts[name] = counts.get(name, 0) + count
        world = {
            "RESHAPE_SERVER": "" if self._monitor.has_hosts else self._directory.endpoint,
            "RESHAPE_JOB": str(job.id if step is None else step.job),
            "RESHAPE_GROUP": str(group),
            "RESHAPE_TOKEN": launch.token,
            "RESHAPE_ROLE": role,
            "RESHAPE_NODELIST": ",".join(counts),
            "RESHAPE_PROCESSORS_OF_NODES": ",".join(map(str, counts.values())),
            "RESHAPE_PARTITION": job.partition or job.spec.queue,
            "RESHAPE_WALLTIME_S": f"{job.spec.walltime_s:g}",
            "RESHAPE_REQUEUES": str(job.requeues),
        }
        if role == "first" and job.restarts:
            world["RESHAPE_ROLE"] = role = "restart"
        joining = () if job.resize is None else job.resize.joining
        if role != "first" or len(job.groups) > 1:
            world["RESHAPE_GROUPS"] = _sizes(job, [n for n in job.groups if n not in joining])
        if len(joining) > 1:
            world["RESHAPE_JOINING"] = _sizes(job, joining)
        if step is not None or submission.script:
            world["RESHAPE_PROCESSORS"] = str(len(job.groups[group]))
        if step is not None:
            world |= {"RESHAPE_STEP": str(step.index), STEP_VARIABLE: str(job.id)}
        if submission.script:
            world[SCRIPT_VARIABLE] = "1"
        threads = {"OMP_NUM_THREADS": str(submission.per_process)}
        return DEFAULTS | threads | submission.environment | world

    def _command(
        self, node: str, job: int, group: int, message: m.Message, serial: int = 0
    ) -> None:
        # At most one command of a kind is under way to a group; a kill may follow a start at once,
        # and so may a signal another one.
        if self.sent.begins(f"{node} {serial}" if serial else node, job, group, type(message)):
            self._monitor.send_to(node, message)

    def ask_end(self, job: Job, group: int) -> None:
        """Let the agent of a group that it does not report say how the group has ended."""
        question = m.ReportEnd(job=job.id, group=group, token=self._launches[job.id].token)
        self._command(self.node_of(job, group), job.id, group, question)

    def starts(self, job: Job, group: int) -> bool:
        """Whether a group's start was sent so recently that its agent may not report it yet."""
        return self.sent.is_under_way(self.node_of(job, group), job.id, group, m.StartGroup)


def _sizes(job: Job, groups: Iterable[int]) -> str:
    """Return the number of processes of each of these groups, as processes of a job read it."""
    return " ".join(f"{group}:{len(job.groups[group])}" for group in groups)


def _could_not_start(part: m.GroupStatus) -> bool:
    return part.fault in ("job", "node")


def _joint_end(parts: list[m.GroupStatus]) -> m.GroupStatus:
    """Return the end of a group on several hosts from its ends on each of them, in their order.

    SIGKILL counts less than other ends, because hydra ends the other ranks by it after a failure.
    """

    def weight(part: m.GroupStatus) -> int:
        if _could_not_start(part):
            return 0
        failed_itself = part.rank >= 0
        return 3 - failed_itself - (failed_itself and part.signal != signal.SIGKILL)

    return replace(min(parts, key=weight), began=any(part.began for part in parts))
