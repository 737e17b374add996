"""A service on the login host of a Slurm cluster (`slurm_cluster`) with an elastic pool."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster import Cluster
from slurm_cluster import SlurmCluster

from scheduler.protocol import messages as m

_ADD_S = 60.0
#: The service has no node of its own.
_NO_NODES = "  []\n"


class PoolService(Cluster):
    """A service on the login host whose nodes are those of a pool.

    Parameters
    ----------
    folder : for the service directory and the output of jobs.
    slurm : the Slurm cluster, within its block.
    pool : options of the pool, as `reshape pool add` has them.
    arguments : further options of sbatch.
    config, options, policies : as for `Cluster`.
    """

    def __init__(
        self,
        folder: Path,
        slurm: SlurmCluster,
        pool: Mapping[str, str],
        arguments: Sequence[str] = (),
        config: str = "",
        options: Sequence[str] = (),
        policies: Path | None = None,
    ) -> None:
        super().__init__(
            folder,
            0,
            launcher="pool",
            config=config,
            options=options,
            local_nodes=_NO_NODES,
            policies=policies,
        )
        self.slurm, self.hosts = slurm, slurm.hosts
        self._pool, self._arguments = dict(pool), tuple(arguments)

    def environment(self) -> dict[str, str]:
        """Environment of a user of the Slurm cluster."""
        path = Path(sys.executable).parent
        environment = self.slurm.environment
        return environment | {"PATH": f"{path}:{environment['PATH']}"}

    def add_pool(self, name: str = "slurm") -> str:
        """Add the pool, for all jobs; return what Slurm answered to the dry run."""
        addition = m.AddPool(name, self._pool, self._arguments)
        answer = self.ask(m.ChangeMachine(change=addition), _ADD_S)
        assert isinstance(answer, m.PoolAdded)
        return answer.said

    def pool(self) -> m.PoolInfo:
        """Return the pool."""
        answer = self.ask(m.ListMachine(part="pools"))
        assert isinstance(answer, m.PoolList)
        return answer.pools[0]

    def allocations(self) -> list[str]:
        """State of each allocation of the pool, the oldest first."""
        return [each.state for each in self.pool().allocations]

    def _open(self) -> None:
        """The hosts are those of the Slurm cluster, which is up."""

    def _close(self) -> None:
        """The hosts remain."""
