"""Slurm's variables of a job or task, from those of the service; and a program that runs with them.

    python -P -m scheduler.client.slurm.variables TASK PROGRAM [ARGUMENT]...

Scripts that `sbatch` submits, and programs that `srun` starts, are started by this program, which
becomes the other one. TASK is a `SlurmTask` in JSON.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from reshape.wire.identity import SLURM_VARIABLE
from scheduler.client.scripts.step_streams import open_input
from scheduler.text.job_output import filled

#: Variable of Slurm <- variable of the service.
_SAME = {
    "SLURM_JOB_ID": "RESHAPE_JOB",
    "SLURM_JOBID": "RESHAPE_JOB",
    "SLURM_STEP_ID": "RESHAPE_STEP",
    "SLURM_STEPID": "RESHAPE_STEP",
    "SLURM_ARRAY_JOB_ID": "RESHAPE_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID": "RESHAPE_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_COUNT": "RESHAPE_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MIN": "RESHAPE_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_MAX": "RESHAPE_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_STEP": "RESHAPE_ARRAY_TASK_STEP",
    "SLURM_JOB_PARTITION": "RESHAPE_PARTITION",
    "SLURM_RESTART_COUNT": "RESHAPE_REQUEUES",
}
#: Variables of a job that its script hands on to its steps.
_OF_JOB = (
    *("SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_END_TIME", "SLURM_JOB_NAME", "SLURM_JOB_START_TIME"),
    *("SLURM_JOB_PARTITION", "SLURM_RESTART_COUNT", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST"),
)
#: With variables of Slurm, hydra would start its proxies by srun.
_HYDRA = {"HYDRA_LAUNCHER": "fork", "HYDRA_RMK": "user"}


class SlurmTask(NamedTuple):
    """What a process of a job is started with.

    Attributes
    ----------
    tasks : number of processes.
    cpus_per_task, tasks_per_node : 0: not requested.
    name : of the job.
    submit_host, submit_dir : where the job was submitted.
    input, output, error : files of each process, with placeholders; "": those of this one.
    source : input for `open_input`; "": none.
    reader : the only process that gets it; "": all.
    inherited : variables that replace those of the process.
    """

    tasks: int = 0
    cpus_per_task: int = 0
    name: str = ""
    tasks_per_node: int = 0
    submit_host: str = ""
    submit_dir: str = ""
    input: str = ""
    output: str = ""
    error: str = ""
    source: str = ""
    reader: str = ""
    inherited: Mapping[str, str] = {}


def slurm_variables(environment: Mapping[str, str], task: SlurmTask, now: float) -> dict[str, str]:
    """Variables that Slurm sets for a process of a job.

    Parameters
    ----------
    environment : with the variables of the service, and of hydra in a process of an mpiexec.
    now : Unix seconds; a job script starts now.
    """
    rank = int(environment.get("PMI_RANK", 0))
    local = int(environment.get("MPI_LOCALRANKID", rank))
    host = socket.gethostname()
    hosts = environment.get("RESHAPE_NODELIST") or host
    names = hosts.split(",")
    position = names.index(host) if host in names else 0
    processors = environment.get("RESHAPE_PROCESSORS_OF_NODES") or str(task.tasks)
    counts = [int(count) for count in processors.split(",")]
    variables = {slurm: environment[own] for slurm, own in _SAME.items() if own in environment}
    variables |= {
        "SLURM_JOB_NAME": task.name,
        "SLURM_NTASKS": str(task.tasks),
        "SLURM_NPROCS": str(task.tasks),
        "SLURM_JOB_NUM_NODES": str(len(names)),
        "SLURM_NNODES": str(len(names)),
        "SLURM_JOB_NODELIST": hosts,
        "SLURM_NODELIST": hosts,
        "SLURM_NODEID": str(position),
        "SLURMD_NODENAME": names[position],
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local),
        "SLURM_TASK_PID": str(os.getpid()),
        "SLURM_CPUS_ON_NODE": str(counts[position]),
        "SLURM_JOB_CPUS_PER_NODE": _repeated(counts),
        "SLURM_TASKS_PER_NODE": _repeated([n // max(1, task.cpus_per_task) for n in counts]),
        "SLURM_JOB_START_TIME": str(int(now)),
        "SLURM_JOB_END_TIME": str(int(now + float(environment.get("RESHAPE_WALLTIME_S", 0)))),
        "SLURM_SUBMIT_HOST": task.submit_host or host,
        "SLURM_SUBMIT_DIR": task.submit_dir or os.getcwd(),
        "SLURM_CLUSTER_NAME": "reshape",
        SLURM_VARIABLE: "1",
    }
    if task.cpus_per_task:
        variables |= {"SLURM_CPUS_PER_TASK": str(task.cpus_per_task)}
        variables |= {"OMP_NUM_THREADS": str(task.cpus_per_task)}
    if task.tasks_per_node:
        variables |= {"SLURM_NTASKS_PER_NODE": str(task.tasks_per_node)}
    return variables | _HYDRA


def _repeated(counts: Sequence[int]) -> str:
    """Write numbers for each node as Slurm does: ``4(x2),3``."""
    runs = ((count, len([*same])) for count, same in groupby(counts))
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)


def of_script() -> dict[str, str]:
    """Variables of the job of the script that has started this process, for its steps.

    mpiexec starts programs without them.
    """
    return {name: os.environ[name] for name in _OF_JOB if name in os.environ}


def command(argv: Sequence[str], task: SlurmTask) -> list[str]:
    """Return the command that runs a program with variables of Slurm, submitted here."""
    task = task._replace(submit_host=socket.gethostname(), submit_dir=os.getcwd())
    fields = {name: value for name, value in task._asdict().items() if value}
    return [sys.executable, "-P", "-m", __spec__.name, json.dumps(fields), *argv]


def main(task: SlurmTask, argv: Sequence[str]) -> None:
    """Become a program with variables of Slurm."""
    variables = slurm_variables(os.environ, task, time.time()) | {**task.inherited}
    if task.source and task.reader in ("", variables["SLURM_PROCID"]):
        os.dup2(open_input(task.source), 0)
    for descriptor, file in enumerate((task.input, task.output, task.error or task.output)):
        if file:
            _redirect(descriptor, file, variables)
    os.environ.update(variables)
    try:
        os.execvp(argv[0], [*argv])
    except OSError as error:
        sys.exit(f"srun: error: cannot start {argv[0]}: {error.strerror}")


def _redirect(descriptor: int, pattern: str, variables: Mapping[str, str]) -> None:
    """Let a descriptor read or write the file that a pattern with %t, %n and so on names."""
    job, step = (int(variables.get(f"SLURM_{name}_ID", 0)) for name in ("JOB", "STEP"))
    path = filled(
        pattern,
        {
            "t": int(variables["SLURM_PROCID"]),
            "n": int(variables["SLURM_NODEID"]),
            "j": job,
            "J": f"{job}.{step}",
            "s": step,
            "A": int(variables.get("SLURM_ARRAY_JOB_ID", job)),
            "a": int(variables.get("SLURM_ARRAY_TASK_ID", 0)),
            "x": variables["SLURM_JOB_NAME"],
            "u": os.environ.get("USER", ""),
            "N": socket.gethostname().partition(".")[0],
            "%": "%",
        },
    )
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND if descriptor else os.O_RDONLY
        opened = os.open(path, flags, 0o666)
    except OSError as error:
        sys.exit(f"srun: error: cannot open {path}: {error.strerror}")
    os.dup2(opened, descriptor)
    os.close(opened)


if __name__ == "__main__":
    main(SlurmTask(**json.loads(sys.argv[1])), sys.argv[2:])
