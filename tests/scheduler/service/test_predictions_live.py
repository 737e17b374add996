"""A service whose predictor learns from the jobs that it ran, also across a restart."""

from __future__ import annotations

from typing import Any

from scheduler import Client
from scheduler.protocol import messages as m

SLEEP = ["sleep", "600"]
HOUR_S = 3600.0


def test_a_service_predicts_from_its_own_records(served: Any) -> None:
    served.start(
        "--processors", "2", "--scenario", "easy",
        "--set", "estimates=tsafrir",
    )  # fmt: skip
    unknown = served.submit(SLEEP, 2, walltime_s=HOUR_S)
    waiting = served.submit(["true"], 1, walltime_s=HOUR_S)
    started_at = served.until(unknown, "RUNNING").started_at
    with Client(served.directory) as client:
        [found] = client.expected_starts()
    assert found.start == started_at + HOUR_S, "no job has ended: the estimate is the walltime"
    served.ask(m.ChangeJobs.one(unknown, m.CancelJob()))
    served.wait(waiting)
    for _ in range(4):
        served.wait(served.submit(["true"], 1, walltime_s=HOUR_S))

    running = served.submit(SLEEP, 2, walltime_s=HOUR_S)
    served.until(running, "RUNNING")
    served.kill()
    served.start()
    waiting = served.submit(SLEEP, 1, walltime_s=HOUR_S)
    with Client(served.directory) as client:
        [found] = client.expected_starts()
    started_at = served.job(running).started_at
    assert found.job == waiting
    assert found.start - started_at < HOUR_S / 4, "the running job is predicted to end soon"
    assert found.end - found.start < HOUR_S / 4, "the new service has what the killed one learned"
    assert served.job(running).state == "RUNNING", "missed predictions end no job"
