"""A job array against a real service: each task runs once, across a kill of the service."""

from __future__ import annotations

import json
from typing import Any

import pytest
from waiting import wait_until

SHELL = "echo $RESHAPE_ARRAY_TASK_ID >>all; until test -e go; do sleep 0.05; done"


@pytest.fixture
def command(served: Any) -> Any:
    served.start("--processors", "3", "--scenario", "easy")
    return served.answer


def test_each_task_of_an_array_runs_once(served: Any, command: Any) -> None:
    words = [
        "--json",
        "--array",
        "2-20:2%2",
        "--wrap",
        SHELL + "; test $RESHAPE_ARRAY_TASK_ID != 8",
    ]
    array = json.loads(command("batch", *words))["job"]
    dependent = json.loads(
        command("submit", "--json", "-n", 1, "-d", f"afternotok:{array}", "--", "true")
    )["job"]
    begun = served.work / "all"
    wait_until(lambda: begun.exists() and len(begun.read_text().split()) == 2)
    queue = command("queue")
    assert f"{array}_[6-20:2%2]" in queue
    assert f"{array}_2 " in queue
    assert "[JobArrayTaskLimit])" in queue

    served.kill()
    served.start(*served.options)
    assert "CANCELLED" not in command("cancel", f"{array}_4")
    wait_until(lambda: len(begun.read_text().split()) == 3)
    assert f"array {array} has no task 3" in command("cancel", f"{array}_3", code=1)
    (served.work / "go").touch()
    assert served.wait(array).state == "FAILED"
    assert "10 tasks have ended, 2 of them failed" in served.job(array).reason
    assert served.wait(dependent).state == "COMPLETED"
    assert sorted(map(int, begun.read_text().split())) == list(range(2, 21, 2))
    assert (served.work / f"reshape-{array}_8.out").exists()
    states = {
        job["label"]: job["state"] for job in json.loads(command("history", "--json"))["jobs"]
    }
    assert states[f"{array}_8"] == "FAILED"
    assert states[f"{array}_4"] == "CANCELLED"
    assert states[f"{array}_20"] == "COMPLETED"
    assert command("output", f"{array}_8") == ""
    assert f"such as {array}_2" in command("output", array, code=1)
    served.check_replay()
