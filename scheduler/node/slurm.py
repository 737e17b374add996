"""Slurm: its batch jobs (sbatch, squeue, sacct, scancel), and the allocation of this process.

A batch job is a job of Slurm; its payload is an agent or a service, and the jobs of a service are
something else. The calls start programs and wait for them, up to a time limit, so a process that
must not block makes them in a thread of its own.

``squeue`` shows ended jobs for some minutes (MinJobAge); older ones are looked up by ``sacct``,
where accounting is enabled. Ids of a cluster of a federation have its name, as ``sbatch
--parsable`` prints them: ``12;alpha``.

salloc and sbatch describe the allocation by variables of the environment. scontrol expands its list
of nodes and has their addresses; squeue has the end of the time limit.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from math import ceil
from pathlib import Path
from types import MappingProxyType

from reshape.errors import ReshapeError
from reshape.wire.identity import slurm_job

#: Seconds after which a command counts as unanswered; Slurm's own MessageTimeout is shorter.
TIMEOUT_S = 60.0
#: Longest command and error output that a message quotes, in characters.
_LONGEST = 500
_ID = re.compile(r"(\d+)(?:;([A-Za-z0-9_.-]+))?")
#: Fields of squeue and sacct in the order of `BatchStatus`, after the id. A reason may contain any
#: character, so it is the last field.
_SQUEUE_FORMAT = "%i|%T|%S|%e|%N|%r"
_SACCT_FORMAT = "JobIDRaw,State,Start,End,NodeList"
_NONE = frozenset({"", "N/A", "None", "NONE", "(null)", "Unknown", "UNKNOWN", "None assigned"})
#: Variables of the batch job in which a process runs; sbatch would take some of them as options.
_INHERITED = re.compile(r"SLURM_(?!CONF$|CLUSTERS$|JWT$)|SLURMD_|SBATCH_JOB")


class BatchState(Enum):
    """State of a batch job.

    UNKNOWN means that the batch system answered and does not name the job, or names a state that
    is not listed here. A caller must not count such a job as running.
    """

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class BatchRequest:
    """A batch job to be submitted.

    Parameters
    ----------
    script : text of the script, with its first line ``#!``; it runs on the first of the nodes.
    nodes : number of nodes, >= 1.
    time_limit_s : time limit, seconds.
    name : shown by the batch system.
    directory : working directory of the script.
    output : file for what the script prints.
    options : further options of the batch system; the fields above take precedence.
    """

    script: str
    nodes: int
    time_limit_s: float
    name: str
    directory: Path
    output: Path
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class BatchStatus:
    """What a batch system says about a batch job.

    Parameters
    ----------
    state : state of the batch job.
    word : the batch system's own word for the state, such as ``CANCELLED``; empty if unknown.
    reason : why it is queued or has ended, in the batch system's words; may be empty.
    start : time of its start, Unix time in seconds; None if it has not started.
    end : time of its end, and while it runs the end of its time limit; None if unknown.
    nodes : its nodes in the batch system's notation, such as ``n[1-3,7]``; empty if it has none.
    """

    state: BatchState
    word: str = ""
    reason: str = ""
    start: float | None = None
    end: float | None = None
    nodes: str = ""


_QUEUED = (
    "PENDING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT POWER_UP_NODE"
)
_RUNNING = "RUNNING RESIZING SIGNALING STAGE_OUT STOPPED SUSPENDED"
_ENDED = (
    "BOOT_FAIL CANCELLED COMPLETED COMPLETING DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY"
    " PREEMPTED RECONFIG_FAIL REVOKED TIMEOUT"
)
#: State in Slurm -> state of a batch job. Of a COMPLETING job the payload has ended.
STATES = MappingProxyType(
    dict.fromkeys(_QUEUED.split(), BatchState.QUEUED)
    | dict.fromkeys(_RUNNING.split(), BatchState.RUNNING)
    | dict.fromkeys(_ENDED.split(), BatchState.ENDED)
)


class Slurm:
    """Slurm, by its commands on the PATH.

    Parameters
    ----------
    interval_s : least time from the end of a command to the next one, seconds; a call waits for it.
    """

    def __init__(self, interval_s: float = 0.0) -> None:
        self._interval_s = interval_s
        self._next_at = 0.0  # monotonic seconds

    def submit(self, request: BatchRequest) -> str:
        """Submit a batch job and return its id.

        Raises
        ------
        ReshapeError : it was refused, or the batch system does not answer.
        """
        output, _ = self._run(_sbatch(request), request.script)
        for line in output.splitlines():
            if _ID.fullmatch(line.strip()):
                return line.strip()
        raise ReshapeError(f"sbatch printed no job id: {output[:200]!r}")

    def check(self, request: BatchRequest) -> str:
        """Ask whether a batch job would be accepted, without submitting it.

        Returns
        -------
        what the batch system says, such as the time at which the job would start.

        Raises
        ------
        ReshapeError : it would be refused, or the batch system does not answer.
        """
        command = [*_sbatch(request), "--test-only"]
        output, said = self._run(command, request.script, SLURM_TIME_FORMAT="standard")
        return (said.strip() or output.strip()).removeprefix("sbatch: ")

    def statuses(self, ids: Iterable[str]) -> dict[str, BatchStatus]:
        """Look up batch jobs in one go; every id has an entry, that of an unknown one is UNKNOWN.

        Raises
        ------
        ReshapeError : the batch system does not answer.
        """
        statuses = {job: BatchStatus(BatchState.UNKNOWN) for job in ids}
        for cluster, numbers in _by_cluster(statuses).items():
            for number, status in self._look_up(cluster, numbers).items():
                statuses[numbers[number]] = status
        return statuses

    def find(self, names: Iterable[str]) -> dict[str, str]:
        """Find batch jobs of this user by their names, also ended ones that are still known.

        Returns
        -------
        the id by name, without the names that no batch job has.

        Raises
        ------
        ReshapeError : the batch system does not answer.
        """
        listed = ",".join(names)
        if not listed:
            return {}
        squeue = ["squeue", "--me", "--noheader", "--states=all", f"--name={listed}"]
        output, _ = self._run([*squeue, "--format=%i|%j"])
        pairs = (line.strip().split("|", 1) for line in output.splitlines() if "|" in line)
        return {name: number for number, name in pairs if _ID.fullmatch(number)}

    def cancel(self, ids: Iterable[str]) -> None:
        """Cancel batch jobs, whether queued or running; ids of ended ones have no effect.

        Raises
        ------
        ReshapeError : the batch system does not answer or refuses.
        """
        for cluster, numbers in _by_cluster(ids).items():
            self._run(["scancel", *cluster, *numbers])

    def _look_up(self, cluster: tuple[str, ...], numbers: dict[str, str]) -> dict[str, BatchStatus]:
        """Look up jobs of one cluster by their numbers; unknown ones are missing."""
        jobs = f"--jobs={','.join(numbers)}"
        squeue = ["squeue", *cluster, "--noheader", "--states=all", jobs]
        try:
            output, _ = self._run([*squeue, f"--format={_SQUEUE_FORMAT}"])
        except ReshapeError as error:
            if "Invalid job id" not in str(error):  # none of the jobs is known any more
                raise
            output = ""
        statuses = read_statuses(output, numbers)
        missing = [number for number in numbers if number not in statuses]
        if missing:
            statuses.update(self._look_up_ended(cluster, missing))
        return statuses

    def _look_up_ended(
        self, cluster: tuple[str, ...], numbers: Sequence[str]
    ) -> dict[str, BatchStatus]:
        """Look up jobs that squeue does not show, where accounting is enabled."""
        sacct = ["sacct", *cluster, "--noheader", "--parsable2", "--allocations"]
        try:
            output, _ = self._run(
                [*sacct, f"--jobs={','.join(numbers)}", f"--format={_SACCT_FORMAT}"]
            )
        except ReshapeError:
            return {}
        statuses = read_statuses(output, numbers)
        # The controller has forgotten these jobs, so none of them runs, whatever the record says.
        return {
            number: status
            for number, status in statuses.items()
            if status.state is BatchState.ENDED
        }

    def _run(self, command: Sequence[str], stdin: str = "", **variables: str) -> tuple[str, str]:
        """Run a command, not before its time; see `run_command`."""
        time.sleep(max(0.0, self._next_at - time.monotonic()))
        try:
            return run_command(command, stdin, **variables)
        finally:
            self._next_at = time.monotonic() + self._interval_s


def run_command(command: Sequence[str], stdin: str = "", **variables: str) -> tuple[str, str]:
    """Run a command to its end; after `TIMEOUT_S` it is killed, with all that it has started.

    Parameters
    ----------
    stdin : text for its standard input.
    variables : of its environment besides `clean_variables`.

    Returns
    -------
    its standard output and its standard error.

    Raises
    ------
    ReshapeError : it cannot be started, failed, or took too long.
    """
    quoted = _shortened(shlex.join(command))
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=clean_variables() | variables,
            start_new_session=True,  # an interrupt of the caller does not reach it
        )
    except OSError as error:
        raise ReshapeError(f"{quoted}: cannot be started: {error.strerror}") from None
    with process:
        try:
            output, error_output = process.communicate(stdin, TIMEOUT_S)
        except BaseException as error:  # an interrupt of the caller, too
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()  # the end of the block does not after an interrupt
            if isinstance(error, subprocess.TimeoutExpired):
                raise ReshapeError(f"{quoted}: no answer within {TIMEOUT_S:g} s") from None
            raise
    if process.returncode != 0:
        said = _shortened(" ".join(error_output.split()) or "no message")
        raise ReshapeError(f"{quoted}: exit code {process.returncode}: {said}")
    return output, error_output


def _shortened(text: str) -> str:
    """Cut a text that a message quotes to `_LONGEST` characters."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def clean_variables() -> dict[str, str]:
    """Return this environment without the variables of a batch job; times print as Unix times."""
    kept = {name: value for name, value in os.environ.items() if not _INHERITED.match(name)}
    return kept | {"SLURM_TIME_FORMAT": "%s"}


