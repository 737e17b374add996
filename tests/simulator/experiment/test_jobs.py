"""The jobs of an experiment as a value: sources, changes, equality and plain data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_experiments import COLUMNS, trace_text

from reshape.errors import ConfigError, ReshapeError
from reshape.speedup import parse
from simulator import Experiment, Jobs, simulate
from simulator.engine.costs import Costs, ResizeCost
from simulator.experiment.jobs import JobFields
from simulator.workload_models.workload import Workload

WORKLOAD = (
    "processors: 8\njobs:\n"
    "  - {at: 0, processors: 4, walltime: 60, iteration_s: 1}\n"
    "  - {at: 5, processors: 8, walltime: 60, iteration_s: 1}\n"
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    path.write_text(trace_text())
    return path


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.yaml"
    path.write_text(WORKLOAD)
    return path


def test_sources(trace: Path, workload: Path) -> None:
    assert len(simulate(Jobs.read(trace)).jobs["job"]) == 12
    assert len(simulate(str(trace)).jobs["job"]) == 12
    assert len(simulate(workload).jobs["job"]) == 2
    assert len(simulate(Jobs.drawn("lublin", jobs=30)).jobs["job"]) == 30
    assert len(simulate(Jobs.drawn("prio", jobs=5)).jobs["job"]) == 5


def test_the_seed_determines_what_is_drawn() -> None:
    lublin = Jobs.drawn("lublin", jobs=20, processors=16)
    ends = [simulate(lublin, seed=seed).jobs["end_s"].tolist() for seed in (3, 3, 4)]
    assert ends[0] == ends[1] != ends[2]


def test_first(trace: Path) -> None:
    assert simulate(Jobs.read(trace).first(5)).jobs["job"].tolist() == ["1", "2", "3", "4", "5"]


def test_rules_accumulate(trace: Path) -> None:
    jobs = Jobs.read(trace).with_rules(overrun="keep").with_rules(larger="drop")
    assert (jobs.fields.rules.overrun, jobs.fields.rules.larger) == ("keep", "drop")


def test_resizable_jobs_are_resized() -> None:
    jobs = Jobs(COLUMNS).with_resizable(0.5, "amdahl:serial=0.02", iterations=20)
    ran = simulate(jobs, processors=16, scenario="fcfs-pr", seed=2)
    assert ran.resizes.rows > 0
    assert ran.metrics.keys() >= {"expansions", "contractions"}


def test_a_speedup_as_object_and_a_cost_as_text_or_mapping() -> None:
    jobs = Jobs(COLUMNS)
    text = "amdahl:serial=0.1"
    assert jobs.with_resizable(1, text) == jobs.with_resizable(1.0, parse(text))
    costs: list[Any] = ["start_s=2,join_s=1", {"start_s": 2, "join_s": 1}]
    made = [jobs.with_resizable(cost=cost) for cost in costs]
    hows = [Experiment(one).jobs.fields.resizable for one in made]
    costs = Costs.constant(ResizeCost(start_s=2, join_s=1))
    assert [how and how.costs() for how in hows] == [costs] * 2


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Jobs.read("no.swf"), "no.swf: cannot be read: No such file"),
        (lambda: Jobs.read("no.yaml"), "no.yaml: cannot be read: No such file"),
        (lambda: Jobs.drawn("lubin"), "model: unknown model 'lubin'; did you mean lublin"),
        (lambda: Jobs.drawn("lublin", procesors=8), "procesors: unknown field; did you mean proc"),
        (lambda: Jobs.drawn("lublin", jobs=0), "jobs.options.jobs: must be a whole number >= 1"),
        (lambda: Jobs.drawn("lublin", jobs=10**12), "jobs: must be a whole number >= 1 and <= 10"),
        (lambda: Jobs.drawn("lublin", estimates="tsafir"), "must be exact or tsafrir, got 'tsaf"),
        (lambda: Jobs.drawn("lublin", resources=-3), "jobs.options.resources: expected int >= 0"),
        (lambda: Jobs.drawn("lublin", law="uniform"), "law: has no effect without resources;"),
        (lambda: Jobs.drawn("lublin", longest_s=9000), "longest_s: has no effect without estim"),
        (lambda: Jobs.drawn("lublin", load=0.5, queue=2), "load and queue both set the arrival"),
        (lambda: Jobs.drawn("prio", job=3), "job: unknown field; did you mean jobs"),
        (lambda: Jobs.drawn("prio").first(3), "first: applies to rigid jobs"),
        (lambda: Jobs.drawn("prio").with_resizable(), "resizable: applies to rigid jobs"),
        (lambda: Jobs(COLUMNS).first(0), "first: must be >= 1, got 0"),
        (lambda: Jobs(COLUMNS).with_resizable(2), "resizable.share: expected float <= 1.0, got 2"),
        (lambda: Jobs(COLUMNS).with_resizable(speed="x"), "resizable.speed: unknown field; did"),
        (lambda: Jobs(COLUMNS).with_resizable(1, "amdal"), "resizable.speedup: unknown speedup"),
        (lambda: Jobs(COLUMNS).with_resizable(cost={"a": 1}), "resizable.cost.a: unknown field"),
        (lambda: Jobs(COLUMNS).with_resizable(cost="start_s"), "resizable.cost: "),
        (lambda: Jobs(COLUMNS).with_rules(overrun="x"), "rules.overrun: must be cut or extend"),
        (lambda: Jobs.of(JobFields()), "jobs: jobs have no source; give one of trace, workload"),
        (lambda: Jobs.of(JobFields(trace="a", model="b")), "jobs: jobs have trace and model"),
        (lambda: Jobs.of(JobFields(model="lublin", lenient=True)), "lenient: applies to a trace"),
        (lambda: Experiment(5), "jobs: must be Jobs, the path of a file, a mapping, a"),
        (lambda: Experiment({"trac": "a"}), "jobs.trac: unknown field; did you mean trace"),
        (lambda: Experiment({"submit_s": [1]}), "processors: is missing; jobs need submit_s"),
    ],
)  # fmt: skip
def test_wrong_jobs_give_one_error(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert says in str(error.value)


def test_what_a_workload_file_says_itself_cannot_be_changed(workload: Path) -> None:
    with pytest.raises(ConfigError, match="lenient: applies to a trace only"):
        Jobs.read(workload, lenient=True)
    changes: list[tuple[str, Callable[[Jobs], Jobs]]] = [
        ("first", lambda jobs: jobs.first(3)),
        ("resizable", lambda jobs: jobs.with_resizable()),
        ("rules", lambda jobs: jobs.with_rules(overrun="keep")),
    ]
    for field, change in changes:
        with pytest.raises(ConfigError, match=f"{field}: applies to rigid jobs"):
            change(Jobs.read(workload))


def test_lenient(trace: Path) -> None:
    trace.write_text(trace.read_text() + "13 1 nonsense\n")
    with pytest.raises(ReshapeError, match=r"small.swf:14: 3 fields, not 18"):
        simulate(trace)
    ran = simulate(Jobs.read(trace, lenient=True))
    assert len(ran.jobs["job"]) == 12
    assert ran.summary["report"]["skipped_lines"] == 1


def test_equality_and_representation(trace: Path) -> None:
    assert Jobs.read(trace) == Jobs.read(trace)
    assert Jobs.read(trace) != Jobs.read(trace).first(3)
    assert Jobs.drawn("lublin", jobs=5) == Jobs.drawn("lublin", jobs=5)
    columns = Jobs(COLUMNS)
    assert columns == columns.with_rules()
    assert columns != Jobs(COLUMNS)  # the values are not compared
    assert repr(columns.first(3)) == "Jobs(columns='12 rows', first=3)"
    assert repr(Jobs.read(trace)) == f"Jobs(trace='{trace}')"
    with pytest.raises(TypeError):
        hash(columns)


def test_plain_data_gives_the_same_jobs(trace: Path, workload: Path) -> None:
    for jobs in (
        Jobs.read(trace).first(7).with_rules(overrun="keep"),
        Jobs.read(workload),
        Jobs.drawn("lublin", jobs=10, processors=32, load=0.7),
        Jobs(COLUMNS).with_resizable(0.5, "amdahl:serial=0.1", cost="start_s=2"),
    ):
        again = Experiment(jobs.data())
        assert again.jobs.data() == jobs.data()
        ends = [simulate(one).jobs["end_s"] for one in (jobs, again.jobs)]
        assert np.array_equal(*ends, equal_nan=True)


def test_columns_are_those_that_were_given(trace: Path) -> None:
    given = Jobs(COLUMNS).columns
    assert {n: given[n].tolist() for n in COLUMNS} == COLUMNS
    assert Jobs.read(trace).columns == {}


def test_load_gives_what_is_simulated(workload: Path) -> None:
    loaded = Jobs.read(workload).load(None)
    assert isinstance(loaded, Workload)
    assert len(loaded.jobs) == 2
