"""Processes that are forked beside the agent, which here is this process."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import psutil
from waiting import wait_until

from scheduler.node.launching.launcher import MpiexecStart, ProcessLauncher


def run(
    launcher: ProcessLauncher,
    output: Path,
    *argv: str,
    umask: int | None = None,
    limits: Mapping[str, int] = MappingProxyType({}),
    **environment: str,
) -> MpiexecStart:
    """Start a program and wait for its end."""
    start = launcher.start(
        argv,
        {"PATH": os.environ["PATH"], **environment},
        cwd=str(output.parent),
        output=str(output),
        truncate=True,
        umask=umask,
        limits=limits,
        is_program=True,
    )
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
    child = os.fork()
    if not child:  # a host with a lower limit
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            own, asked = ProcessLauncher(), {"CORE": 4096}
            run(own, output, "sh", "-c", "ulimit -Sc", limits=asked)
            own.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    expected = "reshape: the limit CORE is 0 here, and was 4096 at the submission\n0\n"
    assert output.read_text() == expected
