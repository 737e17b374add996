"""What a process of a job reads from its environment: its identity, and the pace of its requests.

At each resize point rank 0 broadcasts the decision in one small message. It asks the service only
if `Pace.every_s` seconds have passed since the last request; otherwise the decision is to proceed.
So an iteration of milliseconds costs a broadcast, but no request and no record in the journal, and
an order of the service waits at most that time and one iteration. A job with longer iterations asks
at each resize point. The reported time is the mean of all iterations since the last request. The
first iteration after a start or a resize is reported alone, because its caches are cold.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Literal, cast, get_args

import msgspec

from reshape.errors import ConfigError

Role = Literal["first", "join", "restart"]
#: Seconds that the processes wait for answers at resize points, where a service leaves it out.
PATIENCE_VARIABLE = "RESHAPE_PATIENCE_S"
#: Names a folder for files of the processes, and so makes a run one of `reshape try`.
TRIAL_VARIABLE = "RESHAPE_TRY"
#: Least seconds between two requests at resize points, and the variable that sets another value.
ASK_EVERY_S, PACE_VARIABLE = 0.05, "RESHAPE_ASK_EVERY_S"
#: Environment variables that the service sets for the processes of a job: RESHAPE_GROUPS for jobs
#: of several groups, RESHAPE_JOINING for several that join together, RESHAPE_SCRIPT for job
#: scripts, the last two for steps.
IDENTITY_VARIABLES = (
    "RESHAPE_SERVER",
    "RESHAPE_JOB",
    "RESHAPE_GROUP",
    "RESHAPE_TOKEN",
    "RESHAPE_SHM",
    "RESHAPE_ROLE",
    "RESHAPE_GROUPS",
    "RESHAPE_JOINING",
    "RESHAPE_SCRIPT",
    "RESHAPE_STEP",
    "RESHAPE_STEP_JOB",
    PATIENCE_VARIABLE,
)
#: Set for a job script: its commands are programs by themselves, not processes of a resizable job.
SCRIPT_VARIABLE = "RESHAPE_SCRIPT"
#: Set for a step: its number as a job; RESHAPE_JOB has that of the job whose script started it.
STEP_VARIABLE = "RESHAPE_STEP_JOB"
#: Set where variables of Slurm, such as SLURM_JOB_ID, name a job of this service.
SLURM_VARIABLE = "RESHAPE_SLURM"


def slurm_job(environment: Mapping[str, str] = os.environ) -> str:
    """Return the number of the job of a Slurm that this process belongs to; "": none."""
    return "" if SLURM_VARIABLE in environment else environment.get("SLURM_JOB_ID", "")


class Identity(msgspec.Struct, frozen=True):
    """Identity of a process that a service has started.

    Attributes
    ----------
    server : ZeroMQ endpoint of the service, or path of an access file.
    job : number of the job.
    group : number of the process's group within the job.
    token : the job token.
    folder : shared-memory folder of the job.
    role : "first" group of a job, a group that is to "join", or "restart" from a restart point.
    groups : size of each group of a job by number, oldest first, if it starts with several of them
        or restarts, or if this group joins it; joining groups are not included. Else empty.
    joining : the same of several groups that join the job together; else empty.
    patience_s : how long to wait for an answer to a request, in place of the usual limits; None:
        these apply. A job of `reshape try` waits at a resize point until a group is ready.
    """

    server: str
    job: int
    group: int
    token: str
    folder: Path
    role: Role
    groups: Mapping[int, int] = {}
    joining: Mapping[int, int] = {}
    patience_s: float | None = None

    @property
    def assembling(self) -> Mapping[int, int]:
        """Size of each group that connects to this one before its program registers anything."""
        return self.joining if self.role == "join" else self.groups


def identity(environment: Mapping[str, str] = os.environ) -> Identity | None:
    """Read the identity of this process; None if no service started it as a process of a job.

    Raises
    ------
    ConfigError : RESHAPE_JOB is set, and another of the variables is missing or has a wrong value.
    """
    if "RESHAPE_JOB" not in environment or SCRIPT_VARIABLE in environment:
        return None
    return _identity(environment)


def identity_of_script() -> Identity | None:
    """Read the identity of the job script that has started this process; None if none has.

    Raises
    ------
    ConfigError : as of `identity`.
    """
    return _identity(os.environ) if SCRIPT_VARIABLE in os.environ else None


def _identity(environment: Mapping[str, str]) -> Identity:
    def variable(name: str) -> str:
        if name not in environment:
            raise _error(
                name,
                "is not set although RESHAPE_JOB is; submit the program with 'reshape submit', "
                "or unset RESHAPE_JOB to run it by itself",
            )
        return environment[name]

    def number(name: str) -> int:
        value = variable(name)
        if not value.isdecimal():
            raise _error(name, f"expected a number, got {value!r}")
        return int(value)

    role = variable("RESHAPE_ROLE")
    if role not in get_args(Role):
        raise _error("RESHAPE_ROLE", f"expected one of {', '.join(get_args(Role))}, got {role!r}")
    return Identity(
        server=variable("RESHAPE_SERVER"),
        job=number(STEP_VARIABLE if STEP_VARIABLE in environment else "RESHAPE_JOB"),
        group=number("RESHAPE_GROUP"),
        token=variable("RESHAPE_TOKEN"),
        folder=Path(variable("RESHAPE_SHM")),
        role=cast(Role, role),
        groups=_sizes(environment, "RESHAPE_GROUPS"),
        joining=_sizes(environment, "RESHAPE_JOINING"),
        patience_s=_seconds_of(environment, PATIENCE_VARIABLE, "above 0"),
    )


def _sizes(environment: Mapping[str, str], name: str) -> dict[int, int]:
    """Read the sizes of groups by number; empty if the variable is not set."""
    text = environment.get(name, "")
    if not text:
        return {}
    if not re.fullmatch(r"\d+:\d+( \d+:\d+)*", text):
        raise _error(name, f"expected GROUP:SIZE of each group, got {text!r}")
    return {int(n): int(size) for n, size in (pair.split(":") for pair in text.split())}


def _seconds_of(
    environment: Mapping[str, str], name: str, bound: Literal["above 0", ">= 0"]
) -> float | None:
    """Read a number of seconds; None if the variable is not set."""
    text = environment.get(name)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < inf or (bound == "above 0" and not seconds):
        raise _error(name, f"must be a number of seconds {bound}, got {text!r}")
    return seconds


def _error(name: str, message: str) -> ConfigError:
    return ConfigError(message, file="environment", field=name)


class Pace(msgspec.Struct):
    """When rank 0 asks again, and the iterations since the last request.

    Parameters
    ----------
    every_s : least time between two requests, seconds; 0: ask at every resize point.
    """

    every_s: float = ASK_EVERY_S
    _asked_at: float = -inf
    _iterations: int = 0
    _seconds: float = 0.0

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Pace:
        """Read the pace from the environment.

        Raises
        ------
        ConfigError : RESHAPE_ASK_EVERY_S is not a number of seconds.
        """
        every_s = _seconds_of(environment, PACE_VARIABLE, ">= 0")
        return cls() if every_s is None else cls(every_s)

    def passed(self, iteration_s: float) -> None:
        """Note an iteration."""
        self._iterations += 1
        self._seconds += iteration_s

    def is_due(self) -> bool:
        """Whether it is time to ask, with an iteration to report."""
        return self._iterations > 0 and time.monotonic() - self._asked_at >= self.every_s

    def taken(self) -> float:
        """Mean time of the iterations since the last request, seconds; resets the mean."""
        mean_s = self._seconds / max(1, self._iterations)
        self._asked_at, self._iterations, self._seconds = time.monotonic(), 0, 0.0
        return mean_s

    def reset(self) -> None:
        """Begin a configuration, whose first iteration is reported alone."""
        self._asked_at, self._iterations, self._seconds = -inf, 0, 0.0
