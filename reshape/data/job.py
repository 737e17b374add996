"""What a process knows of its job: who it is to the service, and what it carries along."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from reshape.data.arrays import Array, Declaration
from reshape.errors import ConfigError, ReshapeError
from reshape.topology import Topology
from reshape.wire.messages import PhaseTimes
from reshape.wire.pace import Pace

if TYPE_CHECKING:
    from mpi4py import MPI

    from reshape.data.ragged import Ragged

Role = Literal["first", "join", "restart"]
Fact = bool | int | float | str


@dataclass(frozen=True)
class Identity:
    """Who a process is to the service that started it, as its environment says.

    Attributes
    ----------
    server : ZeroMQ endpoint of the service.
    job, group : numbers of the job, and of the mpiexec world of this process within it.
    token : secret of the job.
    folder : the job's shared memory.
    role : "first" group of a job, a group that is to "join", or "restart" from a restart point.
    """

    server: str
    job: int
    group: int
    token: str
    folder: Path
    role: Role


def identity(environment: Mapping[str, str] = os.environ) -> Identity | None:
    """Read who this process is; None if no service started it.

    Raises
    ------
    ConfigError : RESHAPE_JOB is set, and another variable of the set is missing or wrong.
    """
    if "RESHAPE_JOB" not in environment:
        return None

    def variable(name: str) -> str:
        if name not in environment:
            raise ConfigError(
                "is not set although RESHAPE_JOB is; submit the program with 'reshape submit', "
                "or unset RESHAPE_JOB to run it by itself",
                file="environment",
                field=name,
            )
        return environment[name]

    def number(name: str) -> int:
        value = variable(name)
        if not value.isdecimal():
            raise ConfigError(f"expected a number, got {value!r}", file="environment", field=name)
        return int(value)

    role = variable("RESHAPE_ROLE")
    if role not in get_args(Role):
        raise ConfigError(
            f"expected one of {', '.join(get_args(Role))}, got {role!r}",
            file="environment",
            field="RESHAPE_ROLE",
        )
    return Identity(
        server=variable("RESHAPE_SERVER"),
        job=number("RESHAPE_JOB"),
        group=number("RESHAPE_GROUP"),
        token=variable("RESHAPE_TOKEN"),
        folder=Path(variable("RESHAPE_SHM")),
        role=cast(Role, role),
    )


@dataclass
class Outcome:
    """How a resize ended on this rank: committed if `why` is empty."""

    serial: int
    why: str = ""
    times: PhaseTimes = field(default_factory=PhaseTimes)


@dataclass
class Job:
    """A job as each of its processes carries it.

    Attributes
    ----------
    comm : communicator of all processes; COMM_NULL once this process has left.
    group : group of this process.
    folder : shared memory of the job; None: private memory, and no restart point.
    groups : group of each rank of `comm`.
    epoch : serial of the last committed resize.
    iteration : iteration that comes next.
    total : number of iterations.
    declarations : what the program has registered, in order.
    arrays : plain arrays by name, those that ragged ones are made of among them.
    ragged : sparse matrices and lists of items by name.
    held : intercommunicators by which groups have joined, to be disconnected by all.
    topology : sizes the program can run on, if it or the submission says so.
    last : how the last resize went.
    pace : when the service is asked again.
    """

    comm: MPI.Intracomm
    group: int
    folder: Path | None
    groups: tuple[int, ...]
    verify: bool = False
    declarations: list[Declaration] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    ragged: dict[str, Ragged] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    epoch: int = 0
    iteration: int = 0
    total: int = 0
    held: list[MPI.Intercomm] = field(default_factory=list)
    topology: Topology | None = None
    last: Outcome = field(default_factory=lambda: Outcome(serial=0))
    told_no_restart: bool = False
    pace: Pace = field(default_factory=Pace)

    @property
    def signature(self) -> tuple[Declaration, ...]:
        """What the program has registered, in order."""
        return tuple(self.declarations)

    @property
    def registered_bytes(self) -> int:
        """Bytes of all registered arrays over all processes, every copy counted; items do not."""
        return sum(array.total_bytes for array in self.arrays.values())


def plain_facts(facts: Mapping[str, Any]) -> dict[str, Fact]:
    """Facts of a result as plain Python values.

    Raises
    ------
    ReshapeError : a value is no bool, number or string.
    """
    plain: dict[str, Fact] = {}
    for name, value in facts.items():
        value = value.item() if isinstance(value, np.generic) else value
        if not isinstance(value, bool | int | float | str):
            raise ReshapeError(
                f"app.report({name}=...): expected a bool, a number or a string, got {value!r}"
            )
        plain[name] = value
    return plain
