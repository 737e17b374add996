"""Files of the service directory, and what agents on another host share with each other."""

from __future__ import annotations

import resource
import shutil
import socket
import tempfile
from pathlib import Path

import pytest
import zmq

from reshape.errors import ReshapeError
from reshape.wire.access import AccessFile, read_access, write_private
from scheduler.node import directory
from scheduler.node.directory import HostPlace, ServiceDirectory
from scheduler.protocol import messages as m


def test_a_full_disk_leaves_no_empty_secret(tmp_path: Path) -> None:
    """An empty file would count as the secret later."""
    place = ServiceDirectory(tmp_path / "d")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(ReshapeError, match=r"cannot use the directory .*/d: File too large"):
            place.create()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    place.create()
    assert len(place.read_secret()) == 32


def test_a_socket_needs_a_short_path_below_the_directory_or_the_temporary_one(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ServiceDirectory(tmp_path / ("long" * 30))
    longest = temporary / ("t" * (74 - len(f"{temporary}/")))
    monkeypatch.setattr(tempfile, "tempdir", f"{longest}t")
    with pytest.raises(ReshapeError, match=r"no place for a socket: .* TMPDIR .* at most 74"):
        place.create()
    assert not place.path.exists()
    longest.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(longest))
    place.create()
    for path in (place.socket, *place.lanes):
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(str(path))


def test_a_path_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """The address of a socket is UTF-8 text."""
    with pytest.raises(ReshapeError, match=r"/d\\udcff' is not UTF-8 text: name another"):
        ServiceDirectory(tmp_path / "d\udcff").create()
    assert [*tmp_path.iterdir()] == []


def test_a_folder_with_other_files_is_left_as_it_is(tmp_path: Path) -> None:
    """The current folder, which is meant by a dot or was meant by an empty name."""
    place = ServiceDirectory(tmp_path)
    (tmp_path / "secret").write_text("of someone else")  # a name that users choose, too
    tmp_path.chmod(0o755)
    with pytest.raises(ReshapeError, match=r"has other files \('secret'\) and is not the direct"):
        place.create()
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_a_folder_is_taken_if_it_is_empty_or_of_a_service_or_has_what_commands_left(
    tmp_path: Path,
) -> None:
    (tmp_path / "submissions").mkdir()
    (tmp_path / "agent-n2.log").touch()
    place = ServiceDirectory(tmp_path)
    place.create()
    (tmp_path / "notes").touch()
    place.create()
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    (tmp_path / "memory-folder").unlink()  # a journal that was restored alone
    (tmp_path / "journal.db").touch()
    place.create()


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


def test_a_start_finds_the_access_file_again_after_the_folder_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the processes of the job, on any host, would not reach the service."""
    monkeypatch.setattr(directory, "MEMORY", tmp_path)
    public, secret = (key.decode() for key in zmq.curve_keypair())
    keys = {"server_key": public, "public_key": public, "secret_key": secret}
    access = AccessFile(endpoint="tcp://n1:7077", role="job", user="ann", **keys)
    settings = m.AgentSettings(memory="reshape-1", heartbeat_s=1.0, job_access=access)
    own = ServiceDirectory(tmp_path / "service")
    own.create()
    own.make_job_folder(1)
    assert not own.job_access.exists(), "the service has no other hosts"
    (own.path / "access").mkdir()
    write_private(own.path / "access" / "job.json", access)
    for place in (own, HostPlace(access, settings)):
        place.make_job_folder(2)
        shutil.rmtree(place.memory)
        place.make_job_folder(3)
        assert read_access(place.job_access) == access
        assert place.jobs_with_folder() == [3]
