"""Processes that are forked beside the agent, which here is this process."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest
from waiting import wait_until

from scheduler.node.launching.launcher import MpiexecStart, ProcessLauncher, mpiexec_over_hosts
from scheduler.node.launching.starter import CANNOT_START, start_mpiexec
from scheduler.protocol.agent_messages import GroupEnd, JobBounds


def run(
    launcher: ProcessLauncher,
    output: Path,
    *argv: str,
    umask: int | None = None,
    limits: Mapping[str, int] = MappingProxyType({}),
    **environment: str,
) -> MpiexecStart:
    """Start a program and wait for its end."""
    bounds = JobBounds(
        str(output.parent), str(output), truncate=True, umask=umask, limits=dict(limits)
    )
    environment.setdefault("PATH", os.environ["PATH"])
    start = launcher.start(argv, environment, bounds, is_program=True)
    _, status = os.waitpid(start.pid, 0)
    wait_until(lambda: not start.is_pending)
    start.end(status, is_proxy=False)
    start.close()
    return start


def starters() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # a zombie of another test
            if any("starter.py" in word for word in child.cmdline()):
                found.append(child)
    return found


def in_child(body: Callable[[], object]) -> None:
    """Call a function in a fork of this process."""
    child = os.fork()
    if not child:
        try:
            body()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def test_a_program_is_a_child_with_what_was_asked_for_alone(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    script = "env; pwd; echo parent $PPID; ls -l /proc/self/fd; grep SigIgn /proc/self/status; cat"
    start = run(launcher, output, "sh", "-c", script, NAME="value ö\udcff")
    assert start.begun == {0: start.pid}
    assert start.failed is None
    text = output.read_text(errors="surrogateescape")
    assert "NAME=value ö\udcff\n" in text
    assert f"\n{tmp_path}\n" in text
    assert f"parent {os.getpid()}\n" in text
    assert "RESHAPE" not in text
    assert "socket:" not in text
    assert "pipe:" not in text
    ignored = int(text.partition("SigIgn:")[2].split()[0], 16)
    assert not ignored & 1 << signal.SIGPIPE - 1
    assert os.getsid(0) != start.pid


def test_the_end_of_a_program_is_that_of_its_process(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    for script, codes in (("exit 11", (11, 0)), ("kill -11 $$", (0, 11)), ("exit 139", (139, 0))):
        start = run(launcher, tmp_path / "out", "sh", "-c", script)
        assert start.failed is not None
        assert (start.failed.exit_code, start.failed.signal) == codes


def test_a_program_that_cannot_be_executed_is_a_failure_of_the_job(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    start = run(launcher, output, "./none")
    assert start.failure == ("job", "cannot start ./none: No such file or directory")
    assert output.read_text() == "cannot start ./none: No such file or directory\n"


def test_a_file_without_a_format_is_a_script_of_the_shell(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_text("echo script $1\n")
    program.chmod(0o700)
    for name in ("./program", "program"):
        run(launcher, tmp_path / "out", name, "x", PATH=f"/bin:{tmp_path}")
        assert (tmp_path / "out").read_text() == "script x\n"


def test_a_starter_that_was_killed_is_replaced(launcher: ProcessLauncher, tmp_path: Path) -> None:
    run(launcher, tmp_path / "out", "true")
    (process,) = starters()
    process.kill()
    os.waitpid(process.pid, 0)
    assert run(launcher, tmp_path / "out", "true").failed is None
    assert len(starters()) == 1


def test_a_starter_that_does_not_answer_in_time_is_killed(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    run(launcher, tmp_path / "out", "true")
    (process,) = starters()
    connection = launcher._connection
    assert connection is not None
    connection.settimeout(0.1)
    process.suspend()
    assert run(launcher, tmp_path / "out", "true").failed is None, "by another starter"
    assert os.waitpid(process.pid, 0)[1] == signal.SIGKILL
    assert len(starters()) == 1


def test_many_starts_leave_no_process_and_no_descriptor(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    run(launcher, tmp_path / "out", "true")
    (process,) = starters()
    before, own = process.num_fds(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        run(launcher, tmp_path / "out", "true")
    assert (process.num_fds(), len(os.listdir("/proc/self/fd"))) == (before, own)
    assert process.children() == []
    launcher.close()
    os.waitpid(process.pid, 0)


def test_a_program_has_the_umask_and_the_limits_of_its_submission(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    output, hard = tmp_path / "out", resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limits = {"CORE": 0, "NOFILE": 123, "CPU": 1000, "STACK": resource.RLIM_INFINITY}
    script = "umask; ulimit -Sc; ulimit -Sn; ulimit -Hn; ulimit -St; ulimit -Ss; touch file"
    run(launcher, output, "sh", "-c", script, umask=0o027, limits=limits)
    assert output.read_text().split() == ["0027", "0", "123", str(hard), "1000", "unlimited"]
    assert output.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_limit_above_that_of_the_host_is_reported_in_the_output(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    output = tmp_path / "out"

    def run_on_a_host_with_a_lower_limit() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        own, asked = ProcessLauncher(), {"CORE": 4096}
        run(own, output, "sh", "-c", "ulimit -Sc", limits=asked)
        own.close()

    in_child(run_on_a_host_with_a_lower_limit)
    expected = "reshape: the limit CORE is 0 here, and was 4096 at the submission\n0\n"
    assert output.read_text() == expected


def refused(launcher: ProcessLauncher, output: Path, limits: Mapping[str, int]) -> GroupEnd:
    """Try to start an mpiexec over two hosts; return the end that the service would learn."""
    command = mpiexec_over_hosts(["a", "b"], [0, 1], "127.0.0.1", ["true"])
    environment = {"PATH": os.environ["PATH"]}
    bounds = JobBounds(str(output.parent), str(output), limits=dict(limits))
    start = launcher.start(command, environment, bounds, spans=True)
    _, status = os.waitpid(start.pid, 0)
    wait_until(lambda: not start.is_pending)
    end = start.end(status, is_proxy=False)
    start.close()
    return end


def test_limits_that_leave_no_room_for_the_start_refuse_it(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """A node is not to blame for them, and drains after several starts that it is to blame for."""
    for limits, why in (
        ({"FSIZE": 1 << 70}, "cannot set the limits of the submission: "),
        ({"AS": 4 << 20}, "cannot start "),  # too little memory to import a module
        ({"NOFILE": 3}, "cannot start "),
    ):
        end = refused(launcher, tmp_path / "out", limits)
        assert (end.exit_code, end.began, end.fault) == (CANNOT_START, False, "job"), limits
        assert end.why.startswith(why)
        assert end.why.partition(": ")[2], "the reason"


#: Numbers of the call prctl(2) by machine.
PRCTL = {"x86_64": 157, "aarch64": 167}


class Step(ctypes.Structure):
    """A step of a filter of system calls: `struct sock_filter`."""

    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class Filter(ctypes.Structure):
    """A filter of system calls: `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.POINTER(Step)))


def refuse_death_signals() -> None:
    """Let the kernel refuse, from now on, to kill this process with its parent (seccomp(2))."""
    load, equal, give = 0x20, 0x15, 0x06
    steps = (Step * 6)(
        Step(load, 0, 0, 0),  # number of the call
        Step(equal, 0, 3, PRCTL[platform.machine()]),
        Step(load, 0, 0, 16),  # its first argument, on a little-endian machine
        Step(equal, 0, 1, 1),  # PR_SET_PDEATHSIG
        Step(give, 0, 0, 0x00050000 | errno.EPERM),
        Step(give, 0, 0, 0x7FFF0000),  # all other calls are carried out
    )
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_seccomp, with_filter = 38, 22, 2
    assert libc.prctl(no_new_privileges, 1, 0, 0, 0) == 0
    given = Filter(len(steps), steps)
    assert libc.prctl(set_seccomp, with_filter, ctypes.byref(given), 0, 0) == 0


@pytest.mark.skipif(platform.machine() not in PRCTL, reason="the number of prctl(2) is not known")
def test_processes_that_would_outlive_their_parents_are_not_started(tmp_path: Path) -> None:
    reader, writer = os.pipe()

    def start_without_death_signals() -> None:
        refuse_death_signals()
        mpiexec = start_mpiexec(["sleep", "600"], dict(os.environ), writer)
        os.write(writer, f"; exit code {mpiexec.wait()}; ".encode())
        try:
            run(ProcessLauncher(), tmp_path / "out", "sleep", "600")
        except OSError as error:
            os.write(writer, str(error).encode())

    in_child(start_without_death_signals)
    os.close(writer)
    with open(reader, encoding="utf-8") as told:
        assert told.read() == (
            "node: cannot bind mpiexec to its parent: Operation not permitted; exit code 126; "
            f"[Errno {errno.EAGAIN}] the process that starts others does not answer"
        )
