"""The commands against a real service: what they print, their JSON, their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from command_line import invoke, reshape
from paths import SUPPORT

from scheduler.protocol.messages import JobInfo, ResizeInfo

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(served: Any) -> Run:
    """Run a command on the directory of the service under test."""

    def run(name: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        words = (name, "--dir", served.directory, *arguments)
        if name == "serve":  # the service must not be a child of this process
            return reshape(*words, code=code)
        return invoke(*words, code=code, cwd=served.work)

    return run


@pytest.fixture
def submit(service: Any, run: Run) -> Callable[..., int]:
    """Submit a Python program; give the job's number."""

    def submit(program: str, *options: str) -> int:
        done = run("submit", *options or ("-n", "1"), "--json", "--", "python", "-c", program)
        return int(json.loads(done.stdout)["job"])

    return submit


def test_a_service_in_the_background_from_start_to_end(served: Any, run: Run) -> None:
    done = run("serve", "--background", "--processors", "4", "--scenario", "easy", "--verify")
    assert done.stdout.startswith(f"service of {served.directory} is up, process ")
    info = json.loads(run("info", "--json").stdout)
    assert (info["processors"], info["free"], info["scenario"]) == (4, 4, "easy")
    assert info["nodes"] == [["local", 4, "up"]]
    text = run("info").stdout
    assert "Scenario:    easy" in text
    assert "Processors:  4, 4 free" in text
    again = run("serve", "--background", "--processors", "4", code=1)
    assert f"a service runs in {served.directory} already" in again.stderr
    assert again.stderr.count("\n") == 1
    assert run("stop").stdout == f"service of {served.directory} has ended\n"
    assert served.processes() == []
    assert "no scheduler service in" in run("stop", code=1).stderr


def test_the_commands_describe_a_job_to_its_end(submit: Any, service: Any, run: Run) -> None:
    assert "no job was submitted yet" in run("info", "last", code=1).stderr
    program = "from mpi4py import MPI; c = MPI.COMM_WORLD; print(f'I am one of {c.size}')"
    done = run("submit", "-n", "2", "--name", "two", "--output", "two-%{JOB_ID}.txt", "--wait",
               "--", "python", "-c", program)  # fmt: skip
    assert done.stdout == "submitted job 1\njob 1: COMPLETED 0:0\n"
    assert (service.work / "two-1.txt").read_text().count("I am one of 2") == 2

    assert run("queue").stdout.count("\n") == 1, "only the headings"
    fields = run("queue", "--all").stdout.splitlines()[1].split()
    assert fields[:5] == ["1", "main", "two", service.job(1).user, "CD"]
    done = run("queue", "--all", "--me", "--state", "CD", "--jobs", "1", "--format", "%i|%T")
    assert done.stdout == "JOBID|STATE\n1|COMPLETED\n"
    assert run("queue", "--all", "--name", "other", "--noheader").stdout == ""
    done = run("history", "--format", "jobid,state%10", "--noheader")
    assert done.stdout == "    1   COMPLETED\n"
    headings, row = (line.split() for line in run("history").stdout.splitlines())
    shown = dict(zip(headings, row, strict=False))  # REASON is empty
    assert (shown["STATE"], shown["EXITCODE"], shown["SIZES"]) == ("COMPLETED", "0:0", "2")
    text = run("info", "last").stdout
    assert "Job:        1 two" in text
    assert f"Output:     {service.work}/two-1.txt" in text
    lines = run("explain", "last").stdout.splitlines()
    assert lines[0].startswith("job 1 has ended: COMPLETED 0:0 after 00:00:")
    assert "submitted for 2 processors" in lines[1]
    assert "+0.000 s" in lines[1]
    assert "ended with exit code 0:0" in lines[-1]


def test_json_has_the_fields_of_the_messages(submit: Any, run: Run) -> None:
    number = submit("print(1)")
    run("wait", str(number))
    one = json.loads(run("info", "1", "--json").stdout)
    assert set(one) == set(JobInfo.__struct_fields__)
    job = msgspec.convert(one, JobInfo)
    assert (job.job, job.state, job.argv) == (1, "COMPLETED", ["python", "-c", "print(1)"])
    for listing in (run("queue", "--all", "--json"), run("history", "--json")):
        table = json.loads(listing.stdout)
        assert table["now"] > job.submitted_at
        assert table["jobs"] == [one]
    assert json.loads(run("queue", "--json").stdout)["jobs"] == []
    story = json.loads(run("explain", "1", "--json").stdout)
    assert story["job"] == 1
    assert {"at", "text"} == set(story["lines"][0])
    assert story["lines"][1]["rule"].startswith("EASY")
    assert story["lines"][1]["facts"]["needed"] == 1
    assert json.loads(run("info", "1", "--json").stdout)["resizes"] == []
    assert json.loads(run("wait", "1", "--json").stdout) == [one]


