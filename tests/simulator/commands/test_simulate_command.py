"""`reshape simulate` and `reshape workload` as a user meets them."""

from __future__ import annotations

import csv
import gzip
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import invoke
from paths import EXAMPLES
from paths import SMALL_TRACE as SMALL

from scheduler.model.procset import ProcSet
from simulator.traces import files, swf
from simulator.workload_models.drawn import MIXES, with_demands

BIN = Path(sys.executable).parent
BY_QUEUE = ("--set", "partition_field=queue")
NAMES = {
    "jobs", "processors", "mean_wait_s", "mean_bounded_slowdown", "tau", "max_wait_s",
    "utilization", "makespan_s", "killed", "wall_s", "jobs_per_s", "peak_rss_mib",
}  # fmt: skip


def test_json_and_every_result(tmp_path: Path) -> None:
    out, waits = tmp_path / "out", tmp_path / "waits.swf.gz"
    done = invoke(
        "simulate", SMALL, "--select", "first-fit", "--out", out, "--swf", waits, "--json"
    )
    told = json.loads(done.stdout)
    assert told.keys() >= NAMES
    assert told["jobs"] == told["report"]["kept"] < 400
    stored = json.loads((out / "metrics.json").read_text())
    assert stored == {name: told[name] for name in stored}
    with (out / "jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == told["jobs"]
    mean = sum(float(row["waiting_time"]) for row in rows) / len(rows)
    assert mean == pytest.approx(told["mean_wait_s"])
    assert sum(row["success"] == "0" for row in rows) == told["killed"]
    assert rows[0]["workload_name"] == "small"
    for row in rows:
        held = ProcSet.parse(row["allocated_resources"])
        assert len(held) == int(row["requested_number_of_resources"])
    trace = swf.read(waits)
    assert float(trace.columns["wait"].mean()) == pytest.approx(told["mean_wait_s"])
    assert gzip.decompress(waits.read_bytes()) == (out / "schedule.swf").read_bytes()
    again = invoke("simulate", waits, "--processors", 64, "--json")
    assert json.loads(again.stdout)["mean_wait_s"] == told["mean_wait_s"]


def test_a_scenario_that_resizes_no_job_is_noted() -> None:
    done = invoke("simulate", SMALL, "--policy", "fcfs-pr", "--json")
    assert "reshape: fcfs-pr resizes no job, because none is resizable: give --resiz" in done.stderr
    json.loads(done.stdout)
    for words in (["--policy", "easy"], ["--policy", "fcfs-pr", "--resizable", "0.5"]):
        assert invoke("simulate", SMALL, *words, "--jobs", 50).stderr == ""


def test_an_experiment_without_jobs_is_no_workload_file(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text("scenario: easy\n")
    assert f"{file}:1: jobs: is missing; give the path" in invoke("simulate", file, code=1).stderr


def test_a_job_larger_than_the_machine_is_named(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    line = "  - {at: 0, processors: 8, walltime: 120, iteration_s: 5}\n"
    file.write_text(f"processors: 4\njobs:\n{line}")
    done = invoke("simulate", file)
    told = (
        "1 job could not start and count in no mean: job 1 requests 8 processors, the machine has 4"
    )
    assert done.stderr == f"reshape: {told}\n"
    lines = dict(text.split(maxsplit=1) for text in done.stdout.splitlines())
    assert (lines["jobs"], lines["unstarted"], lines["mean_wait_s"]) == ("0", "1", "-")
    assert "nan" not in done.stdout
    file.write_text(f"processors: 4\njobs:\n{7 * line}{line.replace('8', '4')}")
    told = json.loads(invoke("simulate", file, "--json").stdout)
    assert (told["jobs"], told["unstarted"]) == (1, 7)
    assert invoke("simulate", file).stderr.endswith(
        "job 5 requests 8 processors, the machine has 4; and 2 more\n"
    )


def test_policies_in_the_current_folder() -> None:
    """The command line as a user has it: Python's path does not have the current folder."""
    order = "my_order:SmallestArea"
    waits = {}
    for options in ([], ["--backfill-order", order], ["--queue-order", order]):
        line = [BIN / "reshape", "simulate", SMALL, *options, "--json"]
        done = subprocess.run(line, cwd=EXAMPLES, capture_output=True, text=True, check=True)
        waits[tuple(options)] = json.loads(done.stdout)["mean_wait_s"]
    assert len(set(waits.values())) == 3, "each order gives another schedule"


def test_text(tmp_path: Path) -> None:
    text = invoke("simulate", SMALL, "--policy", "conservative", "--jobs", "50").stdout
    assert text.startswith("400 jobs: ")
    assert "\njobs                   50\n" in text


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--policy", "esy"], 2, "unknown scenario 'esy'; did you mean easy"),
        (["--queue-order", "sjff"], 2, "--queue-order: unknown order 'sjff'; did you mean sjf"),
        (["--policy", "mine.Whole"], 2, "unknown scenario 'mine.Whole'; did you mean mine:Whole?"),
        (["--backfill-order", "no:A"], 2, "--backfill-order: order 'no:A' cannot be imported"),
        (["--select", "first"], 2, "--select: unknown selection 'first'; did you mean first-fit"),
        (["--policy", "eazy"], 2, "--policy: unknown scenario 'eazy'; did you mean easy"),
        (["--estimates", "exakt"], 2, "unknown estimates 'exakt'; did you mean exact"),
        (["--estimates", "tsafir"], 2, "unknown estimates 'tsafir'; did you mean tsafrir"),
        (
            ["--policy", "fcfs", "--set", "backfill.reservations=2"],
            2,
            "--set backfill.reservations: another number of",
        ),
        (
            ["--policy", "conservative", "--backfill-order", "sjf"],
            2,
            "Sjf has no effect in sc",
        ),
        (
            ["--set", "backfill.kill_at_reservation=true"],
            2,
            "give the rule of cleaning overrun=keep",
        ),
        (
            ["--policy", "conservative", "--set", "backfill.kill_at_reservation=true"],
            2,
            "with 1 reservation (E",
        ),
        (["--set", "retry_after"], 2, "--set 'retry_after' has no value"),
        (
            ["--processors", "8", "--set", "jobs.rules.larger=error"],
            1,
            "the machine has 8; the rule larger=drop",
        ),
        (["--swf", "no/where.swf"], 1, "there is no directory no; make it"),
        (["--queue-ordr", "sjf"], 2, "Did you mean '--queue-order'"),
        (["--set", "tau_s=inf"], 2, "--set tau_s: must be >= 0 and finite, got inf"),
        (["--resizable", "nan"], 2, "'--resizable': must be a finite number, got 'nan'"),
        (["--queue-order", "json:dumps"], 2, "'json:dumps' is a function, but a policy is"),
        (["--resizable", "0.5", "--seed", "-1"], 2, "-1 is not in the range x>=0"),
    ],
)
def test_wrong_options(options: list[str], code: int, says: str) -> None:
    assert says in invoke("simulate", SMALL, *options, code=code).stderr


def test_traces_that_are_none(tmp_path: Path) -> None:
    missing = tmp_path / "no.swf"
    said = invoke("simulate", missing, code=1).stderr
    assert said == f"reshape: error: {missing}: cannot be read: No such file\n"
    bad = tmp_path / "bad.swf"
    bad.write_text("; MaxProcs: 4\n1 0 -1 x 1" + " -1" * 13 + "\n2 0 -1 5 1" + " -1" * 13 + "\n")
    assert "bad.swf:2: field 4 (run time): 'x'" in invoke("simulate", bad, code=1).stderr
    assert "1 malformed lines skipped" in invoke("simulate", bad, "--lenient").stdout
    bad.write_text("; MaxProcs: 4\n")
    assert "bad.swf: the trace has no jobs, only comments" in invoke("simulate", bad, code=1).stderr


def test_workload(tmp_path: Path) -> None:
    facts = json.loads(invoke("workload", "info", SMALL, "--json").stdout)
    assert facts["processors"] == 64
    assert 0 < facts["offered_load"] < 3
    packed, table = tmp_path / "a.swf.gz", tmp_path / "a.csv"
    invoke("workload", "convert", SMALL, packed)
    assert gzip.decompress(packed.read_bytes()) == SMALL.read_bytes()
    invoke("workload", "convert", packed, table)
    assert table.read_text().splitlines()[0].startswith("job,submit,wait,run,processors")
    done = invoke("workload", "convert", SMALL, "a.xy", code=2)
    assert "does not end in .swf, .swf.gz, .csv" in done.stderr
    more = tmp_path / "more.swf"
    more.write_text("; Resources: memory=64\n1 0 -1 5 1" + " -1" * 13 + " 32\n")
    invoke("workload", "convert", more, table)
    names, values = (line.split(",") for line in table.read_text().splitlines())
    assert (names[-1], values[-1]) == ("resource:memory", "32")


def test_results_are_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills while the second file is written: the first keeps its old contents."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("old")
    calls = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(files.ReshapeError, match="two cannot be written: No space left on device"):
        files.replace_all({one: b"new", two: b"new"})
    assert one.read_text() == "old"
    assert list(tmp_path.iterdir()) == [one]


def test_the_file_that_cannot_be_replaced_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one of two, as one of another user in a folder such as /tmp."""
    one, two = tmp_path / "one", tmp_path / "two"
    replaced = os.replace

    def refused(draft: str, path: Path) -> None:
        if path == one:
            raise PermissionError(1, os.strerror(1), str(draft), None, str(path))
        replaced(draft, path)

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(files.ReshapeError, match="one cannot be written: Operation not permitted"):
        files.replace_all({one: b"new", two: b"new"})


def test_a_link_is_followed_and_a_pipe_is_no_place(tmp_path: Path) -> None:
    there, link, pipe = tmp_path / "there", tmp_path / "link.swf", tmp_path / "pipe.swf"
    there.write_text("old")
    link.symlink_to(there)
    files.replace_all({link: b"new"})
    assert link.is_symlink()
    assert there.read_text() == "new"
    os.mkfifo(pipe)
    told = invoke("simulate", SMALL, "--swf", pipe, code=1).stderr
    assert "pipe.swf cannot be written: it is a device or a pipe, not a file" in told
    assert pipe.is_fifo()
    with pytest.raises(files.ReshapeError, match="it is a device or a pipe"):
        files.replace_all({pipe: b"new"})


def test_starting_up_loads_little() -> None:
    """What makes the command start slowly stays out of it."""
    code = (
        "import sys, simulator.commands.simulate; "
        "rare = ('scipy', 'matplotlib', 'zmq', 'mpi4py', 'rich', 'simulator.pools'); "
        "print([m for m in rare if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_full_disk_leaves_old_results(tmp_path: Path) -> None:
    """The first file of two still fits."""
    invoke("simulate", SMALL, "--jobs", "10", "--out", tmp_path)
    old = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    command = [sys.executable, "-m", "reshape", "simulate", str(SMALL), "--out", str(tmp_path)]
    full = subprocess.run(
        [*command, "--swf", str(tmp_path / "waits.swf.gz")],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert full.returncode == 1
    assert "jobs.csv cannot be written: File too large; what was there before stays" in full.stderr
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == old


@pytest.mark.parametrize(
    "options", [(), ("--select", "first-fit"), ("--resizable", "0.5")], ids=" ".join
)
def test_a_number_that_does_not_exist_is_null(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A makespan of 0 has no utilization; JSON has no NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in JSON")

    trace, out = tmp_path / "a.swf", tmp_path / "out"
    trace.write_text("; MaxProcs: 4\n1 0 -1 0 1 -1 -1 1 5 -1 1 1 1 -1 -1 -1 -1 -1\n")
    arguments = (trace, "--set", "jobs.rules.without_run=keep", *options, "--out", out, "--json")
    printed = invoke("simulate", *arguments).stdout
    for text in (printed, (out / "metrics.json").read_text()):
        told = json.loads(text, parse_constant=refuse)
        assert (told["makespan_s"], told["utilization"]) == (0.0, None)
        assert told["mean_bounded_slowdown"] == 1.0


def test_a_policy_brings_its_selection_on_the_table(tmp_path: Path) -> None:
    """Without --select, a policy that searches the reservation table gets its processors."""
    machine, demands = tmp_path / "nodes.yaml", tmp_path / "demands.swf"
    machine.write_text(
        "nodes: 16\nprocessors_per_node: 4\nshared_per_node: {memory_bandwidth: 6000}\n"
    )
    swf.write(demands, with_demands(swf.read(SMALL), MIXES["high"], 1))
    common = [demands, "--machine", machine, "--set", "sharing=table", "--json"]
    told = {
        name: json.loads(invoke("simulate", *common, *options).stdout)
        for name, options in {
            "rua": ("--policy", "rua"),
            "rua, named": ("--policy", "rua", "--select", "rua"),
            "easy": (),
        }.items()
    }
    assert told["rua"]["mean_wait_s"] == told["rua, named"]["mean_wait_s"]
    assert told["rua"]["mean_penalised_pct"] < told["easy"]["mean_penalised_pct"]


def test_an_experiment_is_saved_changed_and_run_again(tmp_path: Path) -> None:
    saved, changed = tmp_path / "saved.yaml", tmp_path / "sub" / "changed.yaml"
    changed.parent.mkdir()
    options = ["--policy", "fcfs-pr", "--resizable", "0.5", "--seed", 3, "--jobs", 60, "--json",
               "--speedup", "amdahl:serial=0.02", "--set", "jobs.rules.overrun=extend"]  # fmt: skip
    first = json.loads(invoke("simulate", SMALL, *options, "--save", saved).stdout)
    again = json.loads(invoke("simulate", saved, "--json").stdout)
    varying = {"wall_s", "cpu_s", "jobs_per_s", "peak_rss_mib", "trace"}
    assert {k: v for k, v in again.items() if k not in varying} == {
        k: v for k, v in first.items() if k not in varying
    }
    other = invoke(
        "simulate", saved, "--policy", "easy", "--set", "jobs.first=50", "--save", changed
    )
    assert "\njobs                   50\n" in other.stdout
    assert (
        invoke("simulate", changed)
        .stdout.split("wall_s")[0]
        .replace(str(changed.parent), "")
        .splitlines()[2:]
        == other.stdout.split("wall_s")[0].splitlines()[2:]
    )
    saved.write_text(saved.read_text().replace("fcfs-pr", "fcfs-prr"))
    done = invoke("simulate", saved, code=1)
    assert "saved.yaml:" in done.stderr
    assert "scenario" in done.stderr
    assert "did you mean fcfs-pr" in done.stderr


PARTITIONED = """
nodes: 8
partitions:
  batch: {scenario: fcfs}
  short: {nodes: 3, max_processors: 2, max_walltime_s: 100, default_walltime_s: 50}
"""
#: Job, submit, wait, run, processors, ..., requested processors and time, ..., queue, partition.
LINE = "{} {} -1 {} {} -1 -1 {} {} -1 1 1 1 1 {} {} -1 -1\n"


def partitions_trace(folder: Path) -> Path:
    """Jobs 1 to 4 are of partition 1, 2, none and 2; job 5 is too long for 2, job 6 too large."""
    rows = [
        (1, 0, 30, 5, 5, 60, 1, 1),
        (2, 0, 90, 2, 2, -1, 1, 2),
        (3, 1, 10, 5, 5, 20, 2, -1),
        (4, 2, 10, 2, 2, 20, 2, 2),
        (5, 3, 10, 1, 1, 101, 1, 2),
        (6, 3, 10, 3, 3, 20, 1, 2),
    ]
    trace = folder / "parts.swf"
    trace.write_text("; MaxProcs: 8\n" + "".join(LINE.format(*row) for row in rows))
    (folder / "parts.yaml").write_text(PARTITIONED)
    return trace


def test_partitions_of_a_trace(tmp_path: Path) -> None:
    trace, out = partitions_trace(tmp_path), tmp_path / "out"
    words = ["simulate", trace, "--machine", tmp_path / "parts.yaml", "--json"]
    for selection in ("count", "first-fit"):
        invoke(*words, "--select", selection, "--out", out)
        with (out / "jobs.csv").open() as file:
            rows = {row["job_id"]: row for row in csv.DictReader(file)}
        assert list(rows) == ["1", "2", "3", "4"], "beyond the limits of their partitions"
        assert list(rows["1"])[-2:] == ["partition", "first_prediction_s"]
        assert [row["partition"] for row in rows.values()] == ["batch", "short", "batch", "short"]
        starts = {number: float(row["starting_time"]) for number, row in rows.items()}
        assert starts == {"1": 0, "2": 0, "3": 30, "4": 50}, "job 2 is killed after its default"
    assert rows["1"]["allocated_resources"] == "3-7"
    assert rows["2"]["allocated_resources"] == "0-1"
    by_queue = json.loads(invoke(*words, *BY_QUEUE, "--set", "jobs.rules.larger=cap").stdout)
    assert by_queue["jobs"] == 6


def test_errors_about_partitions_of_a_trace(tmp_path: Path) -> None:
    trace, machine = partitions_trace(tmp_path), tmp_path / "parts.yaml"
    done = invoke("simulate", trace, *BY_QUEUE, code=2)
    assert "partition_field: needs a machine with partitions" in done.stderr
    done = invoke(
        "simulate", trace, "--machine", machine, "--set", "jobs.rules.larger=error", code=1
    )
    assert "job 5 asks for a longer time than its partition allows" in done.stderr
    machine.write_text("nodes: 8\npartitions: {batch: }\n")
    done = invoke("simulate", trace, "--machine", machine, code=1)
    assert "job 2 has partition 2, the machine has 1 partition (batch)" in done.stderr


def test_partitions_of_a_workload_file(tmp_path: Path) -> None:
    (tmp_path / "parts.yaml").write_text(PARTITIONED)
    file, out = tmp_path / "jobs.yaml", tmp_path / "out"
    lines = [
        "{at: 0, processors: 4, walltime: 50, iteration_s: 40, max_processors: 8}",
        "{at: 0, processors: 1, walltime: 50, iterations: 4, iteration_s: 10, max_processors: 2,"
        " partition: short}",
        "{at: 1, processors: 2, walltime: 50, iteration_s: 10}",
    ]
    file.write_text("jobs:\n" + "".join(f"  - {line}\n" for line in lines))
    words = ["simulate", file, "--machine", tmp_path / "parts.yaml", "--policy", "fcfs-pr"]
    invoke(*words, "--out", out)
    with (out / "jobs.csv").open() as csv_file:
        rows = list(csv.DictReader(csv_file))
    assert [row["partition"] for row in rows] == ["batch", "short", "batch"]
    assert rows[1]["sizes"] == "0.0:1 10.0:2 20.0:1", "fcfs-pr of the command is the default"
    assert [float(row["starting_time"]) for row in rows] == [0, 0, 40]
    file.write_text(file.read_text().replace("max_processors: 2,", "max_processors: 3,"))
    done = invoke(*words, code=1)
    assert "job 2: the request for 1 to 3 processors for 00:00:50 is beyond" in done.stderr
    done = invoke("simulate", file, "--processors", 8, code=1)
    assert "names partition 'short', and the machine has none" in done.stderr
