"""Files that are kept spare, in this process with a lower limit."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scheduler.config.settings import NodeConfig
from scheduler.journal.journal import Journal
from scheduler.node.access_keys import AccessKeys
from scheduler.node.agent_starts import AgentStarts
from scheduler.node.directory import ServiceDirectory
from scheduler.service.limits import SpareFiles


@contextmanager
def spare(files: int) -> Iterator[None]:
    """Leave this process so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + files, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("left", [0, 1])
def test_a_socket_has_no_name_while_few_files_are_left(tmp_path: Path, left: int) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(str(path))
        listener.listen()
        files = SpareFiles([path, tmp_path / "missing"])
        files.keep()
        assert path.exists()
        with spare(left):
            files.keep()
            files.keep()
            assert not path.exists()
            with pytest.raises(FileNotFoundError):
                client.connect(str(path))
        files.keep()
        client.connect(str(path))
        with spare(left):
            files.keep()
        files.close()
        assert path.exists()


def test_a_journal_is_written_and_read_without_a_file_left(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    with spare(0):
        for number in range(600):  # further than to the first checkpoint
            journal.note_meta(f"key {number}", f"{number}" * 3000)
            journal.commit()
        assert len(list(journal.rows("SELECT * FROM meta ORDER BY value, key"))) > 600
    journal.close()


def test_agents_are_neither_lost_nor_started_without_a_file_left(tmp_path: Path) -> None:
    directory = ServiceDirectory(tmp_path)
    directory.create()
    nodes = {"local": NodeConfig("local", 1), "n2": NodeConfig("n2", 1, launcher="ssh")}
    starts = AgentStarts(directory, nodes, "ssh")
    assert starts.is_gone("local")
    with spare(0):
        assert not starts.is_gone("local")
        starts.keep_started("local", is_silent=True)
        starts.keep_started("n2", is_silent=True)
    assert "Too many open files" in starts.faults["n2"]
    assert starts.is_gone("local")


def test_the_list_of_keys_is_read_again_when_files_are_left(tmp_path: Path) -> None:
    keys = AccessKeys(tmp_path, "ann")
    keys.prepare("tcp://127.0.0.1:1")
    (key, *_) = keys.granted()
    fresh = AccessKeys(tmp_path, "ann")
    with spare(0):
        assert fresh.grant_of(key.public_key) is None
        assert fresh.fault_of(key.public_key) == "the list of keys cannot be read"
    assert fresh.grant_of(key.public_key) == key