def read_statuses(output: str, numbers: Iterable[str]) -> dict[str, BatchStatus]:
    """Read lines of squeue or sacct: number, state, start, end, nodes and perhaps a reason.

    Other lines, such as headings, warnings and steps, are skipped. If several lines name a job, as
    after it was requeued, the last one counts.

    Parameters
    ----------
    numbers : of the jobs that were asked for.

    Returns
    -------
    status by number.
    """
    asked, statuses = frozenset(numbers), {}
    for line in output.splitlines():
        fields = line.strip().split("|", 5)
        if len(fields) < 5 or fields[0] not in asked:
            continue
        number, word, start, end, nodes, reason = [*fields, ""][:6]
        words = word.split()  # CANCELLED by 1000
        word = words[0].rstrip("+") if words else ""
        state = STATES.get(word, BatchState.UNKNOWN)
        starts = None if state is BatchState.QUEUED else read_time(start)
        ends = None if state is BatchState.QUEUED else read_time(end)
        nodes, reason = ("" if text in _NONE else text for text in (nodes, reason))
        statuses[number] = BatchStatus(state, word, reason, starts, ends, nodes)
    return statuses


def read_time(text: str) -> float | None:
    """Read a time as Slurm prints it: Unix time, or local date and time; None if it has none."""
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").timestamp()
    except ValueError:
        return None


