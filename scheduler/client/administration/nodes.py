"""`reshape node`: list, drain, resume and remove the nodes of a service."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from reshape.cli.options import example
from scheduler.client.api.asking import ask, complete_nodes
from scheduler.client.options import json_option, parsable_option, service_option
from scheduler.protocol import messages as m
from scheduler.protocol.client import expect
from scheduler.text.formats import format_moment, listed
from scheduler.text.tables import Table, render


@click.group()
def node() -> None:
    """List, drain, resume and remove the nodes of a service.

    States as in sinfo: idle, mix and alloc (no, some or all processors are held by jobs), drng and
    drain (it drains; jobs hold processors of it, or none any more), down (its agent does not
    report).
    """


@node.command("list")
@service_option
@json_option
@parsable_option
@example("reshape node list")
def list_nodes(directory: Path, as_json: bool, parsable: bool) -> None:
    """List all nodes."""
    answer = expect(m.Nodes, ask(directory, m.ListMachine(part="nodes")))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer.nodes), indent=2).decode())
        return
    partition = ("PARTITION",) if any(info.partitions for info in answer.nodes) else ()
    features = ("FEATURES",) if any(info.features for info in answer.nodes) else ()
    last = ("HOST", "LAUNCHER", "JOBS", "REASON")
    heads = ("NODE", *partition, "STATE", "PROCS(USED/ALL)", *features, *last)
    rows = [
        (
            info.name,
            *(_partitions(info) for _ in partition),
            info.state,
            f"{info.allocated}/{info.processors}",
            *(",".join(info.features) or "-" for _ in features),
            info.host or "-",
            info.launcher,
            ",".join(map(str, info.jobs)) or "-",
            _remark(info),
        )
        for info in answer.nodes
    ]
    left = frozenset({"NODE", "PARTITION", "STATE", "FEATURES", "HOST", "LAUNCHER", "REASON"})
    click.echo(render(Table(heads, rows, left=left), parsable))


def _partitions(node: m.NodeInfo) -> str:
    """Name the partitions of a node, with their processors if there are several."""
    if len(node.partitions) == 1:
        return next(iter(node.partitions))
    return ",".join(f"{name}:{count}" for name, count in node.partitions.items()) or "-"


def _remark(node: m.NodeInfo) -> str:
    by = f"drained by {node.drained_by}" if node.drained_by else ""
    until = "" if node.until is None else f"until {format_moment(node.until)}"
    return "; ".join(filter(None, (node.reason, by, until)))


@node.command()
@service_option
@click.option(
    "--reason", default="", help="Reason, which `reshape node list` and `reshape explain` show."
)
@click.argument("names", nargs=-1, required=True, metavar="NODE...", shell_complete=complete_nodes)
@example('reshape node drain n2 --reason "memory errors"')
def drain(directory: Path, reason: str, names: tuple[str, ...]) -> None:
    """Drain nodes: nothing starts there any more.

    Resizable jobs contract off these nodes at their resize points, as far as their groups allow.
    Other jobs there run to their end.
    """
    for name in names:
        ask(directory, m.ChangeMachine(change=m.DrainNode(name, reason)))
        click.echo(f"node {name} drains")


@node.command()
@service_option
@click.argument("names", nargs=-1, required=True, metavar="NODE...", shell_complete=complete_nodes)
@example("reshape node resume n2")
def resume(directory: Path, names: tuple[str, ...]) -> None:
    """Resume nodes that drain or were removed: jobs may start there again."""
    for name in names:
        ask(directory, m.ChangeMachine(change=m.ResumeNode(name)))
        click.echo(f"node {name} is resumed")


@node.command()
@service_option
@click.argument("names", nargs=-1, required=True, metavar="NODE...", shell_complete=complete_nodes)
@example("reshape node remove n2")
def remove(directory: Path, names: tuple[str, ...]) -> None:
    """Remove nodes from the service, until they are resumed.

    A node that drains is removed as soon as its jobs have left it. Others must have no jobs.
    The agent of a removed node ends, and its processors do not count any more.
    """
    for name in names:
        ask(directory, m.ChangeMachine(change=m.RemoveNode(name)))
        answer = expect(m.Nodes, ask(directory, m.ListMachine(part="nodes")))
        jobs = next((info.jobs for info in answer.nodes if info.name == name), [])
        have = "has" if len(jobs) == 1 else "have"
        when = f" as soon as {listed('job', jobs)} {have} left it" if jobs else ""
        click.echo(f"node {name} is removed{when}")
