"""Files of the service directory."""

from __future__ import annotations

import resource
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
