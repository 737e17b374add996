"""A full disk under the journal: commands are refused until there is room."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reshape.errors import ReshapeError
from reshape.wire import messages as m


@pytest.fixture
def small_disk(served: Any) -> Iterator[Path]:
    """Put the directory of the service on a file system of 8 MiB."""
    served.directory.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "none", str(served.directory)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield served.directory
        (served.directory / "filler").unlink(missing_ok=True)
        served.end()
    finally:
        subprocess.run(["umount", "-l", str(served.directory)], check=True)


def test_a_full_disk_stops_decisions_until_there_is_room(served: Any, small_disk: Path) -> None:
    served.start("--processors", "2")
    running = served.submit(["sleep", "3"], 1)
    served.until(running, "RUNNING")
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    with pytest.raises(ReshapeError, match=r"is full .* no job is accepted until there is room"):
        served.submit(["true"], 1)
    until = time.monotonic() + 30
    while not served.ask(m.ServerInfo()).halted:  # the job ends, which cannot be written
        assert time.monotonic() < until, "the disk does not keep the service from writing"
        time.sleep(0.05)
    with pytest.raises(ReshapeError, match="the service waits until there is room"):
        served.ask(m.Cancel(job=running))
    for question in (m.ListJobs(ended=True), m.ListJobs(job=running)):
        (job,) = served.ask(question).jobs
        assert job.job == running
    assert "starts on processors" in served.story(running)
    shown = subprocess.run(
        [sys.executable, "-m", "reshape", "info", "--dir", str(served.directory)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "nothing is decided until there is room" in shown.stdout
    assert served.process.poll() is None
    filler.unlink()
    until = time.monotonic() + 20
    while True:
        try:
            last = served.submit(["true"], 1)
            break
        except ReshapeError:
            assert time.monotonic() < until, "the service does not continue"
            time.sleep(0.1)
    for number in range(1, last + 1):
        answer = served.ask(m.Wait(job=number))
        assert isinstance(answer, m.Jobs)
        assert answer.jobs[0].state == "COMPLETED"
