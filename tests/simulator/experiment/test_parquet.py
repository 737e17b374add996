"""Jobs in Parquet files, and tables of results as such."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke
from small_experiments import COLUMNS

import simulator as sim
from reshape.errors import ConfigError


def written(path: Path, columns: dict[str, Any]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    importlib.import_module("pyarrow.parquet").write_table(pyarrow.table(columns), path)
    return path


def test_results_are_written_and_read_again_as_jobs(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    run = sim.simulate(COLUMNS, processors=8)
    run.write(tmp_path / "out", with_parquet=True)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"jobs.csv", "jobs.parquet", "metrics.json"}
    again = sim.simulate(tmp_path / "out" / "jobs.parquet", processors=8)
    assert again.jobs["end_s"].tolist() == run.jobs["end_s"].tolist()
    assert again.jobs["job"].tolist() == run.jobs["job"].tolist()
    assert again.jobs["user"].tolist() == run.jobs["user"].tolist()


def test_a_file_is_a_source_in_experiment_files_and_on_the_command_line(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.parquet", {**COLUMNS, "note": ["x"] * 12})
    ends = sim.simulate(COLUMNS).jobs["end_s"].tolist()
    sim.Experiment(path).save(tmp_path / "mine.yaml")
    assert "trace: mine.parquet" in (tmp_path / "mine.yaml").read_text()
    assert sim.Experiment.from_file(tmp_path / "mine.yaml").run().jobs["end_s"].tolist() == ends
    out = tmp_path / "out"
    assert "jobs                   12" in invoke("simulate", path, "--out", out).stdout


def test_wrong_contents_name_the_file_the_column_and_the_row(tmp_path: Path) -> None:
    few = written(tmp_path / "few.parquet", {"submit_s": [0, 1], "processors": [1, 1]})
    nan = written(tmp_path / "nan.parquet", {**COLUMNS, "run_s": [1.0] * 11 + [np.nan]})
    (tmp_path / "text.parquet").write_text("no Parquet")
    for path, says in (
        (few, "few.parquet: run_s: is missing; jobs need submit_s, processors, run_s"),
        (nan, "nan.parquet: run_s: row 11: must be a finite number >= 0, got nan"),
        (tmp_path / "text.parquet", "text.parquet: cannot be read: "),
    ):
        with pytest.raises(ConfigError) as raised:
            sim.simulate(path)
        assert says in str(raised.value)
    with pytest.raises(ConfigError, match="lenient: applies to a trace only"):
        sim.Jobs.read(few, lenient=True)


def test_without_pyarrow_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # importing it fails
    run = sim.simulate(COLUMNS)
    fix = r"jobs\.parquet: Parquet needs pyarrow, .*: pip install 'reshape-mpi\[parquet\]'"
    with pytest.raises(ConfigError, match=fix):
        run.write(tmp_path / "out", with_parquet=True)
    assert not (tmp_path / "out").exists()
    (tmp_path / "jobs.parquet").write_bytes(b"")
    with pytest.raises(ConfigError, match=fix):
        sim.simulate(tmp_path / "jobs.parquet")