def test_wait_exits_with_the_status_of_the_job(submit: Any, service: Any, run: Run) -> None:
    submit("import sys; print('at work\\n\\x1b[31mno convergence\\x07'); sys.exit(3)")
    submit("print('fine')")
    done = run("wait", "2", "1", code=3)
    output = service.work / "reshape-1.out"
    told = f"Last lines of {output}:\n    at work\n    no convergence\n"
    why = "group 1 ended with exit code 3:0: no convergence"
    assert done.stdout == f"job 2: COMPLETED 0:0\njob 1: FAILED 3:0 ({why})\n{told}"
    assert run("explain", "1").stdout.endswith(f"{why}\n{told}")
    assert run("info", "1").stdout.endswith(f"\n\n{told}")
    assert f"  {why}\n" in run("history").stdout
    assert "\x1b" not in run("info", "1", "--json").stdout
    submit("import time; time.sleep(60)", "-n", "1", "--walltime", "1s")
    assert "job 3: TIMEOUT" in run("wait", "last", code=_status(run, 3)).stdout
    note = "reshape: the processes of group 1 were ended: 1.0 s are over"
    assert service.output(3).splitlines()[-1] == note


def _status(run: Run, job: int) -> int:
    """Return the exit code of `wait` that follows from the fields of an ended job."""
    deadline = time.monotonic() + 30
    while (info := json.loads(run("info", str(job), "--json").stdout))["ended_at"] is None:
        assert time.monotonic() < deadline
    assert info["state"] != "COMPLETED"
    return int(128 + info["signal"] if info["signal"] else info["exit_code"] or 1)


def test_a_wait_with_a_timeout_and_a_cancelled_job(submit: Any, service: Any, run: Run) -> None:
    submit("import time; time.sleep(60)", "-n", "8", "--walltime", "2")
    submit("print('later')")
    done = run("wait", "2", "--timeout", "0:01", code=124)
    assert done.stderr == "reshape: the time limit has passed and job 2 has not ended\n"
    service.until(1, "RUNNING")
    lines = run("queue").stdout.splitlines()
    assert lines[0].split() == [
        *("JOBID", "QUEUE", "NAME", "USER", "ST", "TIME", "TIME_LEFT", "NODES", "SIZE", "START"),
        "NODELIST(REASON)",
    ]  # fmt: skip
    assert lines[1].split()[4] == "R"
    assert lines[1].split()[8] == "8/8"
    assert lines[1].split()[10] == "local"
    assert lines[2].split()[4] == "PD"
    assert "(" in lines[2], "the reason why it waits"
    told = run("explain", "1").stdout.split("\n")[0]
    assert told.startswith("job 1 is running on 8 processors of local: it starts on processors")
    told = run("explain", "2").stdout.split("\n")[0]
    assert told.startswith("job 2 waits: 1 processor wanted, 0 free")
    assert "2 jobs queued or running" in run("stop", code=1).stderr
    assert run("cancel", "1").stdout == "cancelled job 1\n"
    assert run("wait", "1", code=_status(run, 1)).stdout.startswith("job 1: CANCELLED")
    run("wait", "2")
    assert "ended already" in run("cancel", "2", code=1).stderr
    assert "there is no job 7: numbers go from 1 to 2" in run("info", "7", code=1).stderr


def test_the_history_of_a_job_that_grew(service: Any, run: Run) -> None:
    synthetic = ["apps.synthetic", "--iterations", "2", "--seconds", "0", "--mib", "1"]
    program = [str(SUPPORT / "paced.py"), "0.4", *synthetic]
    run("submit", "-n", "1", "--max", "2", "--", "python", *program)
    service.when(1, lambda job: job.size == 2)
    service.finish(1)
    told = json.loads(run("info", "1", "--json").stdout)
    resizes = msgspec.convert(told["resizes"], list[ResizeInfo])
    assert [(resize.old, resize.new, resize.outcome) for resize in resizes] == [(1, 2, "done")]
    fields = run("info", "1").stdout.splitlines()[-1].split()
    assert fields[2] == "1-2"
    assert float(fields[3]) == pytest.approx(1000 * resizes[0].start_s, abs=0.1)
    assert float(fields[7]) == pytest.approx(1000 * resizes[0].move_s, abs=0.1)
    assert run("history", "--noheader").stdout.split()[9] == "1-2"
    assert "is to expand to 2" in run("explain", "1").stdout
    facts = json.loads(run("info", "1", "--json").stdout)["facts"]
    assert facts["verified"] is True


def test_a_queue_under_watch_is_shown_again(service: Any, run: Run) -> None:
    command = [sys.executable, "-m", "reshape", "queue", "--dir", str(service.directory), "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("JOBID")
            assert process.stdout.readline().startswith("JOBID")
        finally:
            process.terminate()
