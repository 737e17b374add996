"""Errands of an agent that the test plays: their time limit, and what is left of them."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import psutil
import pytest
from waiting import wait_until

from scheduler.node.directory import ServiceDirectory
from scheduler.node.errands import Errands
from scheduler.node.launching.launcher import ProcessLauncher
from scheduler.node.leftovers import MpiFiles
from scheduler.protocol import messages as m


def test_a_hook_is_ended_with_all_that_it_has_started(
    launcher: ProcessLauncher,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scheduler.node.errands.HOOK_S", 0.0)
    files = MpiFiles(tmp_path / "mpi-files")
    errands = Errands(launcher, ServiceDirectory(tmp_path), "test/node", files)
    environment = {"PATH": os.environ["PATH"]}
    command = "sleep 1000 & echo $! > pid; sleep 1000"
    bounds = m.JobBounds(str(tmp_path))
    order = m.RunHook(job=3, command=command, environment=environment, bounds=bounds)
    file = tmp_path / "pid"
    errands.start_hook(order)
    errands.start_hook(order)
    (tree,) = errands.trees()
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"))

    def is_over() -> bool:
        errands.examine()
        if tree.status is None:
            pid, status, _ = os.wait4(tree.pid, os.WNOHANG)
            if pid:
                tree.reaped(status, 0)
        return not [*errands.trees()]

    with caplog.at_level(logging.WARNING):
        wait_until(is_over)
    sleeper = int(file.read_text())
    with contextlib.suppress(ChildProcessError):  # it was adopted, or reaped by then
        os.waitpid(sleeper, 0)
    assert not psutil.pid_exists(sleeper)
    assert "hook 3 is ended after 0 s" in caplog.text
    assert "hook 3 ended with 0:9" in caplog.text
