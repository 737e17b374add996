"""The groups of jobs on a node: an agent starts, watches and ends them (PRIO 2, System Monitor).

A group has ended when its mpiexec and all descendants of it have ended. The agent is a subreaper:
it becomes the parent of descendants whose parents die. A process of its own opens the files of each
group, so that no file system can block the agent.

The end of a group is also a file in the folder of its job, until the service has recorded it: if
the agent is killed, the next one of the node reports it.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import time
from collections.abc import Callable
from math import inf
from typing import Any

import msgspec
from msgspec.structs import replace

from reshape.errors import ReshapeError
from reshape.files.job_folder import has_restart_point, read_positions, restart_point_bytes
from scheduler.node.children import EndedJobs, EndFiles, Errands, GroupProcesses, ranks_at
from scheduler.node.directory import JobFolders
from scheduler.node.launching.cores import binding_text
from scheduler.node.launching.job_command import command_of_copy
from scheduler.node.launching.launcher import (
    MpiexecStart,
    ProcessLauncher,
    failed_start,
    mpiexec,
    mpiexec_over_hosts,
    never_began,
    script_over_hosts,
)
from scheduler.node.leftovers import JobCgroups, check_room, end_processes, remove_mpi_files
from scheduler.node.processes import (
    AGENT_VARIABLE,
    GROUP_VARIABLE,
    MemoryUse,
    ProcessTree,
)
from scheduler.protocol import messages as m

log = logging.getLogger(__name__)

#: A group is young for this long. Its processes still start others.
YOUNG_S = 3.0
#: Interval in seconds of searching the descendants of young groups, and of others.
LOOK_YOUNG_S, LOOK_S = 0.1, 5.0
#: Time limit for opening the output and entering the working directory of a group, seconds.
START_S = 20.0
#: Seconds that other processes of a group may run after its ranks have ended.
STRAY_S = 2.0
#: Seconds from an end of processes until the files of MPI that they have left are removed: another
#: process of the job may be about to map one.
REMOVAL_S = 1.0
#: Seconds for which reports name the positions of a job after the service has asked for them.
LOCATED_S = 60.0


class NodeGroups:
    """The groups of jobs that an agent has started on its node.

    Parameters
    ----------
    folders : the shared-memory folders of jobs on this host.
    node : name of the node.

    Attributes
    ----------
    changed : whether something has changed that the agent has not reported.
    stopping : whether all groups were ended and none is started any more.
    errands : what it runs beside the groups.
    """

    def __init__(self, folders: JobFolders, node: str) -> None:
        self.changed, self.stopping = True, False
        self._folders = folders
        self._mark = f"{folders.name}/{node}"
        self._groups: dict[tuple[int, int], GroupProcesses] = {}  # those that have not ended
        self._ends: dict[tuple[int, int], m.GroupStatus] = {}  # which the service may not know yet
        # What limits the resize of a job, and when its restart point was seen first (monotonic s).
        self._watches: dict[int, tuple[m.WatchJoin, float | None]] = {}
        self._ended_jobs, self._end_files = EndedJobs(), EndFiles(folders, node)
        self._forgotten: dict[int, int] = {}  # job -> highest group that the service acknowledged
        self._removal_at = inf  # monotonic time of the next removal of files of MPI
        self._cgroups = JobCgroups(folders.memory / f"cgroup-{node}", f"{self._mark}-{os.getpid()}")
        self._launcher = ProcessLauncher()
        self._roots: set[int] = set()  # process numbers of mpiexecs
        self._memory_use = MemoryUse()
        self.errands = Errands(self._launcher, folders, self._mark, self._roots)
        self._located: dict[int, float] = {}  # job -> monotonic time until which to locate it

    # ------------------------------------------------------------------ reports

    def report(self) -> list[m.GroupStatus]:
        """Return the status of every group that the service has not acknowledged as ended."""
        return [*(group.status() for group in self._groups.values()), *self._ends.values()]

    def restart_points(self, jobs: list[int]) -> list[int]:
        """Return which of some jobs have a restart point on this host."""
        return [job for job in jobs if has_restart_point(self._folders.shm(job))]

    def max_memory_mib(self) -> dict[int, int]:
        """Measure the memory of all living groups; return the largest so far of each job, MiB."""
        self._memory_use.sample((group.job, group.tree) for group in self._groups.values())
        return self._memory_use.report()

    def positions(self) -> dict[int, list[m.RanksAt]]:
        """Return where the ranks are of the jobs that the service has asked about."""
        now, running = time.monotonic(), self.running_jobs()
        for job, until in list(self._located.items()):
            if until <= now or job not in running:
                del self._located[job]
        positions = {job: read_positions(self._folders.shm(job)) for job in self._located}
        return {
            job: ranks_at([each for each in own if (job, each.group) in self._groups])
            for job, own in positions.items()
        }

    @property
    def is_busy(self) -> bool:
        """Whether a group runs."""
        return bool(self._groups)

    @property
    def has_unknown_ends(self) -> bool:
        """Whether the service has not acknowledged the end of a group."""
        return bool(self._ends)

    def running_jobs(self) -> list[int]:
        """Return the numbers of the jobs that have a running group."""
        return sorted({job for job, _ in self._groups})

    def wait_ms(self) -> int:
        """Return the time within which `examine` is to be called again, in milliseconds."""
        groups = self._groups.values()
        if self.stopping or any(
            group.kill_at is not None or group.tree.status is not None for group in groups
        ):
            return 20
        if any(group.tree.start.awaits_proxies for group in groups):
            return 2
        now = time.monotonic()
        if any(not g.tree.has_begun and now - g.tree.started < YOUNG_S for g in groups):
            return 10
        if any(now - group.tree.started < YOUNG_S for group in groups):
            return round(1000 * LOOK_YOUNG_S)
        return 50 if self.changed else 500

    # ------------------------------------------------------------------ orders of the service

    def orders(self) -> dict[type[m.Message], Callable[[Any], None]]:
        """Return what carries out each order of the service about groups."""
        return {
            m.StartGroup: self._start,
            m.KillGroup: self._kill,
            m.SignalGroup: self._signal,
            m.LocateRanks: self._locate,
            m.ForgetGroups: self._forget,
            m.ReportEnd: self._report_end,
            m.WatchJoin: self._watch_join,
            m.CancelAccept: self.errands.start_stand_in,
            m.RunHook: self._run_hook,
            m.ProbeNode: self._try_start,
            m.SweepJob: self._sweep,
        }

    def _start(self, order: m.StartGroup) -> None:
        """Start the processes of a group on this host, unless that was done before."""
        key = (order.job, order.group)
        if (
            self._is_present(*key)
            or self.stopping
            or order.group <= self._forgotten.get(order.job, -1)
        ):
            return
        if not order.is_proxy:
            if (end := self._ended_jobs.end_of(order)) is not None:
                log.warning("job=%d group=%d has run already: its end is reported again", *key)
                self._ends[key], self.changed = end, True
                return
            self._ended_jobs.started(order)
        # A watched resize has ended when the job gets another group. The groups that restart from
        # its restart point may take their time.
        self._watches.pop(order.job, None)
        own = {AGENT_VARIABLE: self._mark, GROUP_VARIABLE: f"{order.job}.{order.group}"}
        cpus = {"RESHAPE_CPUS": binding_text(order.cpus)} if order.cpus else {}
        own_folders = [str(self._folders.memory), *order.bounds.own_folders]
        bounds = replace(order.bounds, own_folders=own_folders)
        # Paths in shared memory may differ between hosts.
        paths = {"RESHAPE_SHM": str(self._folders.shm(order.job))}
        if not order.environment.get("RESHAPE_SERVER"):
            paths["RESHAPE_SERVER"] = str(self._folders.job_access)
        try:
            check_room(order.size)
            self._folders.make_job_folder(order.job)
            self._end_files.reserve(*key)
            cgroup = self._cgroups.folder_of(*key)
            start = self._started(order, own | cpus | paths, bounds, cgroup)
        except (OSError, ValueError, ReshapeError) as error:
            self.refuse_start(*key, failed_start(error))
            return
        tree = ProcessTree(own, start, is_proxy=order.is_proxy, cgroup=cgroup, roots=self._roots)
        self._groups[key] = GroupProcesses(*key, tree, bounds, cpus=order.cpus)
        self.changed = True
        log.info("start job=%d group=%d size=%d pid=%d", *key, order.size, tree.pid)

    def _started(
        self, order: m.StartGroup, marks: dict[str, str], bounds: m.JobBounds, cgroup: str
    ) -> MpiexecStart:
        """Start the mpiexec of a group, or the proxy of one on another host.

        `marks` are variables for the launcher, and by which the agent recognises the processes.
        """
        environment, size = order.environment | marks, order.size
        spans = bool(order.hosts) and not order.script
        if order.is_proxy:
            command, environment = order.argv, os.environ | marks
        elif order.script:
            command = self._script(order)
            environment = script_over_hosts(environment) if order.hosts else environment
        elif spans:
            command = mpiexec_over_hosts(order.hosts, order.rank_hosts, order.address, order.argv)
            size = order.rank_hosts.count(0)
        else:
            command = mpiexec(size, order.argv)
        return self._launcher.start(
            command,
            environment,
            bounds,
            size=size,
            cgroup=cgroup,
            is_program=order.script,
            spans=spans,
        )

    def _script(self, order: m.StartGroup) -> list[str]:
        """Command of a script, of which the text of the order is copied."""
        argv = order.argv
        if order.text:
            argv = command_of_copy(self._folders.shm(order.job), order.text, argv[1:])
        return [*order.wrapper, *argv]

    def refuse_start(self, job: int, number: int, end: m.GroupEnd) -> None:
        """Record a group that was never started, so that the service learns the reason."""
        if not self._is_present(job, number):
            status = m.GroupStatus(job, number, alive=False, **msgspec.structs.asdict(end))
            self._never_ran(status)

    def _kill(self, order: m.KillGroup) -> None:
        group = self._groups.get((order.job, order.group))
        if group is not None:
            group.kill(order.grace_s, order.why)

    def _signal(self, order: m.SignalGroup) -> None:
        group = self._groups.get((order.job, order.group))
        if group is not None and order.serial > group.signalled:
            group.order = order
            self.changed |= group.send_signal()

    def _locate(self, order: m.LocateRanks) -> None:
        self._located[order.job] = time.monotonic() + LOCATED_S
        self.changed = True

    def _forget(self, order: m.ForgetGroups) -> None:
        job = order.job
        for number in order.groups:
            if self._ends.pop((job, number), None) is not None:
                self._forgotten[job] = max(number, self._forgotten.get(job, number))
                self._end_files.remove(job, number)
                self.changed = True

    def _report_end(self, question: m.ReportEnd) -> None:
        key = (question.job, question.group)
        if not self._is_present(*key):
            present = [status for status in self.report() if status.job == question.job]
            end = self._ended_jobs.end_of_group(question, present)
            if end is None:
                why = "it has ended, and its agent does not know how"
                end = m.GroupStatus(*key, alive=False, signal=signal.SIGKILL, why=why)
            self._ends[key] = end
        self.changed = True

    def _watch_join(self, order: m.WatchJoin) -> None:
        self._watches[order.job] = (order, None)

    def _run_hook(self, order: m.RunHook) -> None:
        """Run the hook of a job that has ended, unless its groups are forgotten: it ran then."""
        if any(job == order.job for job, _ in (*self._groups, *self._ends)):
            self.errands.start_hook(order)

    def _try_start(self, order: m.ProbeNode) -> None:
        if not self.stopping:
            self.errands.start_probe(order)
            self.changed = True

    def _sweep(self, order: m.SweepJob) -> None:
        job = order.job
        if job in self.running_jobs():
            return
        self._cgroups.sweep(job)
        self._watches.pop(job, None)
        self._forgotten.pop(job, None)
        self._memory_use.forget(job)
        self._ended_jobs.ended(job, [end for end in self._ends.values() if end.job == job])
        self._ends = {key: end for key, end in self._ends.items() if end.job != job}
        self.changed = True  # the next start of the job may wait for this
        self._end_files.remove(job)
        shutil.rmtree(self._folders.shm(job), ignore_errors=True)

    def stop(self, why: str) -> None:
        """End all groups, and start no further ones."""
        self.stopping = True
        for group in self._groups.values():
            group.kill(0.5, why)

    # ------------------------------------------------------------------ processes

    def take_over(self) -> None:
        """End what an earlier agent of the node has left, and report the ends that it knew."""
        self._cgroups.begin()
        end_processes(self._mark)
        remove_mpi_files()
        self._ends.update({(end.job, end.group): end for end in self._end_files.read()})

    def finish(self) -> None:
        """Start no further processes, and remove the files of MPI that ended ones have left."""
        self._launcher.close()
        self._cgroups.finish()
        remove_mpi_files()

    def examine(self) -> None:
        """Reap children, finish kills, and enforce deadlines."""
        self._reap()
        for group in list(self._groups.values()):
            try:
                self._examine(group)
            except Exception:
                log.exception("cannot examine group %d of job %d", group.group, group.job)
        now = time.monotonic()
        for job, watch in list(self._watches.items()):
            self._end_overdue_resize(job, *watch, now)
        if self.errands.examine():
            self.changed = True
            self._remove_soon()
        if now > self._removal_at:
            self._removal_at = inf
            remove_mpi_files()

    def _remove_soon(self) -> None:
        """Remove the files that ended processes of MPI have left, once for many ends."""
        self._removal_at = min(self._removal_at, time.monotonic() + REMOVAL_S)

    def _is_present(self, job: int, number: int) -> bool:
        """Whether a group runs, or its end is reported."""
        return (job, number) in self._groups or (job, number) in self._ends

    def _note_end(self, status: m.GroupStatus) -> None:
        """Report the end of a group from now on, in place of the group."""
        key = status.job, status.group
        self._groups.pop(key, None)
        self._ends[key], self.changed = status, True
        if self.stopping:  # it would not have ended by itself
            self._end_files.remove(*key)
        else:
            self._end_files.write(status)

    def _never_ran(self, status: m.GroupStatus) -> None:
        self._note_end(status)
        log.error("start job=%d group=%d: %s", status.job, status.group, status.why)

    def _examine(self, group: GroupProcesses) -> None:
        tree, now = group.tree, time.monotonic()
        if tree.status is None:
            self._examine_ranks(group)
            self.changed |= group.send_signal()
        is_due = group.kill_at is not None and now > group.kill_at
        if tree.status is None:
            age = now - tree.started
            if now - tree.looked > (LOOK_YOUNG_S if age < YOUNG_S else LOOK_S):
                tree.look()
                if tree.has_lost_rank():
                    tree.kill_strays()
            if age > START_S and group.kill_at is None and group.is_pending:
                self._give_up_start(group)
                return
            if is_due:
                tree.send_signal(signal.SIGKILL)
        if tree.status is not None or is_due:
            self._finish(group)

    def _examine_ranks(self, group: GroupProcesses) -> None:
        """Note what the ranks report; end what outlives them, since mpiexec may wait for it."""
        start = group.tree.start
        before = bool(start.begun), bool(start.proxies)
        start.read_reports()
        self.changed |= before != (bool(start.begun), bool(start.proxies))
        is_over = start.ended_at is not None and time.monotonic() - start.ended_at > STRAY_S
        if is_over and group.tree.kill_strays():
            log.info("job=%d group=%d: ended what had outlived it", group.job, group.group)

    def _give_up_start(self, group: GroupProcesses) -> None:
        """End a group whose files cannot be opened; its process may be impossible to kill."""
        group.tree.send_signal(signal.SIGKILL)
        group.tree.start.close()
        why = (
            f"cannot open its output or enter its directory within {START_S:g} s: check that"
            " their file systems respond"
        )
        self._never_ran(group.status(never_began(why, "job")))

    def _finish(self, group: GroupProcesses) -> None:
        """Kill the descendants of an mpiexec; the group has ended when all of them have."""
        tree = group.tree
        if tree.kill_descendants() or tree.status is None:
            return
        if self._cgroups.end(group.job, group.group):
            return
        end = tree.end
        if end.has_failed and not group.has_read_output():
            return
        why = end.why if end.fault else group.why or end.why
        if group.tail is not None and group.kill_at is None and group.tail.lack:
            why = "; ".join(filter(None, (why, group.tail.lack)))
        is_order = group.kill_at is not None and not (end.began or end.fault)
        fault = "order" if is_order else end.fault
        tree.start.close()
        self._remove_soon()
        self._memory_use.ended(group.job, tree.largest_process)
        self._note_end(group.status(replace(end, why=why, fault=fault)))
        log.info(
            "end job=%d group=%d code=%d signal=%d %s",
            group.job,
            group.group,
            end.exit_code,
            end.signal,
            why,
        )

    def _reap(self) -> None:
        trees = [*(group.tree for group in self._groups.values()), *self.errands.trees()]
        by_pid = {tree.pid: tree for tree in trees if tree.status is None}
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._roots.discard(pid)  # it may be one of a group that was given up
            if pid in by_pid:  # other children are orphans that this agent has adopted
                by_pid[pid].reaped(status, usage.ru_maxrss << 10)

    def _end_overdue_resize(
        self, job: int, order: m.WatchJoin, since: float | None, now: float
    ) -> None:
        """Kill a job that hangs within a resize; it can restart from its restart point."""
        state_bytes = restart_point_bytes(self._folders.shm(job))
        if state_bytes is None:
            if since is not None:  # the resize has ended
                del self._watches[job]
            return
        since = now if since is None else since
        if now <= since + order.deadline_s + state_bytes / order.bytes_per_s:
            self._watches[job] = (order, since)
            return
        del self._watches[job]
        log.warning("resize %d of job %d is overdue", order.serial, job)
        for (other, _), group in self._groups.items():
            if other == job:
                group.kill(0.0, f"resize {order.serial} did not finish in time")
