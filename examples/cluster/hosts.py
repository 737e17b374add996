"""Hosts for tests: Linux namespaces between which nothing passes but a network and the file system.

Each host has its own network, mount (with its own /dev/shm), UTS, IPC and PID namespaces. A bridge
in one more network namespace joins them; the network of the machine is not touched. A service runs
in that namespace, so that it shares processes and files with the test, and nothing but the network
with the hosts. Root is needed. The hosts end with the process that made them, in whatever way it
ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

#: Network of the hosts, which exists only in their namespaces.
NETWORK = "10.99.0"
#: Address of the network namespace that joins the hosts.
HEAD = f"{NETWORK}.254"
_LIMIT_S = 10.0
_TOOLS = ("ip", "unshare", "nsenter", "mount", "setpriv")
#: Before a command: the kernel kills its process when the process that has started it ends.
BOUND = ("setpriv", "--pdeathsig", "KILL")


class NoHosts(Exception):  # noqa: N818 - a state of the machine
    """Hosts cannot be made on this machine, or by this user; the message is the reason."""


class Host:
    """One host: `init` is the process whose end removes it."""

    def __init__(self, name: str, address: str, outer: subprocess.Popen[bytes], init: int) -> None:
        self.name, self.address, self.outer, self.init = name, address, outer, init

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs another command in this host."""
        enter = ["nsenter", "-t", str(self.init), "-n", "-u", "-i", "-m", "-p"]
        return [*enter, f"--wd={os.getcwd()}", "--", *argv]

    def start(self, *argv: str, **options: object) -> subprocess.Popen[bytes]:
        """Start a command in this host."""
        return subprocess.Popen(self.command(argv), **options)  # type: ignore[call-overload,no-any-return]

    def kill(self) -> None:
        """Kill the host: all its processes end at once, and its memory is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        self.outer.wait(_LIMIT_S)


class Hosts:
    """Hosts ``n1``, ``n2`` and so on, until the end of the block.

    Parameters
    ----------
    count : number of hosts.

    Raises
    ------
    NoHosts : at the beginning of the block: not root, a missing tool, or a system that refuses.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.hosts: dict[str, Host] = {}
        self._switch: subprocess.Popen[bytes] | None = None
        self._folder = Path()

    def __enter__(self) -> Hosts:
        """Make the hosts."""
        if os.geteuid() != 0:
            raise NoHosts("only root can make hosts of namespaces")
        missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
        if missing:
            raise NoHosts(f"there is no {', '.join(missing)}")
        self._folder = Path(tempfile.mkdtemp(prefix="reshape-hosts-"))
        try:
            self._make()
        except (OSError, subprocess.SubprocessError, NoHosts) as error:
            self._remove()
            detail = getattr(error, "stderr", None) or str(error)
            raise NoHosts(f"cannot make hosts of namespaces here: {detail}") from None
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the hosts with all their processes."""
        self._remove()

    def __getitem__(self, name: str) -> Host:
        """Return a host by its name."""
        return self.hosts[name]

    def on_head(self, *argv: str) -> list[str]:
        """Return the command that runs another command beside the hosts, in their network."""
        assert self._switch is not None
        return ["nsenter", "-t", str(self._switch.pid), "-n", "--", *argv]

    def cut(self, name: str) -> None:
        """Cut a host from the network."""
        self._in_switch("ip", "link", "set", f"v{name}", "down")

    def join(self, name: str) -> None:
        """Join a host to the network again."""
        self._in_switch("ip", "link", "set", f"v{name}", "up")

    def ssh(self) -> Path:
        """Write a command that runs another one in a host, with the arguments of ssh."""
        lines = [f"{host.address}) pid={host.init};;" for host in self.hosts.values()]
        path = self._folder / "ssh"
        path.write_text(
            '#!/bin/sh\nwhile [ "$1" = -o ]; do shift 2; done\n[ "$1" = -- ] && shift\n'
            f'case "$1" in\n{chr(10).join(lines)}\n'
            '*) echo "ssh: could not resolve $1" >&2; exit 255;;\nesac\nshift\n'
            'exec nsenter -t "$pid" -n -u -i -m -p --wd="$PWD" -- sh -c "$*"\n'
        )
        path.chmod(0o755)
        return path

    def _make(self) -> None:
        names = {f"n{i}": f"{NETWORK}.{i}" for i in range(1, self.count + 1)}
        table = self._folder / "hosts"
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in names.items())]
        table.write_text("\n".join(lines) + "\n")
        self._switch = subprocess.Popen(
            [*BOUND, "unshare", "--net", "sleep", "infinity"],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._await_namespace(self._switch.pid)
        self._in_switch("ip", "link", "set", "lo", "up")
        # A bridge without an address of its own takes another one when a host is lost.
        bridge = ["name", "br0", "address", "02:00:00:00:00:fe", "type", "bridge"]
        self._in_switch("ip", "link", "add", *bridge)
        self._in_switch("ip", "link", "set", "br0", "up")
        # MPI does not use the interface of a bridge, so the service has one of its own.
        pair = ["eth0", "type", "veth", "peer", "name", "vhead"]
        self._in_switch("ip", "link", "add", *pair)
        self._in_switch("ip", "link", "set", "vhead", "master", "br0", "up")
        self._in_switch("ip", "addr", "add", f"{HEAD}/24", "dev", "eth0")
        self._in_switch("ip", "link", "set", "eth0", "up")
        for name, address in names.items():
            self._make_host(name, address, table)

    def _make_host(self, name: str, address: str, table: Path) -> None:
        ready = self._folder / f"{name}.ready"
        script = (
            f"hostname {name} && mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
            f" && mount --bind {table} /etc/hosts && ip link set lo up && touch {ready}"
            " && exec sleep infinity"
        )
        spaces = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child"]
        outer = subprocess.Popen(
            [*BOUND, "unshare", *spaces, "--mount-proc", "sh", "-c", script],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.hosts[name] = Host(name, address, outer, 0)
        end = time.monotonic() + _LIMIT_S
        while not ready.exists():
            if outer.poll() is not None or time.monotonic() > end:
                raise NoHosts("unshare or mount was refused")
            time.sleep(0.01)
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        init = int(children[0])
        self.hosts[name].init = init
        pair = ["type", "veth", "peer", "name", "eth0", "netns", str(init)]
        self._in_switch("ip", "link", "add", f"v{name}", *pair)
        self._in_switch("ip", "link", "set", f"v{name}", "master", "br0", "up")
        inside = ["nsenter", "-t", str(init), "-n"]
        _run(*inside, "ip", "addr", "add", f"{address}/24", "dev", "eth0")
        _run(*inside, "ip", "link", "set", "eth0", "up")

    def _await_namespace(self, pid: int) -> None:
        """Wait until a process has its own network namespace."""
        end = time.monotonic() + _LIMIT_S
        while os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            if time.monotonic() > end:
                raise NoHosts("unshare was refused")
            time.sleep(0.01)

    def _in_switch(self, *argv: str) -> None:
        _run(*self.on_head(*argv))

    def _remove(self) -> None:
        for host in self.hosts.values():
            if host.init:
                host.kill()
            elif host.outer.poll() is None:
                host.outer.kill()
                host.outer.wait(_LIMIT_S)
        if self._switch is not None:
            self._switch.kill()
            self._switch.wait(_LIMIT_S)
        shutil.rmtree(self._folder, ignore_errors=True)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True, timeout=_LIMIT_S)
