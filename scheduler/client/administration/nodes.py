"""`reshape node` and `reshape pool`: the nodes of a service, and elastic pools of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from reshape.cli.options import example
from reshape.errors import ReshapeError, nearest
from reshape.times import in_local_time
from scheduler.client.api.client import Client
from scheduler.client.api.service_option import complete_nodes, service_option
from scheduler.client.options import (
    echo_json,
    echo_list,
    json_option,
)
from scheduler.policies.pools.options import KEYS
from scheduler.protocol import messages as m
from scheduler.text.formats import format_moment, format_time, listed
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
@example("reshape node list")
def list_nodes(service: Client, as_json: bool) -> None:
    """List all nodes."""
    nodes = service.nodes()
    columns: dict[str, Callable[[m.NodeInfo], object]] = {
        "NODE": lambda node: node.name,
        "PARTITION": _partitions,
        "STATE": lambda node: node.state,
        "PROCS(USED/ALL)": lambda node: f"{node.allocated}/{node.processors}",
        "FEATURES": lambda node: ",".join(node.features) or "-",
        "HOST": lambda node: node.host or "-",
        "LAUNCHER": lambda node: node.launcher,
        "JOBS": lambda node: ",".join(map(str, node.jobs)) or "-",
        "REASON": _remark,
    }
    if not any(node.partitions for node in nodes):
        del columns["PARTITION"]
    if not any(node.features for node in nodes):
        del columns["FEATURES"]
    left = "NODE PARTITION STATE FEATURES HOST LAUNCHER REASON"
    echo_list(nodes, columns, left, as_json)


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
def drain(service: Client, reason: str, names: tuple[str, ...]) -> None:
    """Drain nodes: nothing starts there any more.

    Resizable jobs contract off these nodes at their resize points, as far as their groups allow.
    Other jobs there run to their end.
    """
    for name in names:
        service.ask(m.ChangeMachine(change=m.DrainNode(name, reason)), m.Done)
        click.echo(f"node {name} drains")


@node.command()
@service_option
@click.argument("names", nargs=-1, required=True, metavar="NODE...", shell_complete=complete_nodes)
@example("reshape node resume n2")
def resume(service: Client, names: tuple[str, ...]) -> None:
    """Resume nodes that drain or were removed: jobs may start there again."""
    for name in names:
        service.ask(m.ChangeMachine(change=m.ResumeNode(name)), m.Done)
        click.echo(f"node {name} is resumed")


@node.command()
@service_option
@click.argument("names", nargs=-1, required=True, metavar="NODE...", shell_complete=complete_nodes)
@example("reshape node remove n2")
def remove(service: Client, names: tuple[str, ...]) -> None:
    """Remove nodes from the service, until they are resumed.

    A node that drains is removed as soon as its jobs have left it. Others must have no jobs.
    The agent of a removed node ends, and its processors do not count any more.
    """
    for name in names:
        service.ask(m.ChangeMachine(change=m.RemoveNode(name)), m.Done)
        jobs = next((info.jobs for info in service.nodes() if info.name == name), [])
        have = "has" if len(jobs) == 1 else "have"
        when = f" as soon as {listed('job', jobs)} {have} left it" if jobs else ""
        click.echo(f"node {name} is removed{when}")


#: Seconds in which Slurm has to answer the dry run.
DRY_RUN_S = 120.0
_HELP = {
    "nodes": "Least and largest number of nodes of the pool, as MIN-MAX or MAX.",
    "time_limit": "Time limit of an allocation, such as 2h or 1-12:00:00 (D-H:M:S).",
    "processors": "Number of processors of each node.  [default: 1]",
    "backlog": "Largest number of allocations that are queued at a time.  [default: 1]",
    "idle_timeout": "Time after which an idle allocation is released.  [default: 5:00]",
    "hysteresis": "Time after which a queued, unneeded allocation is cancelled.  [default: 0:30]",
    "margin": "Part of the time limit that no job can use.  [default: 1:00]",
    "allocation_nodes": "Largest number of nodes of an allocation.  [default: 1]",
    "grow_running": "Ask for nodes onto which running jobs could expand, too.",
}


@click.group()
def pool() -> None:
    """Add, list, pause, resume and remove elastic pools.

    A pool submits jobs that run agents to Slurm when the queue could use more nodes, and gives the
    nodes back when they are idle; see docs/pool.md.
    """


def _pool_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each of `KEYS`."""
    for key in reversed(KEYS):
        option = f"--{key.replace('_', '-')}"
        kind: dict[str, Any] = {"required": key in ("nodes", "time_limit")}
        if key == "grow_running":
            kind = {"flag_value": "yes"}
        command = click.option(option, key, help=_HELP[key], **kind)(command)
    return command


@pool.command("add")
@service_option
@_pool_options
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[-- OPTIONS...]")
@example(
    "reshape pool add slurm --nodes 1-8 --processors 16 --time-limit 2:00:00 -- --partition=short"
)
def add_pool(service: Client, name: str, arguments: tuple[str, ...], **values: str | None) -> None:
    """Add a pool, whose nodes Slurm grants.

    The command first asks Slurm whether it would accept an allocation (a dry run). Options behind
    -- are passed on to sbatch.
    """
    texts = {key: value for key, value in values.items() if value is not None}
    message = m.ChangeMachine(change=m.AddPool(name, texts, arguments))
    answer = service.ask(message, m.PoolAdded, DRY_RUN_S)
    click.echo(f"pool {answer.name} is added" + (f": {answer.said}" if answer.said else ""))


