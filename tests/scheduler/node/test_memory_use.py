"""The largest memory of jobs, measured on real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from scheduler.node.launching.launcher import MpiexecStart
from scheduler.node.processes import MemoryUse, ProcessTree

#: A parent whose child first holds 120 MB and then 20 MB, each until a line is read.
PROGRAM = """
import subprocess, sys
child = "data = bytearray(120_000_000); print('up', flush=True); input(); data = None;"
child += "data = bytearray(20_000_000); print('down', flush=True); input()"
sys.exit(subprocess.run([sys.executable, "-c", child]).returncode)
"""


def started(process: subprocess.Popen[bytes]) -> MpiexecStart:
    """Let a program take the place of mpiexec."""
    start = MpiexecStart(lambda _: process.pid, 1)
    start.close()
    return start


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], **pipes) as process:
        yield process
        process.kill()


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> MemoryUse:
    """It takes every sample."""
    monkeypatch.setattr("scheduler.node.processes.SAMPLE_S", 0.0)
    return MemoryUse()


def test_the_largest_sum_is_kept(process: subprocess.Popen[bytes], use: MemoryUse) -> None:
    tree = ProcessTree({}, started(process))
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    tree.look()
    use.sample([(5, tree)])
    first = use.report()[5]
    assert 115 < first < 150
    use.sample([(5, tree), (5, tree)])
    assert use.report()[5] == pytest.approx(2 * first, abs=2), "groups of a job are added"
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"down\n"
    use.sample([(5, tree)])
    assert use.report()[5] == pytest.approx(2 * first, abs=2)
    use.forget(5)
    assert use.report() == {}


def test_a_process_that_has_ended_uses_no_memory(process: subprocess.Popen[bytes]) -> None:
    tree = ProcessTree({}, started(process))
    assert process.stdout is not None
    process.stdout.readline()
    tree.look()
    (child,) = tree.present
    assert tree.resident_bytes() > 100e6
    child.kill()
    child.wait()
    assert tree.resident_bytes() == 0


def test_the_largest_process_counts_if_no_sample_saw_it(use: MemoryUse) -> None:
    use.ended(5, 1 << 20)
    assert use.report() == {}, "less than this process has, of which new processes are copies"
    use.ended(5, 1 << 40)
    assert use.report() == {5: 1 << 20}


def test_processes_that_were_not_found_yet_use_nothing(
    process: subprocess.Popen[bytes], use: MemoryUse
) -> None:
    process.kill()
    process.wait()
    use.sample([(1, ProcessTree({}, started(process)))])
    assert use.report() == {}
