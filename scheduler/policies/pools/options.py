"""Options of an elastic pool."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from reshape.errors import check_ranges, nearest
from reshape.key_values import whole_number
from reshape.times import parse_duration

#: Characters of a pool's name: it is a part of the names of its nodes and of its batch jobs.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*", re.ASCII)
_NODES = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})", re.ASCII)
#: Largest number of an option.
MOST = 10**9
_TIMES = ("time_limit", "idle_timeout", "hysteresis", "margin")
_WHOLE = ("backlog", "processors", "allocation_nodes")
#: What `parse` reads; each of `_TIMES` sets the field of its name and ``_s``.
KEYS = ("nodes", *_TIMES, *_WHOLE, "grow_running")
_CHOICES = {"yes": True, "no": False}


class PoolOptions(msgspec.Struct, frozen=True):
    """What a pool may ask its batch system for, and when it gives nodes back.

    Parameters
    ----------
    min_nodes, max_nodes : the pool keeps at least and never asks for more than this many nodes.
    time_limit_s : time limit of an allocation, seconds.
    processors : processors of a node.
    backlog : allocations that may be queued in the batch system at a time.
    idle_timeout_s : time for which an allocation must be idle and not needed before it is released.
    hysteresis_s : a queued allocation is cancelled when it was not needed for so long; after a
        release or a cancellation, nothing is submitted for the same time.
    margin_s : part of the time limit that a job cannot use, because agents have to start.
    allocation_nodes : nodes of an allocation, as far as the queue needs them. A job that needs more
        nodes gets them by one allocation.
    grow_running : whether to ask for nodes onto which running jobs could expand, too.

    Raises
    ------
    ValueError : a number is out of range.
    """

    max_nodes: int
    time_limit_s: float
    min_nodes: int = 0
    processors: int = 1
    backlog: int = 1
    idle_timeout_s: float = 300.0
    hysteresis_s: float = 30.0
    margin_s: float = 60.0
    allocation_nodes: int = 1
    grow_running: bool = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        numbers = ("max_nodes", "processors", "backlog", "allocation_nodes")
        check_ranges(self, **dict.fromkeys(numbers, ">= 1"))
        if not 0 <= self.min_nodes <= self.max_nodes:
            raise ValueError(
                f"min_nodes must be from 0 to max_nodes, {self.max_nodes}, got {self.min_nodes}"
            )
        time = ">= 0 and finite"
        check_ranges(self, idle_timeout_s=time, hysteresis_s=time, margin_s=time)
        if not self.margin_s < self.time_limit_s < float("inf"):
            raise ValueError(
                f"time_limit_s must be > 0 and > margin_s, {self.margin_s:g}, got"
                f" {self.time_limit_s:g}"
            )

    @property
    def longest_s(self) -> float:
        """Estimate of the longest job that can run in an allocation, seconds."""
        return self.time_limit_s - self.margin_s

    def nodes_for(self, processors: int) -> int:
        """Nodes that have this many processors together."""
        return -(-processors // self.processors)


def check_pool_name(name: str) -> str:
    """Return the name of a pool if it can be a part of names of nodes and of batch jobs.

    Raises
    ------
    ValueError : it cannot.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a name of a pool: write letters, digits, - and _, a letter or digit"
            " first"
        )
    return name


def parse_nodes(text: str) -> tuple[int, int]:
    """Read ``MIN-MAX`` or ``MAX`` (from 0) nodes.

    Raises
    ------
    ValueError : the text has another form.
    """
    match = _NODES.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"nodes: {text!r} is not MAX or MIN-MAX, such as 8 or 1-8")
    return int(match[1] or 0), int(match[2])


def parse_pool_options(values: Mapping[str, str]) -> PoolOptions:
    """Read the options of a pool from texts such as ``{"nodes": "1-8", "time_limit": "2:00:00"}``.

    Parameters
    ----------
    values : texts by the names in `KEYS`; times in the notation of Slurm. ``nodes`` and
        ``time_limit`` are required.

    Raises
    ------
    ValueError : a name is unknown or missing, or a value is wrong; the message names it.
    """
    fields: dict[str, float] = {}
    for name, text in values.items():
        if name not in KEYS:
            raise ValueError(f"unknown option {name!r} of a pool{nearest(name, KEYS)}")
        if name == "nodes":
            fields["min_nodes"], fields["max_nodes"] = parse_nodes(text)
        elif name in _TIMES:
            try:
                fields[f"{name}_s"] = parse_duration(text)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        elif name == "grow_running":
            if text not in _CHOICES:
                raise ValueError(f"{name}: {text!r} is neither yes nor no")
            fields[name] = _CHOICES[text]
        elif (number := whole_number(text, MOST)) is None:
            raise ValueError(f"{name}: {text!r} is not a whole number from 0 to {MOST}")
        else:
            fields[name] = number
    for name, field in (("nodes", "max_nodes"), ("time_limit", "time_limit_s")):
        if field not in fields:
            raise ValueError(f"a pool needs {name}: give {name}=...")
    return PoolOptions(**fields)  # type: ignore[arg-type]
