"""Run one mpiexec whose processes are on several hosts: the part on the host of mpiexec.

This file is executed as a script, by :mod:`scheduler.node.launching.starter`.

    python -I -S spanning.py MPIEXEC [ARGUMENT]...

The variables RESHAPE_STATUS and RESHAPE_PROXIES have the numbers of file descriptors: that of the
start, which is used as in the starter, and the one named below.

``mpiexec -launcher manual`` prints one command for each host, which starts the proxy of the host,
and waits until all proxies have connected. This process starts the first proxy and writes the
commands of the others to RESHAPE_PROXIES, as a JSON list of lists; agents start those
on their hosts. From then on it copies what mpiexec prints, which is the output of the job, and ends
as mpiexec does.

Hydra gives the environment of mpiexec to all processes of a job, on top of that of their proxy. The
variables RESHAPE_AGENT, RESHAPE_CPUS and RESHAPE_REPORT, and those with paths in shared memory,
differ between hosts, so only the proxies have them.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from scheduler.node.launching.prctl import die_with_parent
    from scheduler.node.launching.starter import fail
else:  # importing the package takes longer than all that is done here
    sys.path.append(os.path.dirname(__file__))
    from prctl import die_with_parent
    from starter import fail

_OF_HOST = ["RESHAPE_AGENT", "RESHAPE_CPUS", "RESHAPE_REPORT"]
_OF_HOST += ["RESHAPE_SHM", "RESHAPE_SERVER", "RESHAPE_OWN_FOLDERS"]
_LINE, _END = b"HYDRA_LAUNCH: ", b"HYDRA_LAUNCH_END"
_LOST = b"\nreshape: output is missing here: there was no room for it\n"
#: Seconds that the proxy may take to end after mpiexec.
_PROXY_S = 5.0


def main() -> None:
    """Run mpiexec as the arguments say."""
    command = sys.argv[1:]
    status, proxies = (int(os.environ.pop(name)) for name in ("RESHAPE_STATUS", "RESHAPE_PROXIES"))
    os.set_inheritable(status, False)
    os.set_inheritable(proxies, False)
    environment = {name: value for name, value in os.environ.items() if name not in _OF_HOST}
    try:
        mpiexec = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            env=environment,
            restore_signals=False,  # SIGPIPE stays ignored: see starter.py
            preexec_fn=_die_with_this_process,  # noqa: PLW1509 - this process has one thread
        )
    except OSError as error:
        fail(status, f"cannot start {command[0]}", error, is_job=error.errno == errno.E2BIG)
    os.close(status)
    _forward_signals(mpiexec)
    commands = _proxy_commands(mpiexec)
    os.write(proxies, json.dumps(commands[1:]).encode())
    os.close(proxies)
    proxy = _start_proxy(commands[0]) if commands else None
    _copy_output(mpiexec)
    code = mpiexec.wait()
    if proxy is not None:
        _await(proxy)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _proxy_commands(mpiexec: subprocess.Popen[bytes]) -> list[list[str]]:
    """Read the commands of the proxies; what else mpiexec prints is output."""
    assert mpiexec.stdout is not None
    commands = []
    for line in mpiexec.stdout:
        if line.startswith(_END):
            break
        if line.startswith(_LINE):
            commands.append(shlex.split(line.removeprefix(_LINE).decode()))
        else:
            os.write(1, line)
    return commands


def _start_proxy(command: list[str]) -> subprocess.Popen[bytes]:
    """Start the proxy of this host, whose ranks report to the agent."""
    report = int(os.environ["RESHAPE_REPORT"])
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[report])


def _copy_output(mpiexec: subprocess.Popen[bytes]) -> None:
    """Copy what mpiexec prints; while the disk is full, the job continues without its output."""
    assert mpiexec.stdout is not None
    is_lost = False
    while data := mpiexec.stdout.read1(1 << 16):  # type: ignore[attr-defined]
        view = memoryview(_LOST + data if is_lost else data)
        try:
            while view:
                view = view[os.write(1, view) :]
                is_lost = False
        except OSError:
            is_lost = True


def _await(proxy: subprocess.Popen[bytes]) -> None:
    try:
        proxy.wait(_PROXY_S)
    except subprocess.TimeoutExpired:
        proxy.kill()
        proxy.wait()


def _forward_signals(mpiexec: subprocess.Popen[bytes]) -> None:
    def forward(number: int, _frame: FrameType | None) -> None:
        mpiexec.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)


def _die_with_this_process() -> None:
    """Let the kernel kill mpiexec when this process dies; its proxies then end their processes."""
    die_with_parent()
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # ignored by the interpreter


if __name__ == "__main__":
    main()
