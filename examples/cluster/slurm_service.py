"""A service in an allocation of a Slurm cluster (`slurm_cluster`), as ``reshape serve --slurm``."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from cluster import Cluster
from slurm_cluster import SlurmCluster

_GRANT_S = 30.0


class SlurmService(Cluster):
    """A service on the login host of a Slurm cluster; its nodes are those of one allocation.

    Parameters
    ----------
    folder : for the service directory and the output of jobs.
    slurm : the Slurm cluster, within its block.
    nodes : number of nodes of the allocation.
    time_limit : of the allocation, as for salloc.
    config : lines of the configuration file, besides nodes and address.
    options : further options of ``reshape serve``.
    """

    def __init__(
        self,
        folder: Path,
        slurm: SlurmCluster,
        nodes: int,
        time_limit: str = "60",
        config: str = "",
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(folder, 0, launcher="slurm", options=["--slurm", "--allow-root", *options])
        self.slurm, self.hosts = slurm, slurm.hosts
        self._config = config
        self.request(nodes, time_limit)
        self._variables: dict[str, str] = {}
        self._allocation: subprocess.Popen[bytes] | None = None

    def request(self, nodes: int, time_limit: str) -> None:
        """Set how many nodes the next allocation has, and its time limit."""
        self._nodes, self._time_limit = nodes, time_limit

    @property
    def allocation(self) -> str:
        """Id of the allocation in Slurm."""
        return self._variables["SLURM_JOB_ID"]

    def environment(self) -> dict[str, str]:
        """Environment of a shell in the allocation."""
        return self.slurm.environment | self._variables

    def prepare_hosts(self) -> None:
        """Wait for an allocation of whole nodes."""
        self.folder.mkdir(exist_ok=True)
        granted = self.folder / "variables"
        granted.unlink(missing_ok=True)
        shell = f"env -0 > {granted}.new && mv {granted}.new {granted} && exec sleep infinity"
        options = [f"--nodes={self._nodes}", f"--time={self._time_limit}", "--exclusive"]
        command = ["salloc", "--quiet", "--kill-command=KILL", *options, "sh", "-c", shell]
        self._allocation = self.slurm.start(*command, start_new_session=True)
        end = time.monotonic() + _GRANT_S
        while not granted.exists():
            if self._allocation.poll() is not None or time.monotonic() > end:
                raise TimeoutError(f"no allocation of {self._nodes} nodes after {_GRANT_S:g} s")
            time.sleep(0.05)
        entries = (entry.partition("=") for entry in granted.read_text().split("\0") if entry)
        self._variables = {name: value for name, _, value in entries if name.startswith("SLURM")}
        self.names = self.slurm.run(
            "scontrol", "show", "hostnames", self._variables["SLURM_JOB_NODELIST"]
        ).stdout.split()

    def until_ended(self) -> None:
        """Wait until the service has ended, as it does after its allocation."""
        self.until(lambda: not self.place.server_file.exists())

    def release(self) -> None:
        """Give the allocation back; Slurm ends what runs in it."""
        if self._allocation is not None:
            self.slurm.run("scancel", self.allocation, check=False)
            self._allocation.wait(_GRANT_S)
            self._allocation = None

    def _open(self) -> None:
        """The hosts are those of the Slurm cluster, which is up."""

    def _close(self) -> None:
        """Give the allocation back; the hosts remain."""
        self.release()
