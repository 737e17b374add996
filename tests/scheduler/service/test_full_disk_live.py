"""A full disk under the journal, full shared memory, and a full disk under outputs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from told import WAITS
from waiting import LIMIT_S, wait_until

from reshape.errors import ReshapeError
from scheduler.protocol import messages as m
from scheduler.protocol.client import connect


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
        served.kill_all()
        subprocess.run(["umount", str(served.directory)], check=True)


@pytest.fixture
def small_memory(served: Any) -> Path:
    """Start a service with a /dev/shm of its own, of 32 MiB; return the path to it from here."""
    script = 'mount -t tmpfs -o size=32m tmpfs /dev/shm && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh"]
    if os.geteuid() != 0 or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    serve = ["-m", "reshape", "serve", "--dir", str(served.directory), "--processors", "2"]
    served.process = subprocess.Popen([*command, sys.executable, *serve])
    served.endpoint = served.place.endpoint
    wait_until(served.place.server_file.exists)
    return Path(f"/proc/{served.process.pid}/root/dev/shm")


def accepted(served: Any) -> int:
    """Submit a job; return its number, 0 if the service refuses it."""
    try:
        return int(served.submit(["true"], 1))
    except ReshapeError:
        return 0


def fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


def test_a_question_of_the_turn_that_cannot_be_written_is_answered(
    served: Any, small_disk: Path
) -> None:
    served.start("--processors", "1")
    running = served.submit(WAITS, 1)
    served.until(running, "RUNNING")
    fill(small_disk / "filler")
    with connect(served.directory) as user, connect(served.directory) as administrator:
        for connection in (user, administrator):
            connection.request(m.ServerInfo(), LIMIT_S)
        served.process.send_signal(signal.SIGSTOP)  # so that both messages arrive in one turn
        try:
            user.send(m.ChangeJobs.one(running, m.CancelJob()), LIMIT_S)
            administrator.send(m.ServerInfo(), LIMIT_S)
        finally:
            served.process.send_signal(signal.SIGCONT)
        assert isinstance(administrator.receive(LIMIT_S), m.Info)
        assert user.receive(0) is None
        (small_disk / "filler").unlink()
        assert isinstance(user.receive(LIMIT_S), m.Done)
    assert served.wait(running).state == "CANCELLED"


def test_a_full_disk_stops_decisions_until_there_is_room(served: Any, small_disk: Path) -> None:
    served.start("--processors", "2")
    running = served.submit(WAITS, 1)
    served.until(running, "RUNNING")
    filler = small_disk / "filler"
    fill(filler)
    with pytest.raises(ReshapeError, match=r"(is accepted|service waits) until there is room"):
        served.submit(["true"], 1)
    served.let_end(running)
    wait_until(lambda: served.ask(m.ServerInfo()).halted)  # its end cannot be written
    with pytest.raises(ReshapeError, match="the service waits until there is room"):
        served.ask(m.ChangeJobs.one(running, m.CancelJob()))
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
    last = wait_until(lambda: accepted(served))
    for number in range(1, last + 1):
        answer = served.ask(m.Wait(job=number))
        assert isinstance(answer, m.JobListing)
        assert answer.jobs[0].state == "COMPLETED"


def test_a_node_whose_shared_memory_was_full_comes_back_by_itself(
    served: Any, small_memory: Path
) -> None:
    wait_until(lambda: served.free() == 2)
    fill(small_memory / "filler")
    jobs = [served.submit(["true"], 1) for _ in range(2)]

    def drained() -> m.NodeInfo | None:
        (node,) = served.ask(m.ListMachine(part="nodes")).nodes
        return node if node.drained_by else None

    node = wait_until(drained)
    assert node.drained_by == "the service"
    assert "could not start here: cannot start: /dev/shm has 0 MiB free" in node.reason
    assert node.reason.split(";")[0] in served.job(jobs[0]).reason
    (small_memory / "filler").unlink()
    assert [served.wait(job).state for job in jobs] == ["COMPLETED", "COMPLETED"]
    assert drained() is None


@pytest.fixture
def small_output(served: Any) -> Iterator[Path]:
    """A folder for outputs on a file system of 256 KiB."""
    folder = served.work / "outputs"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("error", ["", "error"])
def test_the_reason_of_a_job_whose_output_has_no_room_says_so(
    served: Any, small_output: Path, error: str
) -> None:
    served.start("--processors", "1")
    output = small_output / "out"
    program = "while :; do echo result is 42; done"
    names = {"output": str(output), "error": error and str(served.work / error)}
    job = served.wait(served.submit(["sh", "-c", program], 1, **names))
    lack = f"no room for its output {output}"
    assert (job.state, job.exit_code) == ("FAILED", 255)
    assert job.reason == f"group 1 ended with exit code 255:0, {lack}"
    assert job.last_lines.splitlines()[-1] == lack
    output.unlink()
    failing = served.wait(served.submit(["sh", "-c", "echo no; exit 3"], 1, **names))
    assert failing.reason == "group 1 ended with exit code 3:0" + ("" if error else ": no")
