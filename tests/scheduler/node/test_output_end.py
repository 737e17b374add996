"""The end of an output file, as an agent reads it after a failure."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.node.children import OutputEnd


def read(path: Path, note: str = "", own: Path | str = "") -> str:
    """Read the end of a file, and wait for the process that does it."""
    end = OutputEnd([str(path)], note, [str(own)])
    limit = time.monotonic() + 60
    while (text := end.text()) is None:
        assert time.monotonic() < limit
        select.select([], [], [], 0.005)
    return text


def test_the_end_is_read_and_the_note_is_appended(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("first\n" + "x" * (20 << 10) + "\nlast\xe4\n")
    assert read(output, "a note") == "last\xe4\n"
    assert output.read_text().endswith("last\xe4\na note\n")
    assert read(output) == "last\xe4\na note\n"


def test_a_file_without_lines_is_read_to_its_limit(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_bytes(b"\xff" * (20 << 10))
    assert read(output) == "\ufffd" * (16 << 10)


@pytest.mark.parametrize("kind", ["missing", "pipe", "folder", "null"])
def test_other_files_give_nothing_and_are_not_changed(kind: str, tmp_path: Path) -> None:
    path = Path(os.devnull) if kind == "null" else tmp_path / "out"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    assert read(path, "a note") == ""
    assert path.exists() == (kind != "missing")


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_file_of_the_service_that_a_job_links_to_is_left_alone(
    link: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    """The job replaces its output while it runs, by a link to the journal."""
    service, output = tmp_path / "service", tmp_path / "out"
    service.mkdir()
    (service / "journal.db").write_text("records\n")
    link(service / "journal.db", output)
    assert read(output, "a note", own=service) == ""
    assert (service / "journal.db").read_text() == "records\n"
    assert read(output, "a note") == "records\n", "it is the folder that counts"
