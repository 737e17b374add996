"""Resizable workloads from the command line: files, and traces made resizable."""

from __future__ import annotations

import csv
import json
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result
from one_machine import run
from paths import SMALL_TRACE
from small_experiments import CENTRES

from reshape.__main__ import main
from reshape.errors import ConfigError, ReshapeError
from scheduler.model.events import JobSpec
from scheduler.model.procset import ProcSet
from scheduler.policies import registry
from scheduler.policies.scenarios import scenario
from simulator import Experiment, Jobs
from simulator.engine.jobs import SimJob
from simulator.results import jobs_csv
from simulator.results.schedule import Window
from simulator.traces import swf
from simulator.traces.normalise import Rules, normalise
from simulator.workload_models import workload_file
from simulator.workload_models.workload import Resizable, Workload, of_trace

SMALL = SMALL_TRACE
FILE = """\
processors: 16
cost: {start_s: 5, join_s: 0.25, bytes_per_s: 1e9}
start_s: 1
end_s: 0.5
jobs:
  - {at: 0, processors: 2, max_processors: 4, topology: "arbitrary:step=2", walltime: "5:00",
     iterations: 4, iteration_s: 10, speedup: "amdahl:serial=0", data_mib: 476.837158203125}
  - {at: 3, processors: 4, walltime: 120, iteration_s: 90, user: ann}
"""
PRIO = """\
jobs: {model: prio, options: {jobs: 30, resizable: 0.5, mean_arrival_s: 10}}
seed: 3
"""


