"""Logs stay bounded."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.node.logs import BoundedLog

PROGRAM = """
import logging, sys, pathlib
from scheduler.node import logs
logs.MAX_BYTES = 10_000
logs.log_to_file(pathlib.Path(sys.argv[1]))
for number in range(2000):
    logging.info("line %d", number)
"""


def test_a_log_is_rotated_and_old_files_are_removed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / "x.log")], check=True)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["x.log", "x.log.1", "x.log.2"]
    assert all(path.stat().st_size <= 10_000 for path in tmp_path.iterdir())
    assert (tmp_path / "x.log").read_text().endswith("line 1999\n")


def test_refusals_are_counted_and_logged_once_in_an_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = BoundedLog(logging.getLogger("test"), burst=1, per_second=0.001)
    for _ in range(100):
        refusals.error("refused: %s", "no message")
    assert refusals.omitted == 99
    assert [record.getMessage() for record in caplog.records] == ["refused: no message"]
