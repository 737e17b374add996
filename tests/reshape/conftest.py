"""Settings of the runtime's tests."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of these tests."""
    config.addinivalue_line("markers", "slow: takes about a minute")
