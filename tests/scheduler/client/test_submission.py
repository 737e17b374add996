"""Output files that exist before a submission are found, the job's own output is not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from reshape.wire.messages import Submission
from scheduler.client.submission import earlier_output

BEFORE = time.time()


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    return Submission(argv=["true"], processors=1, walltime_s=1.0, cwd=str(tmp_path))


@pytest.mark.parametrize(
    ("text", "age_s", "found"), [("old", 10.0, True), ("new", -10.0, False), ("", 10.0, False)]
)
def test_an_earlier_output_is_found(
    submission: Submission, tmp_path: Path, text: str, age_s: float, found: bool
) -> None:
    path = tmp_path / "reshape-3.out"
    path.write_text(text)
    os.utime(path, (BEFORE - age_s, BEFORE - age_s))
    assert earlier_output(submission, 3, BEFORE) == (path if found else None)


def test_no_output_is_found_where_there_is_none(submission: Submission) -> None:
    assert earlier_output(submission, 4, BEFORE) is None