@pool.command("list")
@service_option
@json_option
@example("reshape pool list")
def list_pools(service: Client, as_json: bool) -> None:
    """List all pools."""
    columns: dict[str, Callable[[m.PoolInfo], object]] = {
        "POOL": lambda pool: pool.name,
        "STATE": lambda pool: pool.state,
        "QUEUED": lambda pool: len(_in_states(pool, "submitting", "queued")),
        "RUNNING": lambda pool: len(_in_states(pool, "running")),
        "NODES(UP/MAX)": lambda pool: (
            f"{sum(len(a.nodes) for a in _in_states(pool, 'running'))}/{pool.max_nodes}"
        ),
        "WANTED": lambda pool: pool.wanted,
        "REASON": lambda pool: in_local_time(pool.reason),
    }
    left = "POOL STATE REASON"
    echo_list(pools_of(service), columns, left, as_json)


def _in_states(pool: m.PoolInfo, *states: str) -> list[m.AllocationInfo]:
    return [allocation for allocation in pool.allocations if allocation.state in states]


@pool.command("info")
@service_option
@json_option
@click.argument("name")
@example("reshape pool info slurm")
def pool_info(service: Client, as_json: bool, name: str) -> None:
    """Show a pool with its options and allocations."""
    pools = {info.name: info for info in pools_of(service)}
    if name not in pools:
        raise ReshapeError(f"there is no pool {name!r}{nearest(name, pools)}")
    info = pools[name]
    if as_json:
        echo_json(info)
        return
    because = f": {in_local_time(info.reason)}" if info.reason else ""
    click.echo(f"pool {name} is {info.state}{because}")
    click.echo(format_options(info.options))
    if info.arguments:
        click.echo(f"options of the submission: {' '.join(info.arguments)}")
    columns: dict[str, Callable[[m.AllocationInfo], object]] = {
        "ALLOCATION": lambda a: a.number,
        "BATCH-JOB": lambda a: a.id or "-",
        "STATE": lambda a: a.state,
        "NODES": lambda a: ",".join(a.nodes),
        "IDLE": lambda a: a.idle,
        "SUBMITTED": lambda a: format_moment(a.submitted_at),
        "STARTED": lambda a: format_moment(a.started_at),
        "ENDS": lambda a: format_moment(a.ends_at),
    }
    click.echo(render(Table.of(info.allocations, columns, "BATCH-JOB STATE NODES")))


@pool.command("pause")
@service_option
@click.option(
    "--reason", default="", help="Reason, which `reshape pool list`, `queue` and `explain` show."
)
@click.argument("names", nargs=-1, required=True, metavar="POOL...")
@example("reshape pool pause slurm")
def pause_pool(service: Client, reason: str, names: tuple[str, ...]) -> None:
    """Pause pools: until they are resumed, they submit nothing and only give nodes back."""
    for name in names:
        service.ask(m.ChangeMachine(change=m.PausePool(name, reason)), m.Done)
        click.echo(f"pool {name} is paused")


@pool.command("resume")
@service_option
@click.argument("names", nargs=-1, required=True, metavar="POOL...")
@example("reshape pool resume slurm")
def resume_pool(service: Client, names: tuple[str, ...]) -> None:
    """Resume pools: they submit again immediately, also after failures."""
    for name in names:
        service.ask(m.ChangeMachine(change=m.ResumePool(name)), m.Done)
        click.echo(f"pool {name} is resumed")


@pool.command("remove")
@service_option
@click.option("--now", "at_once", is_flag=True, help="End the jobs on the nodes of the pool.")
@click.argument("names", nargs=-1, required=True, metavar="POOL...")
@example("reshape pool remove slurm")
def remove_pool(service: Client, at_once: bool, names: tuple[str, ...]) -> None:
    """Remove pools: queued allocations are cancelled, and nodes are given back.

    The nodes drain first: resizable jobs contract off them, others run to their end there.
    """
    for name in names:
        service.ask(m.ChangeMachine(change=m.RemovePool(name, at_once)), m.Done)
        click.echo(f"pool {name} is being removed")


def pools_of(service: Client) -> list[m.PoolInfo]:
    """Return the pools of a service."""
    return service.ask(m.ListMachine(part="pools"), m.PoolList).pools


def paused_sentences(service: Client) -> list[str]:
    """Say which pools do not submit, and why."""
    return [
        f"pool {pool.name} is {pool.state}: {in_local_time(pool.reason)}"
        for pool in pools_of(service)
        if pool.state != "active"
    ]


def format_options(options: Mapping[str, bool | float]) -> str:
    """Write the options of a pool, times in the notation of Slurm."""
    return ", ".join(
        f"{key.removesuffix('_s').replace('_', ' ')} {_format(key, value)}"
        for key, value in options.items()
    )


def _format(key: str, value: bool | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format_time(value) if key.endswith("_s") else f"{value:g}"
