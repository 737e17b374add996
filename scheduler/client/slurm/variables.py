"""Slurm's variables of a job or task, from those of the service; and a program that runs with them.

    python -P -m scheduler.client.slurm.variables [OPTION]... -- PROGRAM [ARGUMENT]...

Scripts that `sbatch` submits, and programs that `srun` starts, are started by this program, which
becomes the other one.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Mapping, Sequence

from reshape.wire.identity import SLURM_VARIABLE
from scheduler.client.scripts.step_input import open_input

#: Variable of Slurm <- variable of the service.
_SAME = {
    "SLURM_JOB_ID": "RESHAPE_JOB",
    "SLURM_JOBID": "RESHAPE_JOB",
    "SLURM_STEP_ID": "RESHAPE_STEP",
    "SLURM_ARRAY_JOB_ID": "RESHAPE_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID": "RESHAPE_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_COUNT": "RESHAPE_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MIN": "RESHAPE_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_MAX": "RESHAPE_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_STEP": "RESHAPE_ARRAY_TASK_STEP",
}
#: With variables of Slurm, hydra would start its proxies by srun.
_HYDRA = {"HYDRA_LAUNCHER": "fork", "HYDRA_RMK": "user"}


def slurm_variables(
    environment: Mapping[str, str], tasks: int, cpus_per_task: int, name: str
) -> dict[str, str]:
    """Variables that Slurm sets for a process of a job.

    Parameters
    ----------
    environment : with the variables of the service, and of hydra in a process of an mpiexec.
    tasks : number of processes.
    cpus_per_task : 0: not requested.
    name : of the job.
    """
    rank = int(environment.get("PMI_RANK", 0))
    local = int(environment.get("MPI_LOCALRANKID", rank))
    hosts = environment.get("RESHAPE_NODELIST") or socket.gethostname()
    nodes = hosts.count(",") + 1
    variables = {slurm: environment[own] for slurm, own in _SAME.items() if own in environment}
    variables |= {
        "SLURM_JOB_NAME": name,
        "SLURM_NTASKS": str(tasks),
        "SLURM_NPROCS": str(tasks),
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_NNODES": str(nodes),
        "SLURM_JOB_NODELIST": hosts,
        "SLURM_NODELIST": hosts,
        "SLURM_NODEID": str(_position(socket.gethostname(), hosts.split(","))),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local),
        "SLURM_SUBMIT_DIR": os.getcwd(),
        "SLURM_CLUSTER_NAME": "reshape",
        SLURM_VARIABLE: "1",
    }
    if cpus_per_task:
        variables |= {"SLURM_CPUS_PER_TASK": str(cpus_per_task)}
        variables |= {"OMP_NUM_THREADS": str(cpus_per_task)}
    return variables | _HYDRA


def _position(host: str, hosts: list[str]) -> int:
    """Position of a host in a list; 0 if it is not there."""
    return hosts.index(host) if host in hosts else 0


def command(
    argv: Sequence[str], tasks: int, cpus_per_task: int, name: str, **files: str
) -> list[str]:
    """Return the command that runs a program with variables of Slurm.

    Parameters
    ----------
    files : input, output and error of each process; "" or missing: those of this one. `source` is
        an input for `open_input`, and `reader` the only process that gets it.
    """
    words = [sys.executable, "-P", "-m", __spec__.name, f"--tasks={tasks}"]
    words += [f"--cpus-per-task={cpus_per_task}", f"--name={name}"]
    words += [f"--{kind}={file}" for kind, file in files.items() if file]
    return [*words, "--", *argv]


def main(words: Sequence[str]) -> None:
    """Become a program with variables of Slurm."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--cpus-per-task", type=int)
    parser.add_argument("--name")
    for kind in ("input", "output", "error", "source", "reader"):
        parser.add_argument(f"--{kind}", default="")
    parser.add_argument("argv", nargs="+")
    given = parser.parse_args(words)
    variables = slurm_variables(os.environ, given.tasks, given.cpus_per_task, given.name)
    if given.source and given.reader in ("", variables["SLURM_PROCID"]):
        os.dup2(open_input(given.source), 0)
    if given.input:
        _redirect(0, given.input, variables)
    if given.output:
        _redirect(1, given.output, variables)
    if given.error or given.output:
        _redirect(2, given.error or given.output, variables)
    os.environ.update(variables)
    try:
        os.execvp(given.argv[0], given.argv)
    except OSError as error:
        sys.exit(f"srun: error: cannot start {given.argv[0]}: {error.strerror}")


def _redirect(descriptor: int, pattern: str, variables: Mapping[str, str]) -> None:
    """Let a descriptor read or write the file that a pattern with %t, %n and so on names."""
    job = variables.get("SLURM_JOB_ID", "0")
    array = variables.get("SLURM_ARRAY_JOB_ID", job)
    values = {
        "t": variables["SLURM_PROCID"],
        "n": variables["SLURM_NODEID"],
        "j": job,
        "J": f"{job}.{variables.get('SLURM_STEP_ID', '0')}",
        "s": variables.get("SLURM_STEP_ID", "0"),
        "A": array,
        "a": variables.get("SLURM_ARRAY_TASK_ID", "0"),
        "x": variables["SLURM_JOB_NAME"],
        "u": os.environ.get("USER", ""),
        "N": socket.gethostname().partition(".")[0],
        "%": "%",
    }
    parts = pattern.split("%")
    path = parts[0]
    rest = iter(parts[1:])
    for part in rest:
        if not part:  # %%
            path += "%" + next(rest, "")
        else:
            path += values.get(part[0], f"%{part[0]}") + part[1:]
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND if descriptor else os.O_RDONLY
        opened = os.open(path, flags, 0o666)
    except OSError as error:
        sys.exit(f"srun: error: cannot open {path}: {error.strerror}")
    os.dup2(opened, descriptor)
    os.close(opened)


if __name__ == "__main__":
    main(sys.argv[1:])
