"""Loads of traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from paths import SMALL_TRACE as SMALL

from simulator.traces import swf
from simulator.traces.derived import offered_load, scaled
from simulator.traces.normalise import NEEDED, machine_size, normalise


@pytest.mark.parametrize("load", [0.3, 0.9, 2.0])
def test_a_trace_is_brought_to_a_load(load: float) -> None:
    old = swf.read(SMALL)
    size = machine_size(old)
    new = scaled(old, normalise(old, size)[0], size, load)
    assert offered_load(normalise(new, size)[0], size) == pytest.approx(load, rel=1e-3)
    assert (old.columns["run"] == new.columns["run"]).all()
    assert (np.argsort(old.columns["submit"], kind="stable")
            == np.argsort(new.columns["submit"], kind="stable")).all()  # fmt: skip
    assert (new.columns["wait"] == -1).all()


def test_traces_without_a_load(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_text("; MaxProcs: 4\n1 0 -1 5 1 -1 -1 1 9\n2 0 -1 5 1 -1 -1 1 9\n")
    said = invoke("simulate", path, "--set", "load=1", code=1).stderr
    assert "all jobs are submitted at one time" in said
    said = invoke("simulate", SMALL, "--set", "load=1e-15", code=1).stderr
    assert "with the load 1e-15 the last job is submitted after" in said
    trace = swf.read(SMALL, fields=NEEDED)
    jobs, _ = normalise(trace, machine_size(trace))
    assert offered_load(jobs, 64) == pytest.approx(
        float((jobs.run * jobs.processors).sum()) / 64 / np.ptp(jobs.submitted)
    )
    with pytest.raises(ValueError, match="load must be > 0"):
        scaled(trace, jobs, 64, 0.0)
