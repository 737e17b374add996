"""Steps of job scripts against a real service: one after the other, side by side, across faults."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from command_line import invoke, reshape
from process_words import words_of
from told import WAITS
from waiting import wait_until

from scheduler.protocol import messages as m

#: It goes on until it is cancelled, and becomes faster on more processors.
GROWS = "python -m apps.synthetic --iterations 100000 --seconds 0.6 --speedup amdahl:serial=0"


@pytest.fixture
def command(served: Any) -> Any:
    def command(name: str, *words: object, code: int = 0) -> Any:
        return invoke(*name.split(), "--dir", served.directory, *words, code=code, cwd=served.work)

    return command


@pytest.fixture
def batch(served: Any, command: Any) -> Callable[..., int]:
    """Function that submits a script and returns the number of its job."""

    def batch(text: str, *words: object) -> int:
        (served.work / "job.sh").write_text(f"#!/bin/bash\n{text}")
        return int(json.loads(command("batch", "--json", *words, "job.sh").stdout)["job"])

    return batch


def step_when(served: Any, job: int, index: int, condition: Callable[[m.JobInfo], object]) -> int:
    """Wait until a step is there and a condition holds for it; return its number as a job."""
    found = served.when(job, lambda info: len(info.steps) > index)
    number = int(dict(found.steps)[index])
    served.when(number, condition)
    return number


def test_a_script_of_three_steps_grows_and_shrinks(served: Any, command: Any, batch: Any) -> None:
    served.start("--processors", "4", "--scenario", "fcfs-pr")
    job = batch(
        f"""
        reshape run sh -c 'echo first $RESHAPE_JOB.$RESHAPE_STEP on $RESHAPE_PROCESSORS' || exit 1
        reshape run --max 4 {GROWS}
        echo ended with $?
        reshape run -n 1 --name last sh -c 'echo third; exit 6'
        """,
        "-n",
        2,
    )
    step = step_when(served, job, 1, lambda info: info.size == 4)
    shown = served.job(job)
    assert (shown.size, shown.processors) == (4, "0-3"), "what it holds with its steps"
    other = served.submit(WAITS, 2)
    served.until(other, "RUNNING")
    assert served.job(step).size == 2, "it has made room"
    assert served.job(job).size == 2
    assert f"{job}.1" not in command("queue").stdout
    assert f"{job}.1" in command("queue", "--steps").stdout
    command("cancel", f"{job}.1")
    ended = served.wait(job)
    assert (ended.state, ended.exit_code) == ("FAILED", 6)
    served.finish(other)
    output = served.output(job).splitlines()
    assert output.count(f"first {job}.0 on 2") == 2
    assert "ended with 143" in output
    assert "third" in output
    told = command("info", job).stdout
    assert f"{job}.1  apps.synthetic  CANCELLED" in " ".join(told.split()).replace(" ", "  ")
    states = {row["label"]: row for row in json.loads(command("history", "--json").stdout)["jobs"]}
    assert states[f"{job}.2"]["exit_code"] == 6
    assert [size for _, size in states[f"{job}.1"]["sizes"]][-1] == 2
    assert "is to expand to" in command("explain", f"{job}.1").stdout
    assert served.free() == 4
    served.check_replay()


def test_a_step_resizes_beside_another_one(served: Any, batch: Any) -> None:
    served.start("--processors", "4", "--scenario", "fcfs-pr")
    waits = "until test -e end-$RESHAPE_STEP; do sleep 0.05; done; echo $RESHAPE_STEP"
    job = batch(
        f"""
        reshape run -n 1 sh -c '{waits}' & first=$!
        until test -e begun; do sleep 0.05; done
        reshape run -n 1 --max 3 {GROWS} &
        until test -e grown; do sleep 0.05; done
        reshape run -n 1 sh -c '{waits}' & third=$!
        wait $first && wait $third
        """,
        "-n",
        2,
    )
    rigid = step_when(served, job, 0, lambda info: info.state == "RUNNING")
    (served.work / "begun").touch()
    grown = step_when(served, job, 1, lambda info: info.size == 3)
    (served.work / "grown").touch()
    third = step_when(served, job, 2, lambda info: info.state == "PENDING")
    assert served.job(rigid).state == "RUNNING"
    assert "job 1 has 0 idle of 2 [Step]" in served.job(third).reason
    (served.work / "end-0").touch()
    served.until(third, "RUNNING")
    assert served.job(rigid).state == "COMPLETED"
    (served.work / "end-2").touch()
    assert served.wait(job).state == "COMPLETED", "its end is that of the step that goes on"
    assert served.wait(grown).reason == f"job {job} ends"
    wait_until(lambda: served.free() == 4)
    served.check_replay()


def test_a_kill_of_the_service_loses_no_step(served: Any, batch: Any) -> None:
    served.start("--processors", "2", "--scenario", "easy")
    waits = "until test -e %s; do sleep 0.05; done"
    job = batch(
        f"""
        reshape run sh -c 'echo first >>all'
        touch between
        {waits % "go"}
        reshape run sh -c 'echo second >>all; {waits % "end"}; exit 4'
        echo $? >>all
        """,
        *("-n", 1),
    )
    wait_until((served.work / "between").exists)
    served.kill()
    (served.work / "go").touch()
    script = psutil.Process(served.agent_pid())
    wait_until(lambda: any("run" in words_of(p) for p in script.children(recursive=True)))
    served.start()
    step = step_when(served, job, 1, lambda info: info.state == "RUNNING")
    wait_until(lambda: (served.work / "all").read_text().split() == ["first", "second"])
    served.kill()
    (served.work / "end").touch()
    served.start()
    assert served.wait(step).exit_code == 4
    assert served.wait(job).state == "COMPLETED"
    assert (served.work / "all").read_text().split() == ["first", "second", "4"]
    served.check_replay()


def test_a_kill_of_the_agent_ends_script_and_steps_and_requeues(served: Any, batch: Any) -> None:
    served.start("--processors", "2", "--scenario", "easy")
    job = batch(
        """
        echo run >>runs
        reshape run -n 1 sh -c 'test `wc -l <runs` = 2 || sleep 3600' & first=$!
        reshape run -n 1 sh -c 'test `wc -l <runs` = 2 || sleep 3600' & second=$!
        wait $first && wait $second
        """,
        *("-n", 2, "--requeue"),
    )
    steps = [step_when(served, job, n, lambda info: info.state == "RUNNING") for n in (0, 1)]
    os.kill(served.agent_pid(), signal.SIGKILL)
    served.when(job, lambda info: info.requeues == 1)
    assert {served.wait(step).state for step in steps} <= {"CANCELLED", "FAILED", "NODE_FAIL"}
    assert served.wait(job).state == "COMPLETED"
    assert [index for index, _ in served.job(job).steps] == [0, 1, 2, 3]
    assert (served.work / "runs").read_text() == "run\nrun\n"
    assert served.free() == 2


def test_outputs_exit_codes_and_signals(served: Any, command: Any, batch: Any) -> None:
    served.start("--processors", "2", "--scenario", "easy")
    job = batch(
        """
        reshape run --output '%j-%s.out' echo own
        echo begin >shared
        exec 5>>shared
        reshape run -n 1 echo written >&5; echo behind >&5
        exec 6>other
        reshape run -n 1 echo written >&6; echo behind >&6
        got=$(reshape run -n 1 sh -c 'echo piped; exit 3'); echo "$got $?"
        reshape run -n 1 seq 100000 | head -n 1
        reshape run -n 1 sh -c 'kill -9 $$' 2>errors >/dev/null; echo killed $?
        reshape run -n 3 true 2>>errors; echo refused $?
        reshape run -n 1 sh -c 'echo wrong >&2; echo right' 2>>errors
        reshape run -n 1 sleep 3600 >/dev/null &
        until test -e stop; do sleep 0.05; done
        kill $!; wait $!; echo cancelled $?
        """,
        *("-n", 2),
    )
    step = step_when(served, job, 7, lambda info: info.state == "RUNNING")
    (served.work / "stop").touch()
    assert served.wait(job).state == "COMPLETED"
    assert served.job(step).state == "CANCELLED"
    assert (served.work / f"{job}-0.out").read_text() == "own\nown\n"
    assert (served.work / "shared").read_text() == "begin\nwritten\nbehind\n"
    assert (served.work / "other").read_text() == "written\nbehind\n"
    told = [line for line in served.output(job).splitlines() if "reshape:" not in line]
    assert told == [*("piped 3", "1", "killed 137", "refused 1", "right", "cancelled 143")]
    errors = (served.work / "errors").read_text()
    assert f"reshape: step {job}.5: FAILED 0:9" in errors
    assert "the step asks for 3 processors, job 1 has 2" in errors
    assert errors.endswith("\nwrong\n")
    assert not list(served.work.glob(".reshape-run*"))
    outside = reshape("run", "true", code=1)
    assert "this is no job script: submit a script" in outside.stderr
    assert (
        f"job {job} has no step 9: its steps are 0 to 7"
        in command("info", f"{job}.9", code=1).stderr
    )
