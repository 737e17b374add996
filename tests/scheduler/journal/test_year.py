"""The journal of a year, which a benchmark writes, is one that a service can have."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest
from command_line import invoke
from paths import BENCHMARKS


def test_the_copied_jobs_of_a_year_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS / "scheduler")
    year = import_module("year")
    monkeypatch.setattr(year, "MADE", 4)
    year.write(tmp_path / "journal.db", 10)
    assert "complete and undamaged" in invoke("journal", "check", tmp_path).stdout
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        for table in ("jobs", "records", "summaries"):
            assert [*db.execute(f"SELECT job FROM {table} ORDER BY job")] == [
                (number,) for number in range(1, 11)
            ]
