"""A folder in /dev/shm that agents cannot use: another user has taken its name, or it is open."""

from __future__ import annotations

import os
from typing import Any

import pytest
from told import WAITS
from waiting import wait_until

OTHER_USER = 65534


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_service_whose_folder_name_another_user_has_taken_runs_jobs(served: Any) -> None:
    served.start("--processors", "2")
    assert served.wait(served.submit(["true"])).state == "COMPLETED"
    taken = served.place.memory
    served.end()
    taken.mkdir(mode=0o777)
    try:
        os.chown(taken, OTHER_USER, OTHER_USER)
        served.start()
        job = served.submit(["sh", "-c", "echo $RESHAPE_SHM; test -d $RESHAPE_SHM"])
        assert served.wait(job).state == "COMPLETED"
        used = served.output(job).strip()
        assert used.startswith(f"{taken}-")
        assert list(taken.iterdir()) == []
        served.end()
    finally:
        taken.rmdir()


def test_the_last_error_of_an_agent_is_shown(served: Any) -> None:
    served.start("--processors", "1")
    running = served.submit(WAITS)
    served.until(running, "RUNNING")
    memory = served.place.memory
    memory.chmod(0o755)
    os.kill(served.agent_pid(), 9)
    assert served.wait(running).state == "NODE_FAIL"
    waiting = served.submit(["true"])
    error = f"its agent ended with exit code 1: reshape: error: {memory} has mode 0755"
    wait_until(lambda: error in served.answer("node list"))
    assert error in served.answer("info")
    assert f"down: local ({error}" in served.answer("explain", waiting)
    memory.chmod(0o700)
    assert served.wait(waiting).state == "COMPLETED"
    assert "error" not in served.answer("node list")
