"""What becomes of a test that hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paths import SUPPORT
from waiting import LIMIT_S

# It hangs in one call: if it is interrupted in a loop, between two lines, the traceback may have an
# entry without a line number, which pytest does not handle.
TESTS = """
import time
from hypothesis import given, strategies as st

@given(st.booleans())
def test_it_hangs(flag):
    time.sleep(600)

def test_another_one():
    pass
"""


def test_a_search_that_hangs_fails_and_the_next_test_runs(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    words = ["-c", os.devnull, "--rootdir", str(tmp_path), "-p", "hanging", "--timeout", "0.5"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout
