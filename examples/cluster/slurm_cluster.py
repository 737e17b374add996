"""A Slurm cluster on hosts made of namespaces (`hosts`): slurmctld beside them, a slurmd on each.

Debian's packages are installed if they are missing and apt can do so. The configuration, the spool
folders and the logs of the daemons lie in one temporary folder; no file of the system is changed
and no service of the system is started.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from hosts import BOUND, HEAD, NETWORK, Hosts, NoHosts

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
_PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "squeue", "scontrol", "munged")
_INSTALL_S, _LIMIT_S = 120.0, 30.0
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"

_CONFIG = """\
ClusterName=reshape
SlurmctldHost={head}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0,sched_min_interval=0
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
KillWait=5
MinJobAge={keep_s}
OverTimeLimit=0
InactiveLimit=0
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


class SlurmCluster:
    """Hosts ``n1``, ``n2`` and so on under a Slurm, until the end of the block.

    Parameters
    ----------
    hosts : number of hosts.
    processors : number of processors of each host, as Slurm counts them.
    keep_s : seconds for which squeue shows ended jobs.

    Raises
    ------
    NoHosts : at the beginning of the block: no such hosts, or no Slurm, can be made here.
    """

    def __init__(self, hosts: int = 3, processors: int = 4, keep_s: int = 300) -> None:
        self.hosts = Hosts(hosts)
        self.processors, self.keep_s = processors, keep_s
        self.names = [f"n{i}" for i in range(1, hosts + 1)]
        self.folder = Path()
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> SlurmCluster:
        """Start the hosts and the daemons, and wait until all nodes are idle."""
        self.hosts.__enter__()
        self.folder = Path(tempfile.mkdtemp(prefix="reshape-slurm-"))
        try:
            install()
            self.folder.chmod(0o755)
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all jobs, the daemons and the hosts."""
        if error is not None:
            self._print_logs()
        self._end()

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a user of this Slurm."""
        path = f"{os.environ.get('PATH', '')}:{_SBIN}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        return clean | {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": path}

    def command(self, *argv: str) -> list[str]:
        """Return the command that runs another command on the login host."""
        return self.hosts.on_head(*argv)

    def run(
        self, *argv: str, check: bool = True, cwd: Path | None = None, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login host.

        Raises
        ------
        RuntimeError : it failed; the message has its standard error.
        """
        done = subprocess.run(
            self.command(*argv),
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=cwd,
            input=stdin,
            timeout=120,
            check=False,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)}: exit code {done.returncode}: {done.stderr}")
        return done

    def start(self, *argv: str, **options: object) -> subprocess.Popen[bytes]:
        """Start a command on the login host."""
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            self.command(*argv), env=self.environment, **options
        )

    def node_states(self) -> dict[str, str]:
        """State of each node in Slurm."""
        lines = self.run("sinfo", "--noheader", "--Node", "--format=%N %T").stdout.splitlines()
        return dict(line.split() for line in lines)

    def state_of(self, job: str) -> str:
        """State of a Slurm job, which may have ended."""
        squeue = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]
        return self.run(*squeue).stdout.strip()

    def stop_controller(self, *, kill: bool = False) -> None:
        """Stop slurmctld, or kill it: what happened in the last 5 s is then lost to it."""
        controller = self._daemons.pop("slurmctld")
        if kill:
            controller.kill()
        else:
            controller.terminate()
        controller.wait(_LIMIT_S)

    def start_controller(self) -> None:
        """Start slurmctld, and wait until it answers."""
        self._daemon("slurmctld", self.command("slurmctld", "-D"))
        self._until("slurmctld does not answer", self._is_up)

    def _start(self) -> None:
        (self.folder / "state").mkdir()
        nodes = "\n".join(
            f"NodeName={name} NodeAddr={NETWORK}.{name[1:]} CPUs={self.processors}"
            " RealMemory=4000 State=UNKNOWN"
            for name in self.names
        )
        text = _CONFIG.format(
            head=socket.gethostname().partition(".")[0],
            address=HEAD,
            folder=self.folder,
            nodes=nodes,
            names=",".join(self.names),
            keep_s=self.keep_s,
        )
        (self.folder / "slurm.conf").write_text(text)
        self._start_munge()
        self.start_controller()
        for name in self.names:
            self._daemon(name, self.hosts[name].command(["slurmd", "-D"]))
        idle = dict.fromkeys(self.names, "idle")
        self._until("the nodes are not idle", lambda: self.node_states() == idle)

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        files = [
            f"--{option}-file={self.folder}/munge.{option}"
            for option in ("key", "log", "pid", "seed")
        ]
        path = f"--socket={self.folder}/munge.socket"
        # The folder is that of a user, so munged has to be forced to use it.
        self._daemon("munged", ["munged", "--foreground", "--force", path, *files])
        self._until("munged does not start", (self.folder / "munge.socket").exists)

    def _daemon(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                [*BOUND, *command],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _is_up(self) -> bool:
        return "is UP" in self.run("scontrol", "ping", check=False).stdout

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + _LIMIT_S
        while not condition():
            ended = [name for name, each in self._daemons.items() if each.poll() is not None]
            if ended or time.monotonic() > end:
                self._print_logs()
                raise NoHosts(f"no Slurm can be run here: {what}; ended: {ended}")
            time.sleep(0.1)

    def _end(self) -> None:
        if "slurmctld" in self._daemons:
            self.run("scancel", "--state=PENDING", check=False)
        self.hosts.__exit__(None, None, None)  # with all their processes
        for daemon in self._daemons.values():
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _print_logs(self) -> None:
        for log in sorted(self.folder.glob("*.log")):
            print(f"--- {log}\n{log.read_text(errors='replace')[-1000:]}")


def install() -> None:
    """Install Slurm from Debian's packages, unless it is there.

    Raises
    ------
    NoHosts : it is not there, and cannot be installed.
    """
    if not (missing := _missing()):
        return
    if shutil.which("apt-get") is None:
        raise NoHosts(f"there is no {', '.join(missing)}, and no apt-get to install it")
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    command = ["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=quiet, timeout=_INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoHosts(f"{' '.join(command)} took longer than {_INSTALL_S:g} s") from None
    if done.returncode != 0 or (missing := _missing()):
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise NoHosts(f"there is no {', '.join(missing)}; {' '.join(command)}: {lines[-1]}")


def _missing() -> list[str]:
    path = f"{os.environ.get('PATH', '')}:{_SBIN}"
    return [name for name in _PROGRAMS if shutil.which(name, path=path) is None]
