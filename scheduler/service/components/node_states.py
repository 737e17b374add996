"""States of nodes as `reshape node` shows and changes them; the names are those of sinfo.

idle, mix, alloc    up; none, some or all of its processors are held by jobs
drng, drain         it drains; jobs hold processors of it, or none any more
down                its agent does not report
"""

from __future__ import annotations

from reshape.errors import ReshapeError, nearest
from reshape.wire import messages as m
from scheduler.model.events import DrainChanged
from scheduler.model.job import FINAL
from scheduler.model.procset import ProcSet
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.sites.site import Site


class NodeStates:
    """Lists and changes the states of the nodes of a service."""

    def __init__(self, core: Site, monitor: SystemMonitor) -> None:
        self._core, self._monitor = core, monitor

    def table(self) -> list[m.NodeInfo]:
        """Describe all nodes, in the order of the configuration."""
        jobs: dict[str, list[int]] = {}
        held: dict[str, int] = {}
        for job in self._core.live.values():
            groups = ProcSet.union(job.groups.values())
            for node, part in self._core.machine.by_node(groups).items():
                jobs.setdefault(node, []).append(job.id)
                held[node] = held.get(node, 0) + len(part)
        return [
            self._info(name, sorted(jobs.get(name, ())), held.get(name, 0))
            for name in self._monitor.nodes
        ]

    def _info(self, name: str, jobs: list[int], held: int) -> m.NodeInfo:
        node = self._core.machine.nodes.get(name)
        agent = self._monitor.agents.get(name)
        count = self._monitor.nodes[name]
        drains = node is not None and node.drains
        why = node.why if node is not None and drains else ""
        if agent is None:
            state, why = "down", why or self._monitor.fault_of(name)
        elif drains:
            state = "drng" if held else "drain"
        else:
            state = "alloc" if held >= count else "mix" if held else "idle"
        return m.NodeInfo(
            name=name,
            host="" if agent is None else agent.host,
            processors=count,
            allocated=held,
            state=state,
            launcher=self._monitor.launcher_of(name),
            jobs=jobs,
            reason=why,
        )

    def change(self, change: m.ChangeNode, now: float) -> DrainChanged:
        """Return the event by which a node drains or is resumed.

        Raises
        ------
        ReshapeError : there is no such node, or it already is as requested.
        """
        if change.node not in self._monitor.nodes:
            known = nearest(change.node, self._monitor.nodes)
            raise ReshapeError(f"there is no node {change.node!r}{known}")
        node = self._core.machine.nodes[change.node]
        if node.drains == change.drains:
            state = "drains already" if node.drains else "does not drain"
            raise ReshapeError(f"node {change.node} {state}")
        return DrainChanged(now, change.node, change.drains, change.why)

    def why_of_job(self, number: int) -> str:
        """Say which nodes of a job drain, and how it leaves them; empty if none does."""
        job = self._core.jobs.get(number)
        machine = self._core.machine
        if job is None or job.state in FINAL or not job.groups:
            return ""
        nodes = [
            machine.nodes[name] for name in machine.by_node(ProcSet.union(job.groups.values()))
        ]
        drain = [
            f"{node.name} ({node.why})" if node.why else node.name for node in nodes if node.drains
        ]
        if not drain:
            return ""
        leaves = "the job ends there"
        if job.spec.resizable:
            leaves = (
                "it contracts off it at a resize point as soon as it has groups on other nodes that"
                " make up a size at which it has run, at least that of its request; else it ends"
                " there"
            )
        return f"drains: {', '.join(drain)}; {leaves}"
