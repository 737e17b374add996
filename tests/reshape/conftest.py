"""Settings of the runtime's tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each rank be a world of its own, where an error does not abort other ranks."""
    from mpi4py import MPI

    monkeypatch.setattr(MPI, "COMM_WORLD", MPI.COMM_SELF)
