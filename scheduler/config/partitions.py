"""Partitions in configurations and machine files: their nodes, limits and scenarios.

A partition has named nodes, a number of the next nodes or of the next processors in their order, or
all that no other partition has. The service and the simulator read the same fields
(docs/partitions.md has examples).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import NoReturn, TypeAlias

import msgspec

from reshape.errors import ReshapeError, nearest
from scheduler.config.values import Count, Names, Positive, Value
from scheduler.model.events import REDIRECTION
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import changed, check_targets, scenario
from scheduler.text.formats import counted, format_time
from scheduler.text.located import FieldPath, Located

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: Node -> partition -> number of processors.
Shares: TypeAlias = dict[str, dict[str, int]]


class PartitionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition: nodes with a queue, a scenario and limits of their own.

    Parameters
    ----------
    nodes : names of its nodes, or how many of the next ones that no other partition names.
    processors : number of the next processors, in place of nodes. Without nodes and processors the
        partition has everything that the others do not have.
    max_processors : largest number of processors of a job, at its start and after expansions.
    max_walltime_s : longest walltime of a job, in seconds.
    default_walltime_s : walltime of jobs that request none, in seconds; None: as in their queue.
    scenario : name of its scenario; None: as for the service or the simulation.
    parameters : values for the fields of that scenario.
    """

    nodes: Names | Count | None = None
    processors: Count | None = None
    max_processors: Count | None = None
    max_walltime_s: Positive | None = None
    default_walltime_s: Positive | None = None
    scenario: str | None = None
    parameters: dict[str, Value] = {}

    def rules(self, base: Scenario) -> Scenario:
        """Build the scenario of the partition.

        Parameters
        ----------
        base : scenario of partitions that name none.

        Raises
        ------
        ConfigError : a name or a value is invalid.
        """
        if self.scenario is not None:
            return scenario(self.scenario, self.parameters)
        own = msgspec.structs.replace(base, partitions={})
        return changed(own, self.parameters) if self.parameters else own


def with_partitions(base: Scenario, rules: Mapping[str, Scenario]) -> Scenario:
    """Scenario of a core with partitions.

    Parameters
    ----------
    base : scenario of the service or of the simulation.
    rules : scenario of each partition. One whose rule of redirection leads to itself has none.

    Raises
    ------
    ConfigError : a rule of redirection leads to no other partition.
    """
    own = {
        name: msgspec.structs.replace(each, redirection=None)
        if each.redirection is not None and each.redirection.partition == name
        else each
        for name, each in rules.items()
    }
    made = msgspec.structs.replace(base, partitions=own)
    check_targets(made)
    return made


#: Raises an error for a field.
Fail: TypeAlias = Callable[[FieldPath, str], NoReturn]
_refuse: Fail = Located().fail


def shares(
    partitions: Mapping[str, PartitionConfig],
    nodes: Mapping[str, int],
    fail: Fail = _refuse,
) -> Shares:
    """Divide a machine among partitions.

    Parameters
    ----------
    nodes : name -> number of processors, in their order.
    fail : raises an error for a field.

    Raises
    ------
    ConfigError : a node is unknown or in two partitions, a partition has no processor, there is not
        enough for all, or something is left that no partition has.
    """
    left = dict(nodes)
    divided: Shares = {name: {} for name in nodes}
    rest = [name for name, own in partitions.items() if own.nodes is own.processors is None]
    if len(rest) > 1:
        fail(
            ("partitions", rest[1]),
            f"both {rest[0]} and {rest[1]} would have all nodes that no other partition has: give"
            " nodes or processors of one of them",
        )
    for name, own in partitions.items():
        _check(name, own, fail)
        if isinstance(own.nodes, list):
            _take_named(name, own.nodes, left, divided, fail)
    for name, own in partitions.items():
        _take_counted(name, own, nodes, left, divided, fail)
    unused = [node for node, count in left.items() if count]
    if rest:
        _take(rest[0], sum(left.values()), left, divided)
        is_pools = rest[0] == next(iter(partitions))  # whose nodes join the first partition
        if not unused and not is_pools:
            fail(("partitions", rest[0]), "other partitions leave no processors for it")
    elif unused:
        fail(
            ("partitions",),
            f"{counted(sum(left.values()), 'processor')} of {', '.join(unused[:5])} are in no"
            " partition: add them to one, or leave out nodes of one that is to have the rest",
        )
    return divided