def simulate(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


def told(*arguments: object) -> dict[str, object]:
    done = simulate(*arguments, "--json")
    assert done.exit_code == 0, done.output
    facts: dict[str, object] = json.loads(done.stdout)
    return facts


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(FILE)
    return path


def test_a_file_of_jobs_with_every_cost(file: Path, tmp_path: Path) -> None:
    """Worked out by hand: start 1; iterations of 10 s on 2 processors, of 5 s on 4."""
    static = told(file, "--policy", "easy")
    assert static["mean_execution_s"] == (1 + 40 + 0.5 + 1 + 90 + 0.5) / 2
    out = tmp_path / "out"
    facts = told(file, "--policy", "fcfs-pr", "--out", out)
    assert (facts["jobs"], facts["expansions"], facts["contractions"]) == (2, 1, 0)
    # Decided at 11, the group is there at 16, joins at 21: 0.25 s and 0.5 s of moving; two more.
    first = 1 + 10 + 10 + 0.25 + 0.5 + 5 + 5 + 0.5
    assert facts["mean_execution_s"] == pytest.approx((first + 91.5) / 2)
    with (out / "jobs.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert [float(row["execution_time"]) for row in rows] == pytest.approx([first, 91.5])
    assert rows[0]["workload_name"] == "two"
    stored = json.loads((out / "metrics.json").read_text())
    assert stored == {name: facts[name] for name in stored}
    assert told(file, "--processors", 4, "--policy", "fcfs-pr")["mean_wait_s"] > 0


def test_results_tell_the_sizes_over_time(tmp_path: Path) -> None:
    """What jobs held by `jobs.csv` is the utilisation that was found."""
    path, out = tmp_path / "prio.yaml", tmp_path / "out"
    path.write_text(PRIO)
    facts = told(path, "--policy", "fcfs-pr", "--out", out)
    schedule, _ = jobs_csv.read(out / "jobs.csv")
    assert schedule.sizes is not None
    changes = sum(len(sizes) - 1 for sizes in schedule.sizes.values())
    assert changes == facts["expansions"] + facts["contractions"] > 0
    starts = [sizes[0][0] for sizes in schedule.sizes.values()]
    assert starts == schedule.started.tolist()
    held = schedule.size_spans()
    work = float(((held.end - held.begin) * held.processors).sum())
    assert work == pytest.approx(facts["utilization"] * 400 * facts["makespan_s"], rel=1e-6)
    span = np.array([schedule.jobs.submitted.min(), schedule.ended.max()])
    (mean,), (peak,) = schedule.in_use().between(span)
    assert mean * np.diff(span) == pytest.approx(work)
    assert peak <= 400
    largest = schedule.jobs.processors.max()
    assert schedule.least_processors > largest, "some grew beyond what any asked for"
    text = (out / "jobs.csv").read_text()
    (out / "jobs.csv").write_text(text.replace(":35,", ":x,", 1))
    wrong = r"jobs.csv:\d+: sizes: '.* [\d.]+:x' is not a valid value"
    with pytest.raises(ReshapeError, match=wrong):
        jobs_csv.read(out / "jobs.csv")


def test_a_generator_by_name_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "prio.yaml"
    path.write_text(PRIO)
    facts = told(path, "--policy", "fcfs-pr")
    assert (facts["jobs"], facts["processors"]) == (30, 400)
    assert facts["expansions"] > 0
    other = told(path, "--policy", "fcfs-pr", "--seed", 4)
    assert other["mean_turnaround_s"] != facts["mean_turnaround_s"]
    again = told(path, "--policy", "fcfs-pr", "--seed", 3)
    assert again["mean_turnaround_s"] == facts["mean_turnaround_s"]


PHASES = """\
processors: 4
jobs:
  - {at: 0, processors: 2, max_processors: 4, walltime: 1000, iterations: 8, iteration_s: 10,
     speedup: "amdahl:serial=0", phases: [{iteration: 0, maximum: 2}, {iteration: 3, minimum: 4},
     {iteration: 6, maximum: 2}]}
"""


def test_a_program_requests_bounds_on_its_size(tmp_path: Path) -> None:
    """Without the first bound it would expand at once. A request is met at the next resize point.

    Four iterations of 10 s on 2 processors, three of 5 s on 4, and one of 10 s on 2 again.
    """
    path = tmp_path / "phases.yaml"
    path.write_text(PHASES)
    facts = told(path, "--policy", "fcfs-pr")
    assert (facts["expansions"], facts["contractions"]) == (1, 1)
    assert facts["mean_execution_s"] == 40 + 15 + 10
    workload = workload_file.read(path)
    path.write_bytes(workload_file.encode(workload, "the same"))
    assert workload_file.read(path).jobs == workload.jobs


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "iteration: 3",
            "iteration: 8",
            ":4: jobs[0].phases: iteration must be from 0 to 7",
        ),
        ("minimum: 4", "minimum: -4", ":4: jobs[0].phases: minimum and maximum must be >= 0, got"),
        ("minimum: 4", "least: 4", "jobs[0].phases[1].least: unknown field"),
    ],
)
def test_errors_of_phases(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "phases.yaml"
    path.write_text(PHASES.replace(old, new))
    with pytest.raises(ConfigError) as error:
        workload_file.read(path)
    assert words in str(error.value)


MALLEABLE = """\
processors: 4
jobs:
  - {at: 0, processors: 2, walltime: 100, iteration_s: 100}
  - {at: 1, processors: 4, min_processors: 2, topology: "list:2,4", walltime: 50, iterations: 4,
     iteration_s: 10, speedup: "amdahl:serial=0"}
"""


def test_a_job_with_a_minimum_starts_on_fewer_processors(tmp_path: Path) -> None:
    """It requests the whole machine and runs on the half that is free, for twice as long.

    Its walltime is prolonged, so that it is not ended at 50 s.
    """
    path = tmp_path / "malleable.yaml"
    path.write_text(MALLEABLE)
    facts = told(path, "--policy", "easy")
    assert (facts["mean_wait_s"], facts["mean_execution_s"]) == (0, (100 + 80) / 2)
    workload = workload_file.read(path)
    path.write_bytes(workload_file.encode(workload, "the same"))
    assert workload_file.read(path).jobs == workload.jobs
    rigid = MALLEABLE.replace('min_processors: 2, topology: "list:2,4", ', "")
    path.write_text(rigid.replace(', speedup: "amdahl:serial=0"', ""))
    assert told(path, "--policy", "easy")["mean_wait_s"] == 99 / 2


@pytest.mark.parametrize(
    "field",
    [
        'topology: "list:2,4"',
        'speedup: "amdahl:serial=0"',
        "data_mib: 1",
        'performance: "amdahl:serial=0"',
        "phases: [{iteration: 0, maximum: 2}]",
    ],
)
def test_a_rigid_job_takes_no_fields_of_resizable_ones(tmp_path: Path, field: str) -> None:
    path = tmp_path / "rigid.yaml"
    path.write_text(f"jobs: [{{at: 0, processors: 2, walltime: 9, iteration_s: 5, {field}}}]")
    name = field.partition(":")[0]
    with pytest.raises(ConfigError, match=rf"rigid.yaml:1: jobs\[0\].{name}: .*the job is rigid"):
        workload_file.read(path)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ("min_processors: 0", "jobs[1].min_processors: must be >= 1, got 0"),
        ("min_processors: 5", "jobs[1].min_processors: must be <= 4, the processors of the job"),
        (
            "min_processors: 3, max_processors: 3",
            "jobs[1].max_processors: must be >= 4, got 3",
        ),
    ],
)
def test_errors_of_a_minimum(tmp_path: Path, new: str, words: str) -> None:
    path = tmp_path / "malleable.yaml"
    path.write_text(MALLEABLE.replace("min_processors: 2", new))
    with pytest.raises(ConfigError) as error:
        workload_file.read(path)
    assert f"{path}:4: {words}" in str(error.value)


