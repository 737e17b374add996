"""Files of a service directory that are removed while the service runs, as by `rm *.lock`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from stopped import stopped
from told import WAITS
from waiting import LIMIT_S, wait_until

from scheduler import Client
from scheduler.protocol import messages as m


def is_locked(lock: Any) -> bool:
    with lock as free:
        return free is None


def test_an_agent_whose_lock_is_removed_keeps_its_jobs(served: Any) -> None:
    """The next agent of the node would end them."""
    served.start("--processors", "2")
    job, agent = served.submit(WAITS), served.agent_pid()
    served.until(job, "RUNNING")
    (served.directory / "agent-local.lock").unlink()
    wait_until(lambda: is_locked(served.place.agent_lock("local")))
    served.kill()
    served.start()
    assert served.finish(job).state == "COMPLETED"
    assert served.agent_pid() == agent


def test_a_service_whose_lock_is_removed_locks_its_directory_again(served: Any) -> None:
    served.start("--processors", "2")
    (served.directory / "lock").unlink()
    wait_until(lambda: is_locked(served.place.lock()))
    assert served.process.poll() is None
    told = served.command("serve", "--processors", "2", code=1).stderr
    assert "a service runs in" in told
    assert served.wait(served.submit(["true"])).state == "COMPLETED"


def test_a_service_ends_if_another_one_has_its_directory(served: Any) -> None:
    served.start("--processors", "2")
    job = served.submit(WAITS)
    served.until(job, "RUNNING")
    with stopped(served.process.pid):
        (served.directory / "lock").unlink()
        other = served.place.lock()
        assert other.__enter__() is not None
    try:
        assert served.process.wait(LIMIT_S) == 1
        log = (served.directory / "serve.log").read_text()
        assert "another service was started in" in log
    finally:
        other.__exit__(None, None, None)
    served.start()
    assert served.finish(job).state == "COMPLETED"


def test_sockets_that_are_removed_are_made_again(served: Any) -> None:
    """A program that cleans up /tmp removes old ones."""
    served.start("--processors", "2", "--allow-root", "--listen", f"127.0.0.1:{free_port()}")
    places = [served.place.socket, *served.place.lanes]
    with Client(access=served.directory / "access" / "admin.json") as remote:
        assert remote.info().free == 2
        for _ in range(2):
            for path in places:
                path.unlink()
            wait_until(lambda: all(path.exists() for path in places))
            assert served.wait(served.submit(["true"])).state == "COMPLETED"
            with Client(access=remote.service) as other:
                assert other.info().free == 2
        assert remote.info().free == 2, "its connection is still open"
    served.end()
    assert not any(path.exists() for path in places)


def test_jobs_continue_if_the_secret_of_the_service_was_removed(served: Any) -> None:
    served.start("--processors", "2")
    job, agent = served.submit(WAITS), served.agent_pid()
    served.until(job, "RUNNING")
    served.kill()
    (served.directory / "secret").unlink()
    served.start()
    assert served.finish(job).state == "COMPLETED"
    assert served.agent_pid() == agent


@pytest.mark.parametrize("removed", ["journal.db", "journal.db-wal", "journal.db*"])
def test_a_journal_that_is_removed_is_written_again(served: Any, removed: str) -> None:
    served.start("--processors", "2")
    ended = served.submit(["sh", "-c", "exit 3"])
    assert served.wait(ended).exit_code == 3
    running, held = served.submit(WAITS), served.submit(["true"], hold=True)
    served.until(running, "RUNNING")
    for path in served.directory.glob(removed):
        path.unlink()
    wait_until(served.place.journal.exists)
    log = served.directory / "serve.log"
    wait_until(lambda: "was removed, and is written again" in log.read_text())
    served.ask(m.ChangeJobs.one(held, m.ReleaseJob()))
    assert served.wait(held).state == "COMPLETED"
    served.kill()
    served.start()
    assert served.finish(running).state == "COMPLETED"
    states = [job.state for job in served.ask(m.ListJobs(ended=True)).jobs]
    assert sorted(states) == ["COMPLETED", "COMPLETED", "FAILED"]
    served.check_replay()


def test_all_files_that_are_removed_are_made_again(served: Any) -> None:
    served.start("--processors", "2")
    job, agent = served.submit(WAITS), served.agent_pid()
    served.until(job, "RUNNING")
    log, names = served.directory / "serve.log", ("secret", "memory-folder")
    before = [(served.directory / name).read_text() for name in names]
    for path in served.directory.iterdir():
        if path != log and not path.is_dir():
            path.unlink()
    wait_until(lambda: "was removed, and is written again" in log.read_text())
    assert [(served.directory / name).read_text() for name in names] == before
    assert served.finish(job).state == "COMPLETED"
    assert served.agent_pid() == agent


def test_a_journal_is_written_again_if_the_service_ends_meanwhile(served: Any) -> None:
    served.start("--processors", "2")
    ended = served.submit(["true"])
    assert served.wait(ended).state == "COMPLETED"
    served.place.journal.unlink()
    served.end()
    served.start()
    assert [job.job for job in served.ask(m.ListJobs(ended=True)).jobs] == [ended]


def test_nothing_is_made_again_in_another_directory(served: Any, tmp_path: Path) -> None:
    """What lies at the path of a directory that was moved or removed may be of another service."""
    served.start("--processors", "2")
    moved = served.directory.rename(tmp_path / "moved")
    served.directory.mkdir(0o700)
    try:
        wait_until(lambda: "was moved or removed" in (moved / "serve.log").read_text())
        assert not [*served.directory.iterdir()]
    finally:
        served.directory.rmdir()
        moved.rename(served.directory)
    assert served.wait(served.submit(["true"])).state == "COMPLETED"
