"""What agents on another host share with each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape.wire.access import AccessFile
from scheduler.node import directory
from scheduler.node.host_place import HostPlace
from scheduler.protocol import messages as m


def test_the_last_agent_of_a_service_on_a_host_removes_what_agents_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "MEMORY", tmp_path)
    keys = {"server_key": "s", "public_key": "p", "secret_key": "k"}
    access = AccessFile(endpoint="tcp://n1:7077", role="agent", user="ann", **keys)
    settings = m.AgentSettings(memory="reshape-1", heartbeat_s=1.0, job_access=access)
    place = HostPlace(access, settings)
    with place.agent_lock("a") as is_first:
        assert is_first
        with place.agent_lock("b"):
            place.write_job_access()
            assert place.is_shared("a")
            assert place.is_shared("b")
            place.remove("a")
            assert place.job_access.exists()
        assert not place.is_shared("a")
    place.remove("b")
    assert not place.memory.exists()