def test_a_topology_without_a_size_from_the_minimum_to_the_request(tmp_path: Path) -> None:
    path = tmp_path / "malleable.yaml"
    path.write_text(MALLEABLE.replace("list:2,4", "list:1,8"))
    with pytest.raises(ConfigError, match="cannot start on 2 to 4 processors; nearest: 1 or 8"):
        workload_file.read(path)


def test_jobs_of_a_trace_with_a_smallest_size() -> None:
    """Also those that request the whole machine, which cannot expand."""
    jobs, _ = normalise(swf.read(SMALL), 16, Rules(larger="cap"))
    how = Resizable(1.0, "amdahl:serial=0.02", expand_least=0.3)
    for made, spec in zip(of_trace(jobs, 16, how).jobs, jobs.specs(), strict=True):
        n, least = spec.processors, ceil(0.3 * spec.processors)
        assert made.spec.min_processors == (least if least < n else None)
        assert made.spec.largest == min(16, 4 * n)
        assert made.spec.resizable == (least < n or n < 16)
    options = ["--policy", "easy", "--resizable", "1", "--speedup", "amdahl:serial=0.02"]
    rigid, malleable = (
        told(SMALL, *options, "--set", f"jobs.resizable.expand_least={least}")
        for least in (1, 0.25)
    )
    assert malleable["mean_wait_s"] < rigid["mean_wait_s"]  # type: ignore[operator]
    done = simulate(SMALL, *options, "--set", "jobs.resizable.expand_least=0")
    assert done.exit_code != 0
    assert "expand_least" in done.output


COLUMNS = {"submit_s": [0, 1, 2], "processors": [4, 6, 2], "run_s": [10, 10, 10]}


