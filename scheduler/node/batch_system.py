"""The operations of a batch system: submit, look up and cancel batch jobs.

A batch job is a job of the batch system; its payload is an agent or a service, and the jobs
of a service are something else. The calls start programs and wait for them, up to the time
limit of the batch system, so a process that must not block makes them in a thread of its own.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from reshape.errors import ReshapeError

#: Longest command and error output that a message quotes, in characters.
_LONGEST = 500


class BatchSystemError(ReshapeError):
    """A command of a batch system failed; the message quotes the command and its error output."""


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


class BatchSystem(Protocol):
    """A batch system.

    Attributes
    ----------
    name : its name in commands and messages, such as ``slurm``.
    """

    name: str

    def submit(self, request: BatchRequest) -> str:
        """Submit a batch job and return its id.

        Raises
        ------
        BatchSystemError : it was refused, or the batch system does not answer.
        """

    def check(self, request: BatchRequest) -> str:
        """Ask whether a batch job would be accepted, without submitting it.

        Returns
        -------
        what the batch system says, such as the time at which the job would start.

        Raises
        ------
        BatchSystemError : it would be refused, or the batch system does not answer.
        """

    def statuses(self, ids: Iterable[str]) -> dict[str, BatchStatus]:
        """Look up batch jobs in one go; every id has an entry, that of an unknown one is UNKNOWN.

        Raises
        ------
        BatchSystemError : the batch system does not answer.
        """

    def find(self, names: Iterable[str]) -> dict[str, str]:
        """Find batch jobs of this user by their names, also ended ones that are still known.

        Returns
        -------
        the id by name, without the names that no batch job has.

        Raises
        ------
        BatchSystemError : the batch system does not answer.
        """

    def cancel(self, ids: Iterable[str]) -> None:
        """Cancel batch jobs, whether queued or running; ids of ended ones have no effect.

        Raises
        ------
        BatchSystemError : the batch system does not answer or refuses.
        """


def run_command(
    command: Sequence[str], *, stdin: str = "", timeout_s: float, variables: dict[str, str]
) -> tuple[str, str]:
    """Run a command to its end.

    Parameters
    ----------
    stdin : text for its standard input.
    timeout_s : after this many seconds it is killed.
    variables : its whole environment.

    Returns
    -------
    its standard output and its standard error.

    Raises
    ------
    BatchSystemError : it cannot be started, failed, or took too long.
    """
    quoted = _shortened(shlex.join(command))
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            env=variables,
            check=False,
            start_new_session=True,  # an interrupt of the caller does not reach it
        )
    except OSError as error:
        raise BatchSystemError(f"{quoted}: cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise BatchSystemError(f"{quoted}: no answer within {timeout_s:g} s") from None
    if done.returncode != 0:
        said = _shortened(" ".join(done.stderr.split()) or "no message")
        raise BatchSystemError(f"{quoted}: exit code {done.returncode}: {said}")
    return done.stdout, done.stderr


def _shortened(text: str) -> str:
    """Cut a text that a message quotes to `_LONGEST` characters."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
