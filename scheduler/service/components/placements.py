"""Which host and processor each rank of a group has.

A group has one mpiexec, on the host of its first processor; the agents of its other hosts start the
proxies of that mpiexec. All nodes with the launcher local are on one host, that of the service.

A rank has one processor, or as many as its submission says, which are on one node. The program of a
job script has all processors of the job; it runs where the first of them is.

A rank is bound to the CPUs of its processors: a core for each, or one CPU where the service has
more processors on the host than there are cores. Where it has more processors than there are CPUs,
no rank is bound.
"""

from __future__ import annotations

from itertools import chain, zip_longest

from scheduler.config.settings import Binding
from scheduler.core.core import Core
from scheduler.journal.journal_format import Launch
from scheduler.model.job import Job
from scheduler.node.launching.cores import cpus_of_processors
from scheduler.protocol import messages as m
from scheduler.service.components.system_monitor import SystemMonitor


class Placements:
    """Maps the processors of groups to hosts, ranks and CPUs.

    Parameters
    ----------
    launches : job number -> how the job is started.
    binding : nodes on which ranks are bound: "hosts", those on other hosts than the service.
    """

    def __init__(
        self,
        core: Core,
        monitor: SystemMonitor,
        launches: dict[int, Launch],
        binding: Binding = "none",
    ) -> None:
        self._core, self._monitor, self._binding = core, monitor, binding
        self._launches, self._reports = launches, monitor.reports

    def node_of(self, job: Job, group: int) -> str:
        """Return the node of a group's first processor, whose agent starts its mpiexec."""
        return next(iter(self._core.machine.by_node(job.groups[group])))

    def hosts_of(self, job: Job, group: int) -> list[str]:
        """Return a node of each host on which a group has processors."""
        return list(self.processors_by_host(job, group))

    def processors_by_host(self, job: Job, group: int) -> dict[str, int]:
        """Return how many processors a group has on each host, by a node of it."""
        if not self._monitor.has_hosts:
            return {self.node_of(job, group): len(job.groups[group])}
        first_nodes: dict[str, str] = {}
        counts: dict[str, int] = {}
        for node, held in self._core.machine.by_node(job.groups[group]).items():
            first = first_nodes.setdefault(self.host_of(node), node)
            counts[first] = counts.get(first, 0) + len(held)
        return counts

    def nodes_of(self, job: Job, group: int) -> list[str]:
        """Return the nodes whose agents start processes of a group, one for each of its hosts."""
        per_rank = self._per_rank(job, group)
        if not self._monitor.has_hosts or per_rank == len(job.groups[group]):
            return [self.node_of(job, group)]
        if per_rank == 1:
            return self.hosts_of(job, group)
        return self._first_nodes([rank[0][0] for rank in self._by_block(job, group)])

    def _first_nodes(self, nodes: list[str]) -> list[str]:
        """Return the first of these nodes on each of their hosts."""
        first_nodes: dict[str, str] = {}
        for node in nodes:
            first_nodes.setdefault(self.host_of(node), node)
        return list(first_nodes.values())

    def size(self, job: Job, group: int) -> int:
        """Return the number of ranks of a group."""
        return len(job.groups[group]) // self._per_rank(job, group)

    def ranks(self, job: Job, group: int) -> list[list[tuple[str, int]]]:
        """Return (node, processor) of each processor of each rank of a group.

        The ranks are consecutive on each host; or, as the submission says, dealt out to the hosts
        in turn.
        """
        ranks = self._by_block(job, group)
        if self._launches[job.id].submission.placement == "block":
            return ranks
        by_host: dict[str, list[list[tuple[str, int]]]] = {}
        for rank in ranks:
            by_host.setdefault(self.host_of(rank[0][0]), []).append(rank)
        turns = chain.from_iterable(zip_longest(*by_host.values()))
        return [rank for rank in turns if rank is not None]

    def _by_block(self, job: Job, group: int) -> list[list[tuple[str, int]]]:
        by_host: dict[str, list[tuple[str, int]]] = {}
        for node, numbers in self._core.machine.by_node(job.groups[group]).items():
            here = by_host.setdefault(self.host_of(node), [])
            here.extend((node, number) for number in numbers)
        held = [*chain.from_iterable(by_host.values())]
        count = self._per_rank(job, group)
        return [held[first : first + count] for first in range(0, len(held), count)]

    def _per_rank(self, job: Job, group: int) -> int:
        """Return the number of processors of each rank of a group."""
        launch = self._launches.get(job.id)
        if launch is None:
            return 1
        script = launch.submission.script
        return len(job.groups[group]) if script else launch.submission.per_process

    def rank_hosts(self, job: Job, group: int) -> list[int]:
        """Return the position in `nodes_of` of the host of each rank."""
        nodes = enumerate(self.nodes_of(job, group))
        hosts = {self.host_of(node): position for position, node in nodes}
        return [hosts[self.host_of(rank[0][0])] for rank in self.ranks(job, group)]

    def table(self, job: Job) -> list[m.RankPlace]:
        """Describe where each rank of each group of a job is, by the first of its processors."""
        numbers = self._numbers()
        places = []
        for group in job.groups:
            nodes = self.nodes_of(job, group)
            parts = [self._reports.status(node, job.id, group) for node in nodes]
            bound = {rank: c for part in parts if part is not None for rank, c in part.cpus.items()}
            for rank, ((node, processor), *_) in enumerate(self.ranks(job, group)):
                core = numbers[node].index(processor)
                places.append(m.RankPlace(group, rank, node, core, bound.get(rank, [])))
        return places

    def cpus(self, job: Job, group: int) -> dict[str, dict[int, list[int]]]:
        """Return the CPUs of the ranks that are bound, by node of `nodes_of` and by rank."""
        if not self._may_bind(job):
            return {}
        numbers = self._numbers()
        by_starter: dict[str, dict[int, list[int]]] = {}
        starters = {self.host_of(node): node for node in self.nodes_of(job, group)}
        for number, rank in enumerate(self.ranks(job, group)):
            host = self.host_of(rank[0][0])
            own: set[int] = set()
            for node, processor in rank:
                if self.host_of(node) == host and (cpus := self._cpus_of(node)):
                    own.update(cpus[numbers[node].index(processor)])
            if own:
                by_starter.setdefault(starters[host], {})[number] = sorted(own)
        return by_starter

    def unbound(self, job: Job) -> dict[str, str]:
        """Say why ranks of a job are not bound, by node; empty where binding is off."""
        if not self._may_bind(job):
            return {}
        nodes = {node for held in job.groups.values() for node in self._core.machine.by_node(held)}
        return {node: why for node in sorted(nodes) if (why := self._why_unbound(node))}

    def _may_bind(self, job: Job) -> bool:
        return self._binding != "none" and self._launches[job.id].submission.bind

    def _why_unbound(self, node: str) -> str:
        agent = self._reports.agents.get(node)
        if agent is None or not self._binds(node) or self._cpus_of(node):
            return ""
        cpus, processors = sum(map(len, agent.hello.cores)), sum(self._on_host(node).values())
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
        configured = self._monitor.configured.items()
        return {
            name: config.processors
            for name, config in configured
            if not self._monitor.is_remote(name)
        }

    def _cpus_of(self, node: str) -> list[list[int]]:
        """Return the CPUs of each processor of a node; empty if its ranks are not bound."""
        agent = self._reports.agents.get(node)
        if agent is None or not self._binds(node):
            return []
        placed = self._on_host(node)
        cpus = cpus_of_processors(agent.hello.cores, sum(placed.values()))
        first = sum(list(placed.values())[: list(placed).index(node)])
        return cpus[first : first + placed[node]]

    def _numbers(self) -> dict[str, list[int]]:
        """Return the processor numbers of each node."""
        return {name: list(node.numbers) for name, node in self._core.machine.nodes.items()}
