"""A service, an agent and running jobs of an earlier commit are taken over by this one.

The commit is the first one with the present format of the journal. It comes from the history of the
repository: without it, as in a source distribution, the test is left out. It runs with the
dependencies that are installed here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from paths import ROOT
from waiting import LIMIT_S, wait_until

from scheduler.protocol import messages as m

RELEASE, COMMIT = "0.2.0.dev0", "7d1de9636e98aa5fe62018e3510de3659910bd74"
PROCESSORS = 5
#: A resizable program that counts its iterations until a file exists. It is so much faster on more
#: processors that the scenario does not contract it, however loaded the machine is.
COUNTING = """
import pathlib, sys, time
import numpy as np
import reshape
with reshape.application() as app:
    counts = app.rows("counts", shape=(64, 4))
    iterations = 0
    for _ in app.iterations(100_000):
        counts.local[:] += 1
        iterations = app.comm.bcast(counts.local.flat[0])
        time.sleep(0.8 / app.comm.size)
        if app.comm.bcast(pathlib.Path(sys.argv[1]).exists()):
            break
    right = app.comm.allgather(bool((counts.local == iterations).all()))
    if app.comm.rank == 0 and all(right):
        print(f"{app.comm.size} processes have counted right")
"""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the earlier commit."""
    folder = tmp_path_factory.mktemp("earlier")
    archive = folder / "release.tar"
    command = ["git", "-C", str(ROOT), "archive", "-o", str(archive), COMMIT]
    if shutil.which("git") is None or subprocess.run(command, check=False).returncode:
        pytest.skip(f"the history of the repository does not have commit {COMMIT}")
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)
    metadata = folder / f"reshape_mpi-{RELEASE}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: reshape-mpi\nVersion: {RELEASE}\n"
    )
    return folder


class Earlier:
    """The commands of the earlier commit in the directory of a service."""

    def __init__(self, packages: Path, served: Any) -> None:
        self._served = served
        self._environment = {**os.environ, "PYTHONPATH": str(packages)}

    def __call__(self, command: str, *words: str) -> str:
        """Run a command and return its output."""
        done = subprocess.run(
            [sys.executable, "-m", "reshape", command, "--dir", self._served.directory, *words],
            env=self._environment,
            cwd=self._served.work,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, *words: str) -> int:
        return int(self("submit", *words).split()[-1])


def has_another_agent(served: Any, earlier: int) -> bool:
    """Whether an agent that is another process has reported to the service."""
    log = served.place.log("serve").read_text()
    reported = re.findall(r"agent (?:reports|replaced) node=local .*pid=(\d+)", log)
    return int(reported[-1]) != earlier


def agent_runs(served: Any, packages: Path) -> bool:
    """Whether the agent of the node runs the code of the earlier commit."""
    environment = psutil.Process(served.agent_pid()).environ()
    return environment.get("PYTHONPATH") == str(packages)


def test_a_service_with_running_jobs_is_upgraded(served: Any, earlier: Path) -> None:
    release, go, stop = Earlier(earlier, served), served.work / "go", served.work / "stop"
    options = ("--processors", str(PROCESSORS), "--scenario", "fcfs-pr")
    release("serve", *options, "--background")
    assert f"reshape {RELEASE}, process" in release("info")
    ended = release.submit("-n", "1", "--", "true")
    release("wait", str(ended))
    rigid = release.submit("-n", "2", "--", "sh", "-c", f"until test -e {go}; do sleep 0.05; done")
    counting = ("python", "-c", COUNTING, str(stop))
    topology = ("--topology", "arbitrary:step=2")
    growing = release.submit("-n", "2", "--max", "4", *topology, "--", *counting)
    large = release.submit("-n", str(PROCESSORS), "--", "true")
    wait_until(lambda: release("info").find("1 queued, 2 running, 1 ended") >= 0)
    agent = served.agent_pid()
    service = psutil.Process(json.loads(served.place.server_file.read_bytes())["pid"])
    service.terminate()
    service.wait(LIMIT_S)

    served.start(*options)
    states = {number: served.job(number).state for number in (ended, rigid, growing, large)}
    assert states == {ended: "COMPLETED", rigid: "RUNNING", growing: "RUNNING", large: "PENDING"}
    assert served.agent_pid() == agent
    assert agent_runs(served, earlier)
    # The new service decides on a resize; the agent and the processes of both groups are earlier.
    served.ask(m.ChangeJobs.one(large, m.CancelJob()))
    go.touch()
    assert served.wait(rigid).state == "COMPLETED"
    served.when(growing, lambda job: job.size == 4)
    stop.touch()
    assert served.wait(growing).state == "COMPLETED"
    assert "4 processes have counted right" in served.output(growing)

    served.ask(m.ChangeMachine(change=m.DrainNode("local", "upgrade")))
    os.kill(agent, signal.SIGTERM)
    wait_until(lambda: has_another_agent(served, agent))
    served.ask(m.ChangeMachine(change=m.ResumeNode("local")))
    last = served.submit(["true"], PROCESSORS)
    assert last == large + 1
    assert served.wait(last).state == "COMPLETED"
    assert not agent_runs(served, earlier)
