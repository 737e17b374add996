"""Configuration of a service: defaults < YAML file < environment < options."""

from __future__ import annotations

import msgspec


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node and the processors it offers."""

    name: str
    processors: int


class Deadlines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a resize may take, in seconds.

    Parameters
    ----------
    start_s : from the decision until a new group is up.
    ready_s : how long a new group waits for the job's next resize point; at least ten iterations.
    join_s : from the beginning of a join (or leave) to its commit, without the data.
    move_bytes_per_s : slowest rate at which data may move; bytes / rate is added to `join_s`.
    exit_s : for the processes of a group that left to be gone.
    """

    start_s: float = 60.0
    ready_s: float = 60.0
    join_s: float = 15.0
    move_bytes_per_s: float = 50e6
    exit_s: float = 10.0


class ServeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `reshape serve` runs with.

    Parameters
    ----------
    nodes : nodes with an agent each, all on this machine.
    scenario : name of a registered scenario.
    parameters : values for the scenario's fields, by dotted name.
    kill_at_walltime : end jobs that pass their walltime.
    verify : check every registered array by checksum around every move.
    """

    nodes: tuple[NodeConfig, ...]
    scenario: str = "fcfs-pr"
    parameters: dict[str, bool | int | float | str | None] = {}
    kill_at_walltime: bool = True
    verify: bool = False
    deadlines: Deadlines = Deadlines()
