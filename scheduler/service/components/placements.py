"""Which host and processor each rank of a group has.

A group has one mpiexec, on the host of its first processor; the agents of its other hosts start the
proxies of that mpiexec. All nodes with the launcher local are on one host, that of the service.

A rank is bound to the CPUs of its processor: a core, or one CPU where the service has more
processors on the host than there are cores. Where it has more processors than there are CPUs, no
rank is bound.
"""

from __future__ import annotations

from itertools import chain, zip_longest

from scheduler.config.settings import Binding
from scheduler.core.core import Core
from scheduler.launchers.cores import cpus_of_processors
from scheduler.model.job import Job
from scheduler.protocol import messages as m
from scheduler.service.components.system_monitor import SystemMonitor


class Placements:
    """Maps the processors of groups to hosts, ranks and CPUs.

    Parameters
    ----------
    binding : nodes on which ranks are bound: "hosts", those on other hosts than the service.
    """

    def __init__(self, core: Core, monitor: SystemMonitor, binding: Binding = "none") -> None:
        self._core, self._monitor, self._binding = core, monitor, binding
        self._reports = monitor.reports

    @property
    def has_hosts(self) -> bool:
        """Whether there are, or were, nodes on other hosts than that of the service."""
        return self._monitor.has_hosts

    def node_of(self, job: Job, group: int) -> str:
        """Return the node of a group's first processor, whose agent starts its mpiexec."""
        return next(iter(self._core.machine.by_node(job.groups[group])))

    def nodes_of(self, job: Job, group: int) -> list[str]:
        """Return the nodes whose agents start processes of a group, one for each of its hosts."""
        if not self.has_hosts:
            return [self.node_of(job, group)]
        first_nodes: dict[str, str] = {}  # host -> its first node
        for node in self._core.machine.by_node(job.groups[group]):
            first_nodes.setdefault(self.host_of(node), node)
        return list(first_nodes.values())

    def ranks(self, job: Job, group: int, placement: m.Placement) -> list[tuple[str, int]]:
        """Return (node, processor) of each rank of a group.

        Parameters
        ----------
        placement : "block": consecutive ranks on each host; "cyclic": ranks are dealt out to the
            hosts in turn.
        """
        by_host: dict[str, list[tuple[str, int]]] = {}
        for node, held in self._core.machine.by_node(job.groups[group]).items():
            here = by_host.setdefault(self.host_of(node), [])
            here.extend((node, number) for number in held)
        if placement == "cyclic":
            turns = chain.from_iterable(zip_longest(*by_host.values()))
            return [rank for rank in turns if rank is not None]
        return list(chain.from_iterable(by_host.values()))

    def rank_hosts(self, job: Job, group: int, placement: m.Placement) -> list[int]:
        """Return the position in `nodes_of` of the host of each rank."""
        nodes = enumerate(self.nodes_of(job, group))
        hosts = {self.host_of(node): position for position, node in nodes}
        return [hosts[self.host_of(node)] for node, _ in self.ranks(job, group, placement)]

    def table(self, job: Job, placement: m.Placement) -> list[m.RankPlace]:
        """Describe where each rank of each group of a job is."""
        numbers = self._numbers()
        places = []
        for group in job.groups:
            nodes = self.nodes_of(job, group)
            parts = [self._reports.status(node, job.id, group) for node in nodes]
            bound = {rank: c for part in parts if part is not None for rank, c in part.cpus.items()}
            for rank, (node, processor) in enumerate(self.ranks(job, group, placement)):
                core = numbers[node].index(processor)
                places.append(m.RankPlace(group, rank, node, core, bound.get(rank, [])))
        return places

    def cpus(
        self, job: Job, group: int, submission: m.Submission
    ) -> dict[str, dict[int, list[int]]]:
        """Return the CPUs of the ranks that are bound, by node of `nodes_of` and by rank."""
        if self._binding == "none" or not submission.bind:
            return {}
        numbers = self._numbers()
        by_starter: dict[str, dict[int, list[int]]] = {}
        starters = {self.host_of(node): node for node in self.nodes_of(job, group)}
        for rank, (node, processor) in enumerate(self.ranks(job, group, submission.placement)):
            if cpus := self._cpus_of(node):
                own = cpus[numbers[node].index(processor)]
                by_starter.setdefault(starters[self.host_of(node)], {})[rank] = own
        return by_starter

    def unbound(self, job: Job, submission: m.Submission) -> dict[str, str]:
        """Say why ranks of a job are not bound, by node; empty where binding is off."""
        if self._binding == "none" or not submission.bind:
            return {}
        nodes = {node for group in job.groups for node, _ in self.ranks(job, group, "block")}
        return {node: why for node in sorted(nodes) if (why := self._why_unbound(node))}

    def _why_unbound(self, node: str) -> str:
        agent = self._reports.agents.get(node)
        if agent is None or not self._binds(node) or self._cpus_of(node):
            return ""
        cpus, processors = sum(map(len, agent.cores)), sum(self._on_host(node).values())
        return f"its agent may use {cpus} CPUs for {processors} processors"

    def _binds(self, node: str) -> bool:
        return self._binding == "all" or self._monitor.is_remote(node)

    def host_of(self, node: str) -> str:
        """Name the host of a node; empty: that of the service."""
        return node if self._monitor.is_remote(node) else ""

    def _on_host(self, node: str) -> dict[str, int]:
        """Return the number of processors of each node on the host of a node."""
        if self._monitor.is_remote(node):
            return {node: self._monitor.configured[node].processors}
        there = self._monitor.configured.items()
        return {
            name: config.processors for name, config in there if not self._monitor.is_remote(name)
        }

    def _cpus_of(self, node: str) -> list[list[int]]:
        """Return the CPUs of each processor of a node; empty if its ranks are not bound."""
        agent = self._reports.agents.get(node)
        if agent is None or not self._binds(node):
            return []
        there = self._on_host(node)
        cpus = cpus_of_processors(agent.cores, sum(there.values()))
        first = sum(list(there.values())[: list(there).index(node)])
        return cpus[first : first + there[node]]

    def _numbers(self) -> dict[str, list[int]]:
        """Return the processor numbers of each node."""
        return {name: list(node.numbers) for name, node in self._core.machine.nodes.items()}
