"""Fixtures for several folders of the scheduler's tests."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from scheduler.node.launching.launcher import ProcessLauncher

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


@pytest.fixture
def launcher() -> Iterator[ProcessLauncher]:
    """A launcher in this process, which is its subreaper until the end of the test.

    Otherwise it would adopt all processes that later tests orphan, and keep them as zombies.
    """
    launcher = ProcessLauncher()
    yield launcher
    launcher.close()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
