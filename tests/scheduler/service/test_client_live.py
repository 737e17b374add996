"""The Python client across restarts of a service; docs/client.md has the rest."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zmq
from waiting import LIMIT_S

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire.access import AccessFile, write_private
from scheduler import Client
from scheduler.client.api import client

UNTIL_GO = ["sh", "-c", "until test -e go; do sleep 0.05; done; exit 5"]


def test_a_watch_neither_loses_nor_repeats_a_line_when_the_service_restarts(served: Any) -> None:
    served.start("--processors", "2")
    with Client(served.directory) as service:
        job = service.submit(UNTIL_GO, cwd=served.work)
        lines = job.watch()
        told = [next(lines).text for _ in range(3)]
        assert told[2] == "is running"
        served.kill()
        with pytest.raises(ServiceUnavailable):
            service.info()
        served.start("--processors", "2")
        (served.work / "go").touch()
        told += [line.text for line in lines]
        assert told == [line.text for line in job.explain()]
        assert told[-1].startswith("ended with exit code 5:0")
        assert job.wait().exit_code == 5
        with pytest.raises(TimeoutError, match="job 2 has not ended within 0:01"):
            service.submit(["sleep", "60"]).wait("0:01")
        service.job(2).cancel()


def test_jobs_are_awaited_across_a_restart(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    served.start("--processors", "8")
    with Client(served.directory) as service:
        jobs = [service.submit(UNTIL_GO, cwd=served.work) for _ in range(8)]
        served.until(8, "RUNNING")
        served.kill()
        with pytest.raises(TimeoutError):  # it goes on without a service
            jobs[0].wait(1.0)
        with monkeypatch.context() as patch:
            patch.setattr(client, "RESTART_S", 0.0)
            with pytest.raises(ServiceUnavailable, match="is gone"):
                jobs[0].wait()
        served.start("--processors", "8")
        (served.work / "go").touch()
        assert [job.wait().exit_code for job in jobs] == [5] * 8
        task = service.submit(["sh", "-c", "kill -9 $$"], array="3-4")
        assert task.wait().state == "FAILED"
        assert service.job(f"{task.id}_4").info().signal == 9
        held = service.submit(["true"], 2, hold=True)
        held.update(name="other", processors=3)
        held.release()
        assert [line.text for line in held.watch()][-1] == "ended with exit code 0:0"
        assert held.info().requested == 3
        with pytest.raises(ReshapeError, match="has ended"):
            held.hold()


def test_where_there_is_no_service(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESHAPE_DIR", str(served.directory))
    with pytest.raises(ServiceUnavailable, match="start it with 'reshape serve"):
        Client().info()
    with pytest.raises(ServiceUnavailable, match="start it with 'reshape serve"):
        Client().job(1).wait()
    with pytest.raises(ReshapeError, match="there is no access file"):
        Client(access=os.devnull + "x")
    with pytest.raises(ReshapeError, match="leave one out"):
        Client(served.directory, access="user.json")


def test_a_listing_waits_for_its_answer_and_not_as_long_for_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CONNECT_S", 0.1)
    public, secret = (key.decode() for key in zmq.curve_keypair())
    with socket.create_server(("127.0.0.1", 0)) as other:  # it never answers
        endpoint = "tcp://{}:{}".format(*other.getsockname())
        access = AccessFile(
            endpoint=endpoint,
            server_key=public,
            public_key=public,
            secret_key=secret,
            role="user",
            user="ann",
        )
        write_private(tmp_path / "user.json", access)
        with pytest.raises(ServiceUnavailable, match=r"within 0\.1 s"):
            Client(access=tmp_path / "user.json").queue()


def test_the_last_job_tasks_and_steps_are_awaited_while_no_service_runs(served: Any) -> None:
    served.start("--processors", "2")
    (served.work / "script.sh").write_text("#!/bin/sh\nreshape run -n 1 true\n")
    (served.work / "go").touch()
    with Client(served.directory) as service:
        script = service.batch(served.work / "script.sh", cwd=served.work)
        array = service.submit(UNTIL_GO, array="7-8", cwd=served.work)
        array.wait()
        script.wait()
        named = ("last", f"{array.id}_8", f"{script.id}.0")
        served.kill()
        for name in named:
            done = served.command("wait", "--timeout", "0:01", name, code=124)
            told = f"the time limit has passed and no service has said which job {name} is"
            assert done.stderr == f"reshape: {told}\n"
        with pytest.raises(ServiceUnavailable):
            service.job("last")
        command = [sys.executable, "-m", "reshape", "wait", "--dir", served.directory, *named]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waits:
            served.start()
            told, _ = waits.communicate(timeout=LIMIT_S)
        assert waits.returncode == 5
        states = [line.split()[2] for line in told.splitlines() if line.startswith("job ")]
        assert states == ["FAILED", "FAILED", "COMPLETED"]
