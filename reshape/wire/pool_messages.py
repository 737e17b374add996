"""Messages between the commands and the service about elastic pools."""

from __future__ import annotations

from typing import Literal

import msgspec

from reshape.wire.message_base import MessageBase


class AddPool(MessageBase):
    """Add a pool; answered by PoolAdded when its batch system would accept an allocation.

    Attributes
    ----------
    system : name of the batch system.
    options : as `scheduler.pools.options.parse_pool_options` reads them.
    arguments : further options of the submission command of the batch system.
    """

    name: str
    system: str
    options: dict[str, str]
    arguments: tuple[str, ...] = ()


class PoolAdded(MessageBase):
    """The pool is there; `said` is what the batch system answered to the dry run."""

    name: str
    said: str


class ListPools(MessageBase):
    """Answered by PoolList."""


class AllocationInfo(msgspec.Struct):
    """An allocation of a pool; times in Unix seconds.

    Attributes
    ----------
    id : of its batch job; empty until the batch system has answered.
    state : submitting, queued, starting, running or leaving.
    nodes : names of its nodes in the service.
    started_at, ends_at : None: not yet.
    idle : processors that no job holds.
    """

    number: int
    id: str
    state: str
    nodes: list[str]
    submitted_at: float
    started_at: float | None
    ends_at: float | None
    idle: int


class PoolInfo(msgspec.Struct):
    """A pool as tables show it; times in seconds.

    Attributes
    ----------
    state : active, waiting (after a failure), paused or removing.
    reason : why it is in this state, or what the batch system answered last in case of an error.
    wanted : nodes that the queue could use in addition.
    options : name -> value.
    """

    name: str
    system: str
    state: str
    reason: str
    max_nodes: int
    wanted: int
    options: dict[str, float]
    arguments: list[str]
    allocations: list[AllocationInfo]


class PoolList(MessageBase):
    """Answer to ListPools, in the order in which the pools were added."""

    pools: list[PoolInfo]


class ChangePool(MessageBase):
    """Pause, resume or remove a pool; answered by Done.

    Attributes
    ----------
    why : why it is paused.
    at_once : remove it without waiting for the jobs on its nodes.
    """

    name: str
    action: Literal["pause", "resume", "remove"]
    why: str = ""
    at_once: bool = False
