"""Settings of the runtime's tests."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of these tests."""
    config.addinivalue_line("markers", "slow: takes about a minute")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each rank be a world of its own, where an error does not abort other ranks."""
    from mpi4py import MPI

    monkeypatch.setattr(MPI, "COMM_WORLD", MPI.COMM_SELF)
