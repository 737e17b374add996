"""`reshape compare`: two runs of the same jobs, job by job."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from small_experiments import COLUMNS, trace_text

import simulator as sim


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Folder with results under two scenarios, their experiments, and a trace without waits."""
    (tmp_path / "jobs.swf").write_text(trace_text())
    (tmp_path / "waits.swf").write_text(trace_text(with_waits=True))
    for name in ("fcfs", "easy"):
        experiment = sim.Experiment(tmp_path / "jobs.swf", scenario=name)
        experiment.save(tmp_path / f"{name}.yaml")
        run = experiment.run(whole_trace=True)
        run.write(tmp_path / name)
        (tmp_path / f"{name}.swf").write_bytes(run.swf())
    return tmp_path


def test_results_experiments_and_traces_give_the_same_comparison(runs: Path) -> None:
    told = [
        json.loads(invoke("compare", f"fcfs{end}", f"easy{end}", "--json", cwd=runs).stdout)
        for end in ("", "/jobs.csv", ".yaml", ".swf")
    ]
    for one in told:
        del one["a"], one["b"]
    assert all(one == told[0] for one in told)


def test_differences_are_those_of_the_jobs(runs: Path) -> None:
    told = json.loads(invoke("compare", runs / "fcfs", runs / "easy", "--json").stdout)
    fcfs, easy = (
        sim.simulate(sim.Jobs(COLUMNS), processors=8, scenario=name) for name in ("fcfs", "easy")
    )
    later_s = easy.jobs["start_s"] - fcfs.jobs["start_s"]
    assert (told["jobs"], told["only_a"], told["only_b"]) == (12, 0, 0)
    assert told["earlier"] == (later_s < 0).sum() > 0
    assert told["later"] == (later_s > 0).sum()
    assert told["earlier"] + told["same"] + told["later"] == 12
    assert told["starts"]["mean"] == pytest.approx(later_s.mean())
    assert told["starts"]["min"] == later_s.min()
    assert told["starts"]["p25"] == np.percentile(later_s, 25)
    for name, row in told["metrics"].items():
        assert (row["a"], row["b"]) == (fcfs.metrics[name], easy.metrics[name])
        assert row["difference"] == row["b"] - row["a"]
    assert [job["later_s"] for job in told["gained"]] == sorted(later_s[later_s < 0])[:5]
    first = told["gained"][0]
    row = fcfs.jobs["job"].tolist().index(first["job"])
    assert first["start_a_s"] == fcfs.jobs["start_s"][row]
    assert first["processors"] == COLUMNS["processors"][row]


def test_text(runs: Path) -> None:
    told = invoke("compare", "waits.swf", "easy.yaml", "--most", 1, cwd=runs).stdout
    assert told.startswith("A  waits.swf\nB  easy.yaml\n\nMETRIC ")
    assert "Of 12 jobs, " in told
    assert "Start in B - start in A, s:" in told
    assert told.count("Jobs that ") == 2
    same = invoke("compare", "easy", "easy.yaml", cwd=runs).stdout
    assert "0 start earlier in B, 12 at the same time, 0 later." in same
    assert "Jobs that" not in same


def test_jobs_that_only_one_run_has(runs: Path) -> None:
    lines = (runs / "easy" / "jobs.csv").read_text().splitlines(keepends=True)
    (runs / "few.csv").write_text("".join(lines[:-2]))
    told = json.loads(invoke("compare", "easy", "few.csv", "--json", cwd=runs).stdout)
    assert (told["jobs"], told["same"], told["only_a"], told["only_b"]) == (10, 10, 2, 0)
    assert "2 jobs started in A only." in invoke("compare", "easy", "few.csv", cwd=runs).stdout
    (runs / "none.csv").write_text(lines[0] + lines[1].replace("1,jobs", "99,jobs", 1))
    said = invoke("compare", "easy", "none.csv", cwd=runs, code=1).stderr
    assert "easy and none.csv have no job in common, by their numbers" in said


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nowhere", "nowhere: cannot be read: No such file"),
        ("nowhere.yaml", "nowhere.yaml: cannot be read: No such file"),
        ("jobs.swf", "jobs.swf: no job has a recorded wait (field 3)"),
        ("wrong.yaml", "wrong.yaml:1: scenario: unknown scenario 'esy'; did you mean easy"),
        ("easy/metrics.json", "easy/metrics.json: no column job_id; is it a jobs.csv?"),
        (".", "jobs.csv: cannot be read: No such file"),
    ],
)
def test_wrong_input_is_one_error(runs: Path, path: str, says: str) -> None:
    (runs / "wrong.yaml").write_text("scenario: esy\njobs: jobs.swf\n")
    assert says in invoke("compare", "easy", path, cwd=runs, code=1).stderr
