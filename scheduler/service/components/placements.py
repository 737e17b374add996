"""Which host and processor each rank of a group has.

A group has one mpiexec, on the host of its first processor; the agents of its other hosts start the
proxies of that mpiexec. All nodes with the launcher local are on one host, that of the service.
"""

from __future__ import annotations

from itertools import chain, zip_longest

from reshape.wire import messages as m
from scheduler.model.job import Job
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.sites.site import Site


class Placements:
    """Maps the processors of groups to hosts and ranks."""

    def __init__(self, core: Site, monitor: SystemMonitor) -> None:
        self._core, self._monitor = core, monitor
        self.has_hosts = any(map(monitor.is_remote, monitor.nodes))

    def node_of(self, job: Job, group: int) -> str:
        """Return the node of a group's first processor, whose agent starts its mpiexec."""
        return next(iter(self._core.machine.by_node(job.groups[group])))

    def nodes_of(self, job: Job, group: int) -> list[str]:
        """Return the nodes whose agents start processes of a group, one for each of its hosts."""
        if not self.has_hosts:
            return [self.node_of(job, group)]
        found: dict[str, str] = {}  # host -> its first node
        for node in self._core.machine.by_node(job.groups[group]):
            found.setdefault(node if self._monitor.is_remote(node) else "", node)
        return list(found.values())

    def ranks(self, job: Job, group: int, placement: m.Placement) -> list[tuple[str, int]]:
        """Return (node, processor) of each rank of a group.

        Parameters
        ----------
        placement : "block": consecutive ranks on each host; "cyclic": ranks are dealt out to the
            hosts in turn.
        """
        by_host: dict[str, list[tuple[str, int]]] = {}
        for node, held in self._core.machine.by_node(job.groups[group]).items():
            host = node if self._monitor.is_remote(node) else ""
            by_host.setdefault(host, []).extend((node, number) for number in held)
        if placement == "cyclic":
            turns = chain.from_iterable(zip_longest(*by_host.values()))
            return [rank for rank in turns if rank is not None]
        return list(chain.from_iterable(by_host.values()))

    def rank_hosts(self, job: Job, group: int, placement: m.Placement) -> list[int]:
        """Return the position in `nodes_of` of the host of each rank."""
        hosts = {
            node if self._monitor.is_remote(node) else "": position
            for position, node in enumerate(self.nodes_of(job, group))
        }
        ranks = self.ranks(job, group, placement)
        return [hosts[node if self._monitor.is_remote(node) else ""] for node, _ in ranks]

    def table(self, job: Job, placement: m.Placement) -> list[m.RankPlace]:
        """Describe where each rank of each group of a job is."""
        numbers = {name: list(node.numbers) for name, node in self._core.machine.nodes.items()}
        return [
            m.RankPlace(group=group, rank=rank, node=node, core=numbers[node].index(processor))
            for group in job.groups
            for rank, (node, processor) in enumerate(self.ranks(job, group, placement))
        ]
