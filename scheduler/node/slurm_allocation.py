"""The Slurm allocation in which this process runs: its nodes, their processors, and its end.

salloc and sbatch describe it by variables of the environment. scontrol expands the list of nodes
and has their addresses; squeue has the end of the time limit.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from reshape.errors import ReshapeError
from reshape.wire.identity import slurm_job
from scheduler.node.batch_system import BatchSystemError, run_command
from scheduler.node.slurm import TIMEOUT_S, Slurm, clean_variables

_JOB, _NODES, _CPUS = "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_CPUS_PER_NODE"
_END = "SLURM_JOB_END_TIME"  # since Slurm 23.02
_PROGRAMS = ("srun", "scontrol", "squeue")
_COUNT = re.compile(r"([1-9]\d*)(?:\(x([1-9]\d*)\))?", re.ASCII)
_ADDRESS = re.compile(r"\bNodeName=(\S+)(?:.*?\bNodeAddr=(\S+))?")


@dataclass(frozen=True)
class SlurmAllocation:
    """A Slurm allocation.

    Parameters
    ----------
    job : id of the Slurm job.
    processors : number of processors of each node, by name, in the order of Slurm.
    addresses : address of each node, by name.
    end : end of its time limit, Unix time in seconds; None: it has none, or it is not known.
    """

    job: str
    processors: Mapping[str, int]
    addresses: Mapping[str, str]
    end: float | None


def own_allocation(environment: Mapping[str, str]) -> SlurmAllocation:
    """Describe the allocation of this process.

    Parameters
    ----------
    environment : environment variables, such as `os.environ`.

    Raises
    ------
    ReshapeError : this process is in no allocation, a program of Slurm is missing or fails, or a
        variable has an unexpected form.
    """
    job = slurm_job(environment)
    if not job:
        raise ReshapeError(
            f"this process is in no Slurm allocation ({_JOB} is not set): call it in a script of"
            " sbatch, or in the shell of salloc"
        )
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        raise ReshapeError(
            f"there is no {', '.join(missing)} on PATH, which Slurm allocation {job} needs: load"
            " the module of Slurm"
        )
    names = _scontrol("show", "hostnames", _variable(environment, _NODES)).split()
    text = _variable(environment, _CPUS)
    try:
        counts = parse_counts(text)
        processors = dict(zip(names, counts, strict=True))
    except ValueError:
        raise ReshapeError(
            f"{_CPUS}={text} does not give the processors of the {len(names)} nodes"
            f" {', '.join(names)}, as 4(x2),3 does for three nodes"
        ) from None
    nodes = _scontrol("--oneliner", "show", "nodes", environment[_NODES])
    known = dict(_ADDRESS.findall(nodes))
    addresses = {name: known.get(name) or name for name in names}
    return SlurmAllocation(job, processors, addresses, _end_of(job, environment))


def parse_counts(text: str) -> list[int]:
    """Read numbers for successive nodes, such as ``4(x2),3``: 4, 4 and 3.

    Raises
    ------
    ValueError : the text has another form.
    """
    counts: list[int] = []
    for part in text.split(","):
        match = _COUNT.fullmatch(part)
        if match is None:
            raise ValueError(f"{text!r} is not a list of numbers such as 4(x2),3")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def agent_step(job: str, node: str) -> list[str]:
    """Return the srun command that runs one process on a node, beside all other steps.

    A step of one process for each node: a process that ends does not end those of other nodes, and
    can be started again. The process may use all processors of the job on its node.
    """
    return [
        "srun",
        f"--jobid={job}",
        f"--nodelist={node}",
        "--nodes=1",
        "--ntasks=1",
        "--overlap",
        "--cpu-bind=none",
        "--mpi=none",
        "--job-name=reshape-agent",
        "--quiet",
    ]


def _variable(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise ReshapeError(
            f"{_JOB} is set and {name} is not: call it in a script of sbatch, or in the shell of"
            " salloc, with the variables that these set"
        )
    return value


def _end_of(job: str, environment: Mapping[str, str]) -> float | None:
    text = environment.get(_END, "")
    if text.isascii() and text.isdigit():
        return float(text)
    return Slurm().statuses([job])[job].end


def _scontrol(*words: str) -> str:
    command = ["scontrol", *words]
    output, said = run_command(command, timeout_s=TIMEOUT_S, variables=clean_variables())
    if not output.strip():
        raise BatchSystemError(f"{' '.join(command)}: no output; {said.strip()}")
    return output