def _check(name: str, own: PartitionConfig, fail: Fail) -> None:
    """Check the name of a partition, and its fields among each other."""
    if not _NAME.fullmatch(name) or name == REDIRECTION:
        fail(
            ("partitions", name),
            "a name of at most 64 letters, digits, '.', '_' and '-' is needed, and not"
            f" {REDIRECTION!r}, which a redirection group has",
        )
    if own.default_walltime_s is not None and own.default_walltime_s > (own.max_walltime_s or inf):
        fail(
            ("partitions", name, "default_walltime_s"),
            f"is {own.default_walltime_s:g} s, above max_walltime_s, {own.max_walltime_s:g} s:"
            " choose a shorter one",
        )
    if own.nodes is not None and own.processors is not None:
        fail(("partitions", name, "processors"), "give either nodes or processors, not both")


def _take_named(
    name: str, own: Sequence[str], left: dict[str, int], divided: Shares, fail: Fail
) -> None:
    """Give a partition the nodes that it names."""
    for node in own:
        path: FieldPath = ("partitions", name, "nodes")
        if node not in divided:
            fail(path, f"there is no node {node!r}{nearest(node, divided)}")
        if divided[node]:
            fail(
                path,
                f"node {node} is in partition {next(iter(divided[node]))} already, and nodes"
                " cannot be shared: divide its processors by processors, or leave it out",
            )
        divided[node][name], left[node] = left[node], 0


def _take_counted(
    name: str,
    own: PartitionConfig,
    nodes: Mapping[str, int],
    left: dict[str, int],
    divided: Shares,
    fail: Fail,
) -> None:
    """Give a partition as many whole nodes, or processors, as it asks for."""
    if isinstance(own.nodes, int):
        whole = [node for node in nodes if left[node] == nodes[node]][: own.nodes]
        for node in whole:
            divided[node][name], left[node] = left[node], 0
        asked, left_for_it, field, unit = own.nodes, len(whole), "nodes", " nodes"
    elif own.processors is not None:
        asked, field, unit = own.processors, "processors", ""
        left_for_it = asked - _take(name, asked, left, divided)
    else:
        return
    if left_for_it < asked:
        message = f"{asked}{unit} wanted, other partitions leave {left_for_it}: give fewer"
        fail(("partitions", name, field), message)


def _take(name: str, processors: int, left: dict[str, int], divided: Shares) -> int:
    """Give a partition the next processors; return how many are missing."""
    for node, count in left.items():
        taken = min(count, processors)
        if taken:
            divided[node][name] = taken
            left[node] -= taken
            processors -= taken
    return processors


class PartitionLimits(msgspec.Struct, frozen=True):
    """Limits of all partitions, against which requests are checked.

    Parameters
    ----------
    partitions : by name; the first one takes requests that name none.
    processors : number of processors of each partition.
    """

    partitions: Mapping[str, PartitionConfig]
    processors: Mapping[str, int]

    def check(self, name: str, processors: int, largest: int, walltime_s: float) -> str:
        """Check a request; return the name of its partition.

        Parameters
        ----------
        name : "": the first partition.
        processors, largest : with which the job starts, and to which it may expand.

        Raises
        ------
        ReshapeError : there is no such partition, or it does not accept the request; the message
            names the partitions that would.
        """
        name = name or next(iter(self.partitions))
        accepting = [
            other
            for other in self.partitions
            if self._accepts(other, processors, largest, walltime_s)
        ]
        if name in accepting:
            return name
        advice = "no partition accepts it: ask for less"
        if accepting:
            advice = f"ask for less, or name a partition that accepts it: {', '.join(accepting)}"
        sizes = f"{processors} to " if largest > processors else ""
        asked = f"{sizes}{counted(largest, 'processor')} for {format_time(walltime_s)}"
        if name not in self.partitions:
            raise ReshapeError(
                f"there is no partition {name!r}{nearest(name, self.partitions)}; the request for"
                f" {asked} would be accepted by {', '.join(accepting) or 'none'}"
            )
        raise ReshapeError(
            f"the request for {asked} is beyond the limits of partition {name},"
            f" {self.text(name)}: {advice}"
        )

    def largest(self, name: str) -> int:
        """Largest number of processors that a job may have in a partition ("": the first one)."""
        name = name or next(iter(self.partitions))
        processors, most = self.processors[name], self.partitions[name].max_processors
        return processors if most is None else min(processors, most)

    def text(self, name: str) -> str:
        """Limits of a partition in words."""
        own = self.partitions[name]
        limits = [counted(self.processors[name], "processor")]
        if own.max_processors is not None:
            limits.append(f"{own.max_processors} for a job")
        if own.max_walltime_s is not None:
            limits.append(f"walltimes up to {format_time(own.max_walltime_s)}")
        return ", ".join(limits)

    def _accepts(self, name: str, processors: int, largest: int, walltime_s: float) -> bool:
        own = self.partitions[name]
        return (
            processors <= self.processors[name]
            and largest <= (own.max_processors or inf)
            and walltime_s <= (own.max_walltime_s or inf)
        )