def test_columns_with_bounds_on_the_sizes() -> None:
    """The second job starts on four of its two to six processors; the others state no bounds."""
    jobs = Jobs(COLUMNS, min_processors=[-1, 2, -1], max_processors=[-1, -1, -1])
    jobs = jobs.with_resizable(1.0, "amdahl:serial=0", expand_most=1)
    result = Experiment(jobs, scenario="easy", processors=8).run()
    assert result.schedule.started.tolist() == [0, 1, 10]
    assert result.schedule.ended.tolist() == [10, 1 + 15, 20]


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"min_processors": [1, 7, 1]}, "row 1: must be at most 6, the processors of the job, got"),
        ({"max_processors": [4, 8, 1]}, "row 2: must be at least 2, the processors of the job"),
        ({"min_processors": [1, 1]}, "has 2 values and submit_s 3"),
        ({"min_processors": [1, 1, 1]}, "has an effect on resizable jobs only: make the jobs"),
    ],
)
def test_errors_of_columns_with_bounds(bounds: dict[str, list[int]], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        Experiment(Jobs(COLUMNS, **bounds), processors=8).run()
    assert words in str(error.value)
    assert next(iter(bounds)) in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("processors: 2,", "procesors: 2,", "jobs[0].procesors: unknown field"),
        ("processors: 2,", "processors: 0,", ":6: jobs[0].processors: must be >= 1, got 0"),
        (
            "max_processors: 4",
            "max_processors: 1",
            ":6: jobs[0].max_processors: must be >= 2, got 1",
        ),
        ("arbitrary:step=2", "arbitary", ":6: jobs[0].topology: topology 'arbitary'"),
        (
            '"arbitrary:step=2"',
            '"list:3,4"',
            ":6: jobs[0].topology: a job of topology list:3,4 cannot",
        ),
        ("amdahl:serial=0", "amdal", ":7: jobs[0].speedup: unknown speedup model 'amdal'"),
        ('"5:00"', '"five"', ":6: jobs[0].walltime: "),
        (
            "iteration_s: 90",
            "iteration_s: -1",
            ":8: jobs[1].iteration_s: must be >= 0 and <= 1e+15",
        ),
        ("walltime: 120, ", "", ":8: jobs[1].walltime: is missing"),
        ("at: 3", "at: soon", ":8: jobs[1].at: expected float, got 'soon'"),
        ("at: 3", "at: -1", ":8: jobs[1].at: must be >= 0 and <= 1e+15, got -1"),
        ("at: 3", "at: 1e16", ":8: jobs[1].at: must be >= 0 and <= 1e+15, got 1e+16"),
        ("at: 3", "at: 03", ":8: jobs[1].at: 03 has a leading zero"),
        ("at: 3", "at: 3, begin_s: -1", ":8: jobs[1].begin_s: must be >= 0 and <= 1e+15, got -1"),
        ("at: 3", "at: 3, iterations: 0", ":8: jobs[1].iterations: must be >= 1, got 0"),
        ("at: 3", "at: 3, demand: {bw: -2}", ":8: jobs[1].demand.bw: must be >= 0, got -2"),
        ("walltime: 120", "walltime: 0", ":8: jobs[1].walltime: must be > 0 and <= 1e+15, got 0"),
        (
            "walltime: 120",
            "walltime: '120'",
            ":8: jobs[1].walltime: '120' has no unit: write 120 w",
        ),
        ("processors: 16", "processors: 16\nseed: 1", ":2: seed: unknown field"),
        ("at: 3", "at: .nan", ":8: jobs[1].at: must be >= 0 and <= 1e+15, got nan"),
        (
            "data_mib: 476.837158203125",
            "data_mib: .inf",
            "data_mib: must be >= 0 and <= 1e+15, got inf",
        ),
        ("start_s: 5", "start: 5", ":2: cost.start: unknown field; did you mean start_s?"),
        ("start_s: 5", "start_s: soon", ":2: cost.start_s: expected float, got 'soon'"),
        ("walltime: 120", "walltime: .inf", "walltime: must be > 0 and <= 1e+15, got inf"),
        ("start_s: 5", "start_s: -5", ":2: cost.start_s: start_s must be >= 0 and finite"),
        ("end_s: 0.5", "end_s: -1", ":4: end_s: must be >= 0 and finite, got -1"),
        ("processors: 16", "processors: 0", ":1: processors: must be >= 1, got 0"),
        ("jobs:\n", "job:\n", ":5: job: unknown field; did you mean jobs?"),
    ],
)
def test_a_wrong_file_is_told_with_line_and_field(
    file: Path, old: str, new: str, words: str
) -> None:
    assert old in FILE
    file.write_text(FILE.replace(old, new, 1))
    done = simulate(file)
    assert done.exit_code == 1
    assert str(file) in done.stderr
    assert words in done.stderr


