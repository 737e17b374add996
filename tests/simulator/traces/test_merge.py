"""Merging traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import invoke

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


def test_the_command_writes_the_merged_trace(tmp_path: Path) -> None:
    for name in ("x", "y"):
        trace(tmp_path, name, [0, 5, 9])
    out = tmp_path / "both.swf.gz"
    done = invoke("workload", "merge", tmp_path / "x.swf", tmp_path / "y.swf", "-o", out)
    assert "6 jobs of 2 traces" in done.stdout
    assert origins(swf.read(out)) == ["x", "y"] * 3
    names = ("--name", "only")
    done = invoke(
        "workload", "merge", tmp_path / "x.swf", tmp_path / "y.swf", *names, "-o", out, code=2
    )
    assert "1 name for 2 traces" in done.stderr
