"""The commands that change jobs, against a real service with processes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from told import WAITS


@pytest.fixture
def command(served: Any) -> Any:
    served.start("--processors", "2", "--scenario", "easy")
    return served.answer


def test_jobs_that_are_held_changed_and_requeued(served: Any, command: Any) -> None:
    def submit(*options: object) -> int:
        number: int = json.loads(command("submit", "-n", 1, *options, "--json", "--", *WAITS))[
            "job"
        ]
        return number

    first, held = submit("--name", "first"), submit("--hold")
    after = submit("-d", f"afterok:{first}")
    never = submit("-d", f"afternotok:{first}", "--kill-on-invalid-dep")
    early = submit("--begin", "now+2h")
    served.until(first, "RUNNING")

    served.kill()
    served.start(*served.options)
    queue = command("queue")
    assert "(held by its user until it is released [JobHeldUser])" in queue
    assert f"(waits for job {first} to complete [Dependency])" in queue
    assert f"(waits for job {first} to fail [Dependency])" in queue
    assert "[BeginTime])" in queue
    forecasts = json.loads(command("queue", "--start", "--json"))["jobs"]
    starts = {forecast["job"]: forecast["start"] for forecast in forecasts}
    assert starts[after] is not None, "if the job that it waits for completes in time"
    assert starts[held] is None

    assert f"updated job {held}" in command("update", held, "--name", "second", "--walltime", "1h")
    assert "would wait for itself" in command(
        "update", after, "--dependency", f"after:{after}", code=1
    )
    assert f"released job {held}" in command("release", held)
    job = served.until(held, "RUNNING")
    assert (job.name, job.walltime_s) == ("second", 3600)
    assert "only queued jobs are held" in command("hold", held, code=1)

    assert f"requeued job {first}" in command("requeue", first)
    again = served.when(first, lambda job: job.requeues and job.state == "RUNNING")
    assert len(again.sizes) == 3
    assert served.finish(first).state == "COMPLETED"
    assert served.finish(after).state == "COMPLETED"
    assert served.wait(never).state == "CANCELLED"
    assert "can never be met" in served.job(never).reason
    command("update", early, "--begin", "now")
    for number in (held, early):
        assert served.finish(number).state == "COMPLETED"
    assert "is eligible: its dependency is met" in command("explain", after)
    served.check_replay()
