"""A program with the Python client, which type checkers understand; see `typed_program`."""

from __future__ import annotations

from typing import assert_type

from scheduler import Client, JobHandle
from scheduler.forecasts.answers import Quote
from scheduler.protocol.messages import Info, JobInfo, NodeInfo


def used(service: Client) -> None:
    """Use the client and a job."""
    job = service.submit(["true"], 2, max_processors=4, walltime="2h", hold=True)
    assert_type(job, JobHandle)
    assert_type(service.cancel([job]), dict[JobHandle, str])
    assert_type(service.history(user="ann", limit=3), list[JobInfo])
    assert_type(service.info(), Info)
    assert_type(job.wait("10:00"), JobInfo)
    assert_type(job.output(error=True), str)
    for line in job.watch():
        assert_type(line.text, str)
    service.submit(["true"], walltime_s=3)  # type: ignore[call-arg]
    service.queue(ended="all")  # type: ignore[arg-type]
    job.update(processors="many")  # type: ignore[arg-type]
    script = service.batch("job.sh", "case 3", processors=4)
    assert_type(script, JobHandle)
    assert_type(service.job("17_4"), JobHandle)
    assert_type(service.quote(processors=3), Quote)
    assert_type(service.nodes(), list[NodeInfo])
    for line in script.watch():
        assert_type(line.facts, dict[str, int | float | str])
    script.signal("TERM")  # type: ignore[arg-type]
