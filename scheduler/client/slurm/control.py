"""`scontrol`."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from reshape.errors import ReshapeError
from reshape.times import in_local_time, parse_duration
from scheduler.client.api.client import Client, JobHandle
from scheduler.client.columns import end_of, running_s
from scheduler.client.requests.slurm_manual import SCONTROL, SCONTROL_REFUSED
from scheduler.client.slurm.listings import as_slurm, hosts
from scheduler.model.arrays import names
from scheduler.protocol.messages import JobInfo
from scheduler.text.formats import format_moment, format_time
from scheduler.text.plain import escaped

#: Keyword of ``scontrol update`` -> keyword of `JobHandle.update`.
_UPDATES = {
    "timelimit": "walltime",
    "jobname": "name",
    "name": "name",
    "numcpus": "processors",
    "numtasks": "processors",
    "partition": "partition",
    "priority": "priority",
    "dependency": "dependency",
    "starttime": "begin",
}
_ASSIGNMENT = re.compile(r"(\w+)([+-]?)=(.*)", re.DOTALL)


def scontrol(words: Sequence[str]) -> None:
    """Show and change jobs, as scontrol(1) does."""
    _, left = SCONTROL.split(words)
    verb, rest = (left[0].lower(), left[1:]) if left else ("", [])
    changes: dict[str, Callable[[JobHandle], None]] = {
        "hold": JobHandle.hold,
        "uhold": JobHandle.hold,
        "release": JobHandle.release,
        "requeue": JobHandle.requeue,
    }
    if verb == "requeue":  # of its own job, which gets SIGTERM before this command can say so
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if verb in changes and rest:
        with Client() as service:
            for word in names(",".join(rest)):
                changes[verb](service.job(word))
    elif verb == "update":
        _update(rest)
    elif verb == "show" and rest and rest[0].lower() in _SHOWN:
        _SHOWN[rest[0].lower()](rest[1:])
    elif verb == "ping":
        with Client() as service:
            print(f"Slurmctld(primary) at {service.info().directory} is UP")
    else:
        for verbs, instead in SCONTROL_REFUSED.items():
            if verb in verbs.split():
                raise ReshapeError(f"scontrol {verb} is not there: {instead}")
        commands = [*changes, "update", "ping", *(f"show {what}" for what in _SHOWN)]
        raise ReshapeError(f"invalid keyword: {' '.join(words)!r}; known are {', '.join(commands)}")


def _update(words: Sequence[str]) -> None:
    found = [match for word in words if (match := _ASSIGNMENT.fullmatch(word)) is not None]
    keys = {match[1].lower(): match[3] for match in found}
    signs = {match[1].lower(): match[2] for match in found if match[2]}
    number = keys.pop("jobid", None)
    unknown = [name for name in keys if name not in _UPDATES]
    if number is None or unknown or len(keys) + 1 != len(words):
        what = unknown[0] if unknown else "JobId"
        raise ReshapeError(
            f"update: {what!r} {'is not known' if unknown else 'is missing'}: known are JobId,"
            f" {', '.join(_UPDATES)}"
        )
    for name, sign in signs.items():
        if name != "timelimit":
            raise ReshapeError(f"update: {name}{sign}= is not there: give the whole value, by =")
    changes: dict[str, Any] = {_UPDATES[name]: value for name, value in keys.items()}
    with Client() as service:
        job = service.job(number)
        if signs:
            changes["walltime"] = _changed_limit(job.info(), signs["timelimit"], keys["timelimit"])
        job.update(**changes)


def _changed_limit(job: JobInfo, sign: str, text: str) -> str:
    """Return the walltime of a job after ``TimeLimit+=text`` or ``-=``."""
    try:
        by_s = parse_duration(text)
    except ValueError as error:
        raise ReshapeError(f"TimeLimit: {error}") from None
    limit_s = job.walltime_s + (by_s if sign == "+" else -by_s)
    if limit_s <= 0:
        raise ReshapeError(f"TimeLimit{sign}={text}: the job has {format_time(job.walltime_s)}")
    return f"{limit_s:.3f}s"


def _show_jobs(words: Sequence[str]) -> None:
    with Client() as service:
        jobs = [service.job(word).info() for word in words] or service.queue()
    print("\n".join(_job_text(as_slurm(job), time.time()) for job in jobs))


def _job_text(job: JobInfo, now: float) -> str:
    started = "Unknown" if job.started_at is None else format_moment(job.started_at)
    ended = "Unknown" if (end := end_of(job)) is None else format_moment(end)
    run_time, limit = format_time(running_s(job, now)), format_time(job.walltime_s)
    cpus = f"{job.size or job.requested}"
    least, most = job.min_processors or job.requested, job.max_processors or job.requested
    if not job.size and least < most:  # of a queued job Slurm writes what it requests
        cpus = f"{least}-{most}"
    array, in_array, task = job.label.partition("_") if not job.step_of else ("", "", "")
    name = f" ArrayJobId={array} ArrayTaskId={task.strip('[]')}" if in_array else ""
    return "\n".join(
        escaped(line)
        for line in (
            f"JobId={job.job}{name} JobName={job.name}",
            f"   UserId={job.user} Priority={job.priority:g}",
            f"   JobState={job.state} Reason={in_local_time(job.reason) or 'None'}",
            f"   Requeue=1 Restarts={job.requeues} ExitCode={job.exit_code}:{job.signal}",
            f"   RunTime={run_time} TimeLimit={limit}",
            f"   SubmitTime={format_moment(job.submitted_at)} StartTime={started} EndTime={ended}",
            f"   Partition={job.partition or job.queue} NodeList={job.nodes or '(null)'}",
            f"   NumNodes={len(job.nodes.split(',')) if job.nodes else 1}"
            f" NumCPUs={cpus} NumTasks={job.requested}",
            f"   Command={' '.join(job.argv)}",
            f"   StdOut={job.output}",
            f"   StdErr={job.error or job.output}",
            "",
        )
    )


def _show_config(_words: Sequence[str]) -> None:
    with Client() as service:
        info = service.info()
    print("Configuration data as of " + format_moment(info.now))
    values = {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "ClusterName": "reshape",
        "MaxArraySize": "100001",
        "MinJobAge": "300 sec",
        "SelectType": "select/cons_tres",
        "SLURM_VERSION": "24.05.0",
        "ReshapeVersion": info.version,
    }
    for name, value in values.items():
        print(f"{name:<24}= {value}")


def _show_hostnames(words: Sequence[str]) -> None:
    """Print the hosts of lists such as ``n[1-3,5],m``, by default those of the job, a line each."""
    lists = [*words] or [os.environ.get("SLURM_JOB_NODELIST", "")]
    if not all(lists):
        raise ReshapeError("show hostnames: name hosts: SLURM_JOB_NODELIST is not set")
    print("\n".join(host for text in lists for host in hosts(text)))


def _show_nodes(words: Sequence[str]) -> None:
    with Client() as service:
        nodes = service.nodes()
    _check_names("node", words, [node.name for node in nodes])
    for node in nodes:
        if not words or node.name in words:
            print(f"NodeName={node.name} CPUAlloc={node.allocated} CPUTot={node.processors}")
            print(f"   State={node.state.upper()} Reason={node.reason or '(null)'}\n")


def _check_names(kind: str, words: Sequence[str], allowed: Sequence[str]) -> None:
    for word in words:
        if word not in allowed:
            raise ReshapeError(f"there is no {kind} {word!r}: known are {', '.join(allowed)}")


def _show_partitions(words: Sequence[str]) -> None:
    with Client() as service:
        info = service.info()
    _check_names("partition", words, [part.name for part in info.partitions] or ["main"])
    for index, part in enumerate(info.partitions):
        if not words or part.name in words:
            limit = part.max_walltime_s
            print(f"PartitionName={part.name} Default={'NO' if index else 'YES'} State=UP")
            print(f"   TotalCPUs={part.processors}")
            print(f"   MaxTime={'UNLIMITED' if limit is None else format_time(limit)}\n")
    if not info.partitions:
        print(f"PartitionName=main Default=YES State=UP\n   TotalCPUs={info.processors}\n")


_SHOWN: dict[str, Callable[[Sequence[str]], None]] = {
    "job": _show_jobs,
    "jobs": _show_jobs,
    "config": _show_config,
    "hostnames": _show_hostnames,
    "hostname": _show_hostnames,
    "node": _show_nodes,
    "nodes": _show_nodes,
    "partition": _show_partitions,
    "partitions": _show_partitions,
}