def _sbatch(request: BatchRequest) -> list[str]:
    minutes, seconds = divmod(ceil(request.time_limit_s), 60)
    return [
        "sbatch",
        *request.options,
        "--parsable",
        f"--nodes={request.nodes}",
        f"--time={minutes}:{seconds:02}",
        f"--job-name={request.name}",
        f"--chdir={request.directory}",
        f"--output={request.output}",
    ]


def _by_cluster(ids: Iterable[str]) -> dict[tuple[str, ...], dict[str, str]]:
    """Group ids by the options that name their cluster: number -> id.

    Raises
    ------
    ReshapeError : a text is no id.
    """
    by_cluster: dict[tuple[str, ...], dict[str, str]] = {}
    for job in ids:
        match = _ID.fullmatch(job)
        if match is None:
            raise ReshapeError(f"{job!r} is not the id of a Slurm job, such as 12 or 12;alpha")
        number, cluster = match.groups()
        options = () if cluster is None else (f"--clusters={cluster}",)
        by_cluster.setdefault(options, {})[number] = job
    return by_cluster


# ---------------------------------------------------------------- the allocation of this process

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
    node_addresses = dict(_ADDRESS.findall(nodes))
    addresses = {name: node_addresses.get(name) or name for name in names}
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
    output, said = run_command(command)
    if not output.strip():
        raise ReshapeError(f"{' '.join(command)}: no output; {said.strip()}")
    return output
