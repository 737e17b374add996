"""`reshape replay`: journals of simulated and of live runs, whole, damaged and forged."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from reshape.__main__ import main
from reshape.speedup import Prio
from reshape.topology import Topology
from scheduler.client.demo.workload import DemoJob, run_workload
from scheduler.core.core import Core
from scheduler.journal.journal import Journal
from scheduler.journal.journal_reader import reading
from scheduler.journal.replay import settings_of
from scheduler.model.events import Event, JobSpec, NodeJoined
from scheduler.model.machine import Machine
from scheduler.model.network import Mesh, Network, Tree
from scheduler.model.orders import Order
from scheduler.model.procset import ProcSet
from scheduler.policies.scenarios import scenario
from simulator.engine.costs import Costs, ResizeCost
from simulator.engine.engine import Engine
from simulator.engine.jobs import SimJob
from simulator.live_runs import RecordedRun

PROCESSORS = 16
STEP = Topology("arbitrary", step=2)


def jobs() -> list[SimJob]:
    """Build 14 jobs, every third one rigid."""
    made = []
    for number in range(14):
        most = None if number % 3 == 2 else 12
        spec = JobSpec(2 + 2 * (number % 2), 300.0, most, STEP)
        made.append(SimJob(6.0 * number, spec, 9 * (4.0 + number % 5), 9, Prio(0.9), 1 << 20))
    return made


def write_journal(
    path: Path,
    core: Core | None = None,
    joined: Sequence[Event] = (NodeJoined(0.0, "local", PROCESSORS),),
    given: list[SimJob] | None = None,
    group_s: float = 0.4,
) -> None:
    """Simulate, and write down what a service would have written."""
    core = Core(scenario("fcfs-pr")) if core is None else core
    journal = Journal(path)
    journal.add_settings(settings_of(core))

    def watch(now: float, events: list[Event], orders: list[Order]) -> None:
        journal.record(events, orders)

    journal.record(joined, core.handle(joined))
    cost = ResizeCost(start_s=group_s, join_s=0.05, bytes_per_s=1e9)
    costs = Costs.constant(cost, start_s=0.5)
    Engine(core, given or jobs(), costs=costs, watch=watch).run()
    journal.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal") / "journal.db"
    write_journal(path)
    return path


@pytest.fixture
def journal(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(written, tmp_path / "journal.db"))


@contextmanager
def edited(journal: Path) -> Iterator[sqlite3.Connection]:
    """Change a journal by hand."""
    with closing(sqlite3.connect(journal, isolation_level=None)) as db:
        yield db


def replay(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


def test_the_same_decisions_are_counted(journal: Path) -> None:
    done = replay(journal)
    assert done.exit_code == 0, done.output
    facts = json.loads(replay(journal, "--json").stdout)
    assert done.stdout == (
        f"{facts['events']} events, {facts['decisions']} decisions identical, "
        f"{facts['resizes']} resizes among them\n"
    )
    assert facts["identical"]
    assert facts["resizes"] > 5
    assert facts["decisions"] > facts["resizes"] + 14
    assert replay(journal.parent, "--json").stdout == replay(journal, "--json").stdout


@pytest.mark.parametrize(
    ("network", "selection"),
    [(Tree(2, 2, 4), "tree"), (Mesh((2, 2), True, 4), "submesh")],
)
def test_a_run_on_a_network_of_nodes_with_memory(
    tmp_path: Path, network: Network, selection: str
) -> None:
    """The journal says where the nodes are and what they hold: again as it was, and what if."""
    places = {name: ProcSet.span(4 * i, 4) for i, name in enumerate("abcd")}
    machine = Machine(network=network, places=places)
    nodes = [NodeJoined(0.0, name, 4, resources={"gib": 4}) for name in "dacb"]
    path = tmp_path / "journal.db"
    core = Core(scenario("easy", {"selection": selection}), machine)
    resources = [{"gib": 6}, {}, {"gib": 12}]
    specs = [msgspec.structs.replace(job.spec, resources=resources[i % 3])
             for i, job in enumerate(jobs())]  # fmt: skip
    given = [msgspec.structs.replace(j, spec=s) for j, s in zip(jobs(), specs, strict=True)]
    write_journal(path, core, nodes, given)
    done = replay(path)
    assert done.exit_code == 0, done.output
    assert "decisions identical" in done.stdout
    words = "--policy", "easy", "--set", f"selection={selection}", "--json"
    what_if = json.loads(replay(path, *words).stdout)
    assert what_if["what_if"]["jobs"] == len(given)
    assert what_if["what_if"]["mean_wait_s"] > 0


def test_the_first_difference_is_told(journal: Path) -> None:
    with edited(journal) as db:
        rows = db.execute("SELECT seq, \"order\" FROM orders WHERE kind='Expand' ORDER BY seq")
        seq, blob = rows.fetchall()[1]
        forged = json.loads(blob)
        forged["to"] += 2
        db.execute('UPDATE orders SET "order"=? WHERE seq=?', (json.dumps(forged).encode(), seq))
    done = replay(journal)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert "decisions identical the first that is not" in lines[0]
    assert any(line.startswith("event  ResizePoint") for line in lines)
    then, now = lines[-2:]
    assert then.startswith("then   Expand ")
    assert f"to={forged['to']} " in then
    assert f"to={forged['to'] - 2} " in now
    assert "FCFS-PR" in now
    facts = json.loads(replay(journal, "--json").stdout)
    assert not facts["identical"]
    assert facts["difference"]["lines"][-1] == now


def test_an_order_too_few_is_a_difference(journal: Path) -> None:
    with edited(journal) as db:
        db.execute("DELETE FROM orders WHERE seq=(SELECT max(seq) FROM orders)")
    done = replay(journal)
    assert done.exit_code == 1
    assert "then   nothing" in done.stdout


def test_another_rule_decides_otherwise(journal: Path) -> None:
    with edited(journal) as db:
        ((settings,),) = db.execute("SELECT settings FROM settings").fetchall()
        forged = json.loads(settings)
        forged["scenario"]["resizing"] = None
        db.execute("UPDATE settings SET settings=?", (json.dumps(forged).encode(),))
    done = replay(journal)
    assert done.exit_code == 1
    assert "now    Continue" in done.stdout
    assert "resizes no job" in done.stdout


def test_the_end_may_be_missing(journal: Path) -> None:
    whole = json.loads(replay(journal, "--json").stdout)
    with edited(journal) as db:
        db.execute("VACUUM")  # so that the tables lie one behind the other
    data = journal.read_bytes()
    found = []
    for pages in range(1, len(data) // 4096):
        journal.write_bytes(data[: pages * 4096])
        done = replay(journal, "--json")
        if done.exit_code == 1:
            assert "not a readable journal" in done.stderr
            continue
        facts = json.loads(done.stdout)
        assert facts["identical"]
        found.append(facts["events"])
        if facts["events"] < whole["events"]:
            assert "not a readable journal" in facts["damage"]
            assert "the journal's end is missing" in done.stderr
    assert len(found) > 3
    assert any(0 < events < whole["events"] for events in found)
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            b"3",
            "has journal format 3, and this release reads format 5: use the release that wrote it",
        ),
        (b"6", "has journal format 6, and this release reads format 5"),
    ],
)
def test_another_format_is_told(journal: Path, change: bytes, words: str) -> None:
    with edited(journal) as db:
        db.execute("UPDATE meta SET value=?", (change.decode(),))
    done = replay(journal)
    assert done.exit_code == 1
    assert words in done.stderr


def test_what_is_no_journal_is_told(tmp_path: Path) -> None:
    assert "there is no journal" in replay(tmp_path / "none").stderr
    text = tmp_path / "text"
    text.write_text("hello" * 1000)
    done = replay(text)
    assert done.exit_code == 1
    assert "is not a readable journal" in done.stderr


def test_what_if_is_simulated_from_what_was_measured(journal: Path) -> None:
    same = json.loads(replay(journal, "--policy", "fcfs-pr", "--json").stdout)
    live, again = same["live"], same["what_if"]
    assert again["jobs"] == live["jobs"] == 14
    assert again["mean_turnaround_s"] == pytest.approx(live["mean_turnaround_s"], rel=5e-3)
    assert again["expansions"] == live["expansions"]
    assert same["costs"]["start"] == {"fixed_s": pytest.approx(0.5), "each_s": pytest.approx(0.0)}
    assert same["costs"]["group"]["fixed_s"] == pytest.approx(0.4)
    assert same["costs"]["join"]["fixed_s"] == pytest.approx(0.05)
    assert same["costs"]["bytes_per_s"] == pytest.approx(1e9)
    assert same["runs"] == 50
    assert same["spread_pct"]["what_if"] == pytest.approx(0.0, abs=0.1)
    other = json.loads(replay(journal, "--policy", "easy", "--json").stdout)
    assert other["identical"]
    assert other["what_if"]["expansions"] == 0
    assert other["what_if"]["mean_execution_s"] > live["mean_execution_s"]
    field = json.loads(replay(journal, "--set", "resizing=none", "--json").stdout)
    assert field["what_if"] == other["what_if"]
    assert "what-if" in replay(journal, "--policy", "easy").stdout


def test_what_is_left_out_does_not_count_as_use(journal: Path) -> None:
    """The journal of a run that goes on: two jobs have ended, others hold processors."""
    with edited(journal) as db:
        ends = db.execute("SELECT batch FROM events WHERE kind = 'JobEnded' ORDER BY batch")
        second = ends.fetchall()[1]
        db.execute("DELETE FROM events WHERE batch > ?", second)
        db.execute("DELETE FROM orders WHERE batch > ?", second)
    with reading(journal) as records:
        run = RecordedRun.of(records.batches())
    metrics = run.schedule.metrics()
    assert (metrics.jobs, metrics.unstarted) == (2, 7)
    held = [
        (until - since) * size
        for job in run.jobs
        for (since, size), (until, _) in pairwise([*job.sizes, (job.ended_at, 0)])
    ]
    # Processors count from the decision to expand on, 0.4 s before the group is there.
    installed = run.core.machine.installed * metrics.makespan_s
    assert metrics.utilization * installed == pytest.approx(sum(held), rel=0.1)


def test_costs_of_other_runs_count_together(journal: Path, tmp_path: Path) -> None:
    """Groups took 0.4 s in one run and 1.2 s in the other."""
    paths = []
    for seconds in (0.4, 1.2):
        paths.append(tmp_path / f"{seconds}.db")
        write_journal(paths[-1], group_s=seconds)

    def group_s(*options: object) -> float:
        told = json.loads(replay(journal, "--policy", "fcfs-pr", "--json", *options).stdout)
        fit = told["costs"]["group"]
        return float(fit["fixed_s"] + 2 * fit["each_s"])

    assert [group_s("--costs", path) for path in paths] == pytest.approx([0.4, 1.2])
    together = group_s("--costs", paths[0], "--costs", paths[1])
    assert 0.7 < together < 0.9


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--policy", "fcfs-rp"), "fcfs-pr"),
        (("--set", "resizing"), "--set 'resizing' has no value; write resizing=VALUE"),
        (("--set", "resizing.min_benefitt=1"), "did you mean min_benefit?"),
        (("--policy", "easy", "--speedup", "downy"), "did you mean downey?"),
        (("--policy", "easy", "--speedup", "table:2=1"), "need a formula, not a table"),
        (("--runs", "5"), "--runs applies to a simulation; give --policy, --set or"),
    ],
)
def test_wrong_options(journal: Path, options: tuple[str, ...], words: str) -> None:
    done = replay(journal, *options)
    assert done.exit_code == 2
    assert words in done.stderr


def program(iterations: int, seconds: float) -> list[str]:
    words = f"python -m apps.synthetic --iterations {iterations} --seconds {seconds} --mib 1"
    return [*words.split(), "--speedup", "prio:alpha=0.9"]


def test_a_live_run_is_replayed_and_predicted(tmp_path: Path) -> None:
    """Four real jobs on 16 virtual processors: how near the prediction is, is for people."""
    drawn = [
        DemoJob(
            at_s=0.5 * number,
            argv=program(6 + number % 4, 0.2),
            processors=1 + number % 3,
            min_processors=None,
            max_processors=None if number % 4 == 3 else 3 + number % 3,
            topology=Topology("arbitrary", step=2),
            walltime_s=60.0,
        )
        for number in range(4)
    ]
    run_workload(drawn, PROCESSORS, "fcfs-pr", tmp_path, lambda *_: None)
    told = replay(tmp_path, "--predict")
    assert told.exit_code == 0, told.stdout
    assert "error of the predicted mean turnaround:" in told.stdout
    facts = json.loads(replay(tmp_path, "--predict", "--json").stdout)
    assert facts["identical"]
    assert facts["resizes"] > 0
    assert facts["predicted"]["jobs"] == facts["live"]["jobs"] == 4
    assert facts["left_out"] == []
    assert facts["as_measured"] == []
    plain = "substr(submission, 1, instr(submission, char(10) || 'seal:') - 1)"
    other = f"UPDATE jobs SET submission=replace({plain}, 'apps.synthetic', 'apps.lu')"
    with edited(tmp_path / "journal.db") as db:
        db.execute(f"{other} WHERE job = 2")
    mixed = replay(tmp_path, "--predict")
    assert "predicted by measured times, as their command lines tell none: jobs 2" in mixed.stdout
    with edited(tmp_path / "journal.db") as db:
        db.execute(f"{other} WHERE job != 2")
    refused = replay(tmp_path, "--predict")
    assert refused.exit_code == 1
    assert "only the command line of apps.synthetic states its times" in refused.stderr
