"""A recorded journal: the present code takes the same decisions.

`recorded_run.sqlite` was written by a live service with 8 processors and the scenario fcfs-pr.
It holds 7 jobs: one that was resized from 2 to 6 processors and back to 2, rigid jobs that queued,
a cancelled job and a failed one. Paths, tokens and environments were replaced, nothing else.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from paths import ROOT

JOURNAL = ROOT / "tests" / "scheduler" / "journal" / "recorded_run.sqlite"


def test_every_decision_is_identical() -> None:
    facts = json.loads(invoke("replay", JOURNAL, "--json").stdout)
    assert facts["identical"], facts["difference"]
    assert (facts["events"], facts["decisions"], facts["resizes"]) == (156, 133, 8)


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the journal with the first expansion changed."""
    copy = Path(shutil.copy(JOURNAL, path / "journal.sqlite"))
    with closing(sqlite3.connect(copy)) as db, db:
        (sequence, blob) = db.execute(
            "SELECT seq, \"order\" FROM orders WHERE kind='Expand' ORDER BY seq"
        ).fetchone()
        order = json.loads(blob)
        change(order)
        encoded = json.dumps(order).encode()
        db.execute('UPDATE orders SET "order"=? WHERE seq=?', (encoded, sequence))
    return copy


def reworded(order: dict[str, Any]) -> None:
    order["reason"] |= {"rule": "FCFS-PR", "text": "to {to}"}
    order["reason"]["facts"]["now_s"] *= 1 + 1e-12


def test_the_wording_and_the_rounding_of_a_reason_are_no_part_of_a_decision(tmp_path: Path) -> None:
    facts = json.loads(invoke("replay", changed(tmp_path, reworded), "--json").stdout)
    assert facts["identical"]


@pytest.mark.parametrize(
    ("field", "value"), [("to", 4), ("processors", {"intervals": [[7, 7]]}), ("group", 9)]
)
def test_another_decision_is_a_difference(tmp_path: Path, field: str, value: object) -> None:
    journal = changed(tmp_path, lambda order: order.update({field: value}))
    facts = json.loads(invoke("replay", journal, "--json", code=1).stdout)
    assert not facts["identical"]
    assert facts["decisions"] == 2


@pytest.mark.parametrize("release", ["", version("reshape-mpi")])
def test_another_number_in_a_reason_of_the_same_release_is_a_difference(
    tmp_path: Path, release: str
) -> None:
    journal = changed(tmp_path, lambda order: order["reason"]["facts"].update(free=3))
    with closing(sqlite3.connect(journal)) as db, db:
        for batch, blob in db.execute("SELECT batch, settings FROM settings").fetchall():
            settings = json.dumps(json.loads(blob) | {"release": release}).encode()
            db.execute("UPDATE settings SET settings=? WHERE batch=?", (settings, batch))
    found = json.loads(invoke("replay", journal, "--json", code=1 if release else 0).stdout)
    assert found["identical"] == (not release)
