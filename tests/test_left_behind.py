"""What the end of a run removes, and what it leaves to the runs beside it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest
from left_behind import SHARED_MEMORY, left_since

#: Creates a semaphore as `multiprocessing` does for a process that it spawns.
CREATES = "import _multiprocessing, sys; made = _multiprocessing.SemLock(0, 1, 1, {name}, False)"


@pytest.fixture
def name() -> Iterator[str]:
    """Name of a semaphore, which is removed after the test."""
    name = f"mp-{token_hex(8)}"
    yield name
    file_of(name).unlink(missing_ok=True)


def file_of(name: str) -> Path:
    return SHARED_MEMORY / f"sem.{name}"


def test_a_semaphore_stays_until_its_creator_has_ended(name: str) -> None:
    """Also before the process for which it is meant has opened it."""
    begin = time.time() - 1  # the clock of files is coarser
    program = CREATES.format(name=repr(f"/{name}")) + "; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as creator:
        assert creator.stdout is not None
        assert creator.stdout.readline()
        left_since(begin)
        assert file_of(name).exists()
        creator.kill()
    left_since(begin)
    assert not file_of(name).exists()
