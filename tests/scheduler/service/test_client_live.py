"""The Python client across restarts of a service; docs/client.md has the rest."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from waiting import wait_until

from reshape.errors import ReshapeError, ServiceUnavailable
from scheduler import AsyncClient, Client

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


def test_many_jobs_are_awaited_at_a_time_across_a_restart(served: Any) -> None:
    served.start("--processors", "8")

    async def run() -> None:
        async with AsyncClient(served.directory) as service:
            jobs = [await service.submit(UNTIL_GO, cwd=served.work) for _ in range(8)]
            waits = [asyncio.create_task(job.wait()) for job in jobs]
            await asyncio.sleep(0)  # all of them have begun
            served.kill()
            served.start("--processors", "8")
            await asyncio.to_thread(wait_until, lambda: served.job(8).state == "RUNNING")
            (served.work / "go").touch()
            assert [job.exit_code for job in await asyncio.gather(*waits)] == [5] * 8
            task = await service.submit(["sh", "-c", "kill -9 $$"], array="3-4")
            assert (await task.wait()).state == "FAILED"
            assert (await (await service.job(f"{task.id}_4")).info()).signal == 9
            held = await service.submit(["true"], 2, hold=True)
            await held.update(name="other", processors=3)
            await held.release()
            assert [line.text async for line in held.watch()][-1] == "ended with exit code 0:0"
            assert (await held.info()).requested == 3
            with pytest.raises(ReshapeError, match="has ended"):
                await held.hold()

    asyncio.run(run())


def test_where_there_is_no_service(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESHAPE_DIR", str(served.directory))
    with pytest.raises(ServiceUnavailable, match="start it with 'reshape serve"):
        Client().info()
    with pytest.raises(ReshapeError, match="there is no access file"):
        Client(access=os.devnull + "x")
    with pytest.raises(ReshapeError, match="leave one out"):
        Client(served.directory, access="user.json")
