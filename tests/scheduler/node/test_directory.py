"""Files of the service directory."""

from __future__ import annotations

import resource
import socket
import tempfile
from pathlib import Path

import pytest

from reshape.errors import ReshapeError
from scheduler.node.directory import ServiceDirectory


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
