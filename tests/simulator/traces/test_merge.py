"""Merging traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.traces import swf
from simulator.traces.derived import merge, origins


def trace(folder: Path, name: str, submits: list[int]) -> swf.Trace:
    path = folder / f"{name}.swf"
    lines = [
        f"{i} {at} -1 5 2 -1 -1 2 9 -1 1 {i} 1 -1 1 -1 -1 -1" for i, at in enumerate(submits, 1)
    ]
    path.write_text("; MaxProcs: 8\n" + "\n".join(lines) + "\n")
    return swf.read(path)


def test_traces_begin_at_0_and_keep_their_origin(tmp_path: Path) -> None:
    first, second = trace(tmp_path, "x", [100, 105]), trace(tmp_path, "y", [7, 9, 7 + 86400])
    merged = merge([first, second], ["X", "Y"], days=1)
    assert merged.columns["submit"].tolist() == [0, 0, 2, 5]
    assert merged.columns["job"].tolist() == [1, 2, 3, 4]
    assert origins(merged) == ["X", "Y", "Y", "X"]
    assert merged.declared("MaxProcs") == 16


def test_users_of_different_traces_are_different(tmp_path: Path) -> None:
    merged = merge([trace(tmp_path, "x", [0, 1]), trace(tmp_path, "y", [0, 1])])
    assert len(set(merged.columns["user"].tolist())) == 4


def test_a_trace_without_partitions_has_no_origins(tmp_path: Path) -> None:
    assert origins(trace(tmp_path, "x", [0, 1])) == ["", ""]


def test_names_and_traces_must_be_as_many(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 trace cannot have 2 names"):
        merge([trace(tmp_path, "x", [0])], ["a", "b"])
