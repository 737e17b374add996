"""Descendants as the kernel lists them, compared with a search of all processes."""

from __future__ import annotations

import os
import signal
import subprocess
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from scheduler.node import processes
from scheduler.node.processes import ProcessTree, children_of, descendants_of, is_alive

#: A shell with two children, one of which has a child; it reports when all of them run.
TREE = "sleep 100 & sh -c 'sleep 100 & echo up; wait' & wait"


def test_descendants_are_those_of_a_search() -> None:
    with subprocess.Popen(
        ["sh", "-c", TREE], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        shell = psutil.Process(process.pid)
        assert children_of(process.pid) == {child.pid for child in shell.children()}
        found = descendants_of(process.pid)
        assert found == {child.pid for child in shell.children(recursive=True)}
        assert len(found) == 3
        assert process.pid in children_of(os.getpid())
        os.killpg(process.pid, 9)
    assert descendants_of(process.pid) == set()


def test_only_processes_without_a_parent_are_strays(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(
        ["sh", "-c", TREE], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        found = [psutil.Process(pid) for pid in descendants_of(process.pid)]
        start: Any = SimpleNamespace(pid=process.pid)
        tree = ProcessTree({}, start, seen={each.pid: each for each in found})
        # The list of children lacks one if their parent waits for another one meanwhile.
        monkeypatch.setattr(processes, "children_of", lambda pid: set())
        assert not tree.kill_strays()
        assert all(map(is_alive, found))
        (between,) = (each for each in found if each.children())
        (stray,) = between.children()
        between.kill()
        psutil.wait_procs([between])
        assert tree.kill_strays()
        psutil.wait_procs([stray])
        assert [is_alive(each) for each in found] == [
            each not in (between, stray) for each in found
        ]
        os.killpg(process.pid, 9)


def test_the_mpiexec_of_another_group_is_not_searched() -> None:
    """Of hundreds of groups that end together each would read the environments of all others."""
    marker = {"RESHAPE_AGENT": "agent", "RESHAPE_AGENT_GROUP": "1.1"}
    with (
        subprocess.Popen(["sleep", "1000"]) as own,
        subprocess.Popen(["sleep", "1000"], env={**os.environ, **marker}) as other,
    ):
        roots = {other.pid}
        start: Any = SimpleNamespace(pid=own.pid)
        tree = ProcessTree(marker, start, roots=roots)
        assert roots == {own.pid, other.pid}
        assert not tree.kill_descendants()
        assert other.poll() is None
        roots.discard(other.pid)  # it is an orphan of the group now
        assert tree.kill_descendants()
        assert other.wait() == -signal.SIGKILL
        own.kill()
