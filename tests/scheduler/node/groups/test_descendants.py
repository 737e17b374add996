"""Descendants as the kernel lists them, compared with a search of all processes."""

from __future__ import annotations

import os
import subprocess

import psutil

from scheduler.node.groups.processes import children_of, descendants_of

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