def test_numbers_with_an_exponent(file: Path) -> None:
    """A number of YAML 1.2, which YAML 1.1 takes for a text."""
    file.write_text(FILE.replace("at: 3", "at: 3e2").replace("walltime: 120", "walltime: 12E+1"))
    job = workload_file.read(file).jobs[1]
    assert (job.at, job.spec.walltime_s) == (300.0, 120.0)
    named = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, name="3e2"))
    file.write_bytes(workload_file.encode(Workload(4, [named]), "a text that looks like a number"))
    assert workload_file.read(file).jobs == [named]


def test_demands_that_no_node_can_meet_are_refused_or_noted(file: Path) -> None:
    file.write_text(FILE.replace("at: 3", "at: 3, demand: {bandwidth.read: 5}"))
    machine: dict[str, Any] = {"nodes": 16, "resources_per_node": {"bandwidth": 8}}
    for fields in ({}, {"machine": machine}):
        says = "job 2: demand.bandwidth.read: the nodes of the machine have no bandwidth.read that"
        with pytest.raises(ReshapeError, match=says):
            Experiment(str(file), **fields).run()
    shares = {"nodes": 16, "shared_per_node": {"bandwidth": 8}}
    shared = Experiment(str(file), machine=shares, sharing="changes")
    assert shared.run().notes == []
    file.write_text(FILE)
    assert shared.run().notes == ["sharing has no effect, because no job demands bandwidth"]
    (note,) = Experiment(str(file), machine=machine).run().notes
    assert note == "bandwidth in resources_per_node has no effect, because no job requests it"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jobs: {model: prio, options: {job: 3}}", "prio.job: unknown field; did you mean jobs?"),
        ("jobs: {model: prio, options: {resizable: 2}}", "resizable must be >= 0 and <= 1, got 2"),
        ("processors: 4", "jobs: is missing"),
        ("jobs: []", "jobs: expected array of length >= 1, got []"),
    ],
)
def test_wrong_or_missing_jobs_are_told(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    done = simulate(path)
    assert done.exit_code == 1
    assert words in done.stderr


def test_a_share_of_a_trace_is_made_resizable(tmp_path: Path) -> None:
    rigid = told(SMALL, "--policy", "fcfs-pr")
    options = ("--policy", "fcfs-pr", "--speedup", "amdahl:serial=0.01")
    half = told(SMALL, *options, "--resizable", 0.5, "--swf", tmp_path / "waits.swf")
    whole = told(SMALL, *options, "--resizable", 1)
    assert rigid["jobs"] == half["jobs"] == whole["jobs"]
    assert 0 < half["expansions"] < whole["expansions"]
    assert whole["mean_turnaround_s"] < rigid["mean_turnaround_s"]
    seeded = told(SMALL, *options, "--resizable", 0.5, "--seed", 1)
    assert seeded["mean_turnaround_s"] != half["mean_turnaround_s"]
    costly = told(
        SMALL,
        *options,
        "--resizable",
        1,
        "--set",
        "jobs.resizable.cost=join_s=600",
        "--set",
        "jobs.resizable.data_mib=1",
    )
    assert costly["mean_execution_s"] > whole["mean_execution_s"]


def never_resizing() -> list[str]:
    names = [name for name in registry.known("scenario") if scenario(name).resizing is None]
    assert {"fcfs", "easy", "easy++", "conservative", "rua", "static"} <= {*names}
    return names


@pytest.mark.parametrize("order", ["batch", "sequential"])
@pytest.mark.parametrize("name", never_resizing())
def test_resizable_jobs_that_keep_their_sizes_change_nothing(name: str, order: str) -> None:
    """1/49 of a run time, added 49 times, is not the run time.

    An aging order sorts the queue at each event, and a resize point is one: `static` may start
    other jobs then.
    """
    trace, rules = swf.read(SMALL), Rules(larger="cap")
    rigid = run(trace, 64, scenario(name), rules, event_order=order, counted=False)
    jobs = normalise(trace, 64, rules, labels=True)[0]
    half = of_trace(jobs, 64, Resizable(0.5, iterations=49))
    schedule = run(half, 64, scenario(name), event_order=order)
    assert (schedule.ended == schedule.started + jobs.run).all()
    if not scenario(name).queue_order.ages:
        assert schedule.started.tolist() == rigid.started.tolist()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((SMALL, "--speedup", "amdal"), "--speedup: unknown speedup model 'amdal'; did you mean"),
        ((SMALL, "--resizable", 1, "--select", "count"), "--select: resizable jobs get"),
        ((SMALL, "--resizable", 1, "--speedup", "amdal"), "did you mean amdahl?"),
        (
            (SMALL, "--resizable", 1, "--set", "jobs.resizable.cost=join=1"),
            "unknown field; did you mean join_s?",
        ),
        ((SMALL, "--resizable", 2), "2.0 is not in the range"),
        (("x.yaml", "--lenient"), "--lenient: applies to a trace only"),
    ],
)
def test_wrong_options(
    arguments: tuple[object, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(FILE)
    done = simulate(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr


def test_the_head_of_the_module_is_an_example(tmp_path: Path) -> None:
    text = (workload_file.__doc__ or "").partition("::\n")[2]
    path = tmp_path / "example.yaml"
    path.write_text("".join(line[4:] + "\n" for line in text.splitlines()))
    assert len(workload_file.read(path).jobs) == 4


def test_a_performance_model_of_a_job_decides_how_far_it_expands(tmp_path: Path) -> None:
    """The job scales to 4 processors; its table says so, and the fit has to find it out."""
    job = (
        "{at: 0, processors: 2, max_processors: 8, topology: power-of-2, walltime: 1000,"
        ' iterations: 10, iteration_s: 10, speedup: "table:2=10,4=5,8=7"%s}'
    )
    path = tmp_path / "one.yaml"
    expansions = []
    for more in ("", ', performance: "table:2=10,4=5,8=7"'):
        path.write_text(f"processors: 8\njobs:\n  - {job % more}\n")
        expansions.append(told(path, "--policy", "max-b-pr")["expansions"])
    assert expansions == [2, 1]
    path.write_text(f"processors: 8\njobs:\n  - {job % ', performance: amdal'}\n")
    done = simulate(path, "--policy", "max-b-pr")
    assert done.exit_code != 0
    assert "jobs[0].performance" in done.output
    assert "did you mean amdahl?" in done.output


def test_a_performance_model_of_resizable_jobs_of_a_trace() -> None:
    options = ["--policy", "max-b-pr", "--resizable", "1", "--speedup", "downey:A=4,sigma=0"]
    fit, model = (
        told(SMALL, *options, *more)
        for more in ([], ["--set", "jobs.resizable.performance=downey:A=4,sigma=0"])
    )
    assert fit["expansions"] != model["expansions"]
    assert (
        simulate(SMALL, *options, "--set", "jobs.resizable.performance=downey:B=4").exit_code != 0
    )


def test_resizable_jobs_hold_further_resources_from_start_to_end(tmp_path: Path) -> None:
    """Two of three jobs at a time have one of two gpus each, whatever their sizes are."""
    lines = "".join(
        f"{job} {job} -1 100 2 -1 -1 2 200 -1 1 1 1 -1 -1 -1 -1 -1 1\n" for job in (1, 2, 3)
    )
    (tmp_path / "gpu.swf").write_text(f"; MaxProcs: 16\n; Resources: gpu=2\n{lines}")
    experiment = Experiment(
        Jobs.read(tmp_path / "gpu.swf").with_resizable(1.0, "amdahl:serial=0", expand_most=2),
        scenario="fcfs-pr",
    )
    result = experiment.run()
    assert result.notes == []
    assert (result.metrics["jobs"], result.metrics["unstarted"]) == (3, 0)
    assert result.metrics["expansions"] > 0
    started, ended = result.schedule.started, result.schedule.ended
    assert started[2] == ended[:2].min() > ended[:2].min() - started[0] > 0
    node = {"nodes": 2, "processors_per_node": 8, "resources_per_node": {"gpu": 2}}
    assert experiment.replace(machine=node).run().schedule.started.tolist() == [1, 2, 3]


def test_single_jobs_with_resources_that_the_machine_lacks_are_refused() -> None:
    jobs = [SimJob(0.0, JobSpec(1, 10.0, resources={"gpu": 2}), 5.0)]
    workload = Workload(4, jobs)
    lacks = "job 1 requests gpu, of which the machine has none: name it in the resources_per_node"
    with pytest.raises(ReshapeError, match=lacks):
        Experiment(workload).run()
    machine: dict[str, object] = {"nodes": 4, "resources_per_node": {"gpu": 1, "licences": 1}}
    result = Experiment(workload, machine=machine).run()
    assert result.metrics["jobs"] == 1
    assert result.notes == [
        "licences in resources_per_node has no effect, because no job requests it"
    ]
    parted = {**machine, "partitions": {"small": {"nodes": 1}, "rest": None}}
    _, note = Experiment(workload, machine=parted).run().notes
    assert "job 1 requests 1 processor and gpu=2, which never became available to it" in note


@pytest.mark.parametrize(
    "place", [{"pool": "nodes=0-4,processors=4,time_limit=1000"}, {"machine": CENTRES}]
)
def test_pools_and_centres_refuse_jobs_with_further_resources(
    place: dict[str, object], tmp_path: Path
) -> None:
    text = "; MaxProcs: 8\n; Resources: gpu=2\n7 0 -1 9 2 -1 -1 2 20 -1 1 1 1 -1 -1 -1 -1 -1 1\n"
    (tmp_path / "gpu.swf").write_text(text)
    for jobs in (Jobs.read(tmp_path / "gpu.swf"), Jobs.read(tmp_path / "gpu.swf").with_resizable()):
        with pytest.raises(
            ReshapeError, match=r"job 7 requests gpu=1, and the nodes of .* have only processors"
        ):
            Experiment(jobs, **place).run()


COSTS = {"start_s": 7.0, "join_s": 2.0, "bytes_per_s": 2**20}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"select": "first-fit"},
        {"scenario": {"name": "fcfs-pr", "redirection.theta": 1, "redirection.processors": 16}},
        {"machine": CENTRES},
        {"pool": "nodes=0-4,processors=4,time_limit=2000", "pool_wait": 20},
    ],
    ids=["counted", "numbered", "redirected", "centres", "pool"],
)
def test_allocations_add_up_to_the_utilization(more: dict[str, Any]) -> None:
    """A group that joins is held from the order on, long before the job computes on it."""
    flexible = (
        Jobs.read(SMALL)
        .first(60)
        .with_resizable(1.0, "amdahl:serial=0.01", cost=COSTS, data_mib=3.0)
    )
    fields = {} if "machine" in more else {"scenario": "fcfs-pr"}
    result = Experiment(flexible, **(fields | more)).run()
    held = result.allocations
    held_s = float(((held["end_s"] - held["begin_s"]) * held["processors"]).sum())
    schedule = result.schedule
    assert (held["end_s"] >= held["begin_s"]).all()
    assert held_s == pytest.approx(schedule.all_held_s)
    makespan_s = schedule.ended.max() - schedule.jobs.submitted.min()
    utilization = held_s / (schedule.processors * makespan_s)
    if "utilization" in result.metrics:
        assert result.metrics["utilization"] == pytest.approx(utilization)
    else:
        assert result.metrics["utilization_pct"] == pytest.approx(100 * utilization)
    assert schedule.sizes is not None
    assert len(held["job"]) >= sum(len(sizes) for sizes in schedule.sizes.values())
    if "select" in more:
        assert held["processors"].tolist() == [len(ProcSet.parse(text)) for text in held["numbers"]]
        in_use = schedule.in_use().values
        assert in_use.min() >= 0
        assert in_use.max() <= schedule.processors
    if result.centres is None and result.pool is None:
        window = schedule.metrics(60.0, Window(0.0, 1e-9)).utilization
        within = np.minimum(held["end_s"], schedule.jobs.submitted.max()) - held["begin_s"]
        span_s = float(np.ptp(schedule.jobs.submitted))
        of_span = float((np.maximum(within, 0) * held["processors"]).sum())
        assert window == pytest.approx(of_span / (schedule.processors * span_s))
