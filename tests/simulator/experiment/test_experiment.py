"""An experiment gives what the engine gives, in Python, from a file and on the command line."""

from __future__ import annotations

import json
import linecache
import sys
from dataclasses import dataclass, field
from inspect import getsource
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from command_line import invoke
from paths import EXAMPLES
from paths import SMALL_TRACE as SMALL
from small_experiments import CENTRES, COLUMNS, POOL, SHARED, TREE, trace_text

from reshape.errors import ConfigError, ReshapeError
from scheduler.config import machine_file
from scheduler.core.core import Core
from scheduler.model.events import Event, JobSpec
from scheduler.model.job_view import original
from scheduler.model.orders import Order, Start
from scheduler.policies.api import Decision, Grow, Job, JobView, QueueOrder, Reason, Stay, View
from scheduler.policies.pools.options import parse_pool_options
from scheduler.policies.queue_orders.basic import Sjf
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from scheduler.text.located import Located
from simulator import Experiment, Jobs, Simulation, simulate
from simulator.engine.engine import Engine, check_conservation
from simulator.engine.jobs import SimJob
from simulator.engine.physics import ContiguityGain, Sharing, SharingRules
from simulator.experiment.settings import OF_SCENARIO, scenario_of
from simulator.many_centres.rules import described_centres, rules_named
from simulator.many_centres.run import site_of
from simulator.pools import PooledSite
from simulator.results.schedule import Schedule
from simulator.traces import swf
from simulator.traces.normalise import Rules, normalise
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models import advance_reservations
from simulator.workload_models.workload import Workload, of_trace

RESERVATIONS = [
    {"name": "course", "start": 40, "duration": 30, "processors": 8, "jobs": "7", "requested": 0}
]
#: Metrics of the command line that the simulation itself does not give.
OF_COMMAND = {"wall_s", "jobs_per_s", "peak_rss_mib", "cpu_s", "core"}


class Longest(QueueOrder, msgspec.Struct, frozen=True):
    """The longest job first; `sign` -1 reverses it."""

    ages = False

    sign: float = 1.0

    def key(self, job: Job, now: float) -> tuple[float, float]:
        return -self.sign * job.estimate_s, job.queued_at


@dataclass(eq=False)
class Never:
    """A resizing policy without equality."""

    why: str = "stays"

    def decide(self, job: JobView, view: View) -> Decision:
        return Stay(Reason("Never", self.why, {}))


@dataclass
class InMain(Never):
    """A class as a notebook or a script defines it, which no other program can import."""


InMain.__module__ = "__main__"


class Returning(msgspec.Struct, frozen=True):
    """A resizing policy that returns something at each resize point."""

    decision: Any

    def decide(self, job: JobView, view: View) -> Any:
        """Return it."""
        return self.decision


class Broken(msgspec.Struct, frozen=True):
    """A resizing policy with a fault."""

    def decide(self, job: JobView, view: View) -> Decision:
        return view.no_such_attribute  # type: ignore[attr-defined, no-any-return]


class Failing(QueueOrder, msgspec.Struct, frozen=True):
    """A queue order with a fault."""

    ages = False

    def key(self, job: Job, now: float) -> float:
        return 1 / 0


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "twelve.swf"
    path.write_text(trace_text())
    return path


def assert_same(ran: Simulation, schedule: Schedule) -> None:
    for name in ("started", "ended"):
        assert np.array_equal(getattr(ran.schedule, name), getattr(schedule, name), equal_nan=True)
    assert ran.schedule.sizes == schedule.sizes
    assert ran.schedule.killed.tolist() == schedule.killed.tolist()


def platform(fields: dict[str, Any]) -> machine_file.Platform:
    return machine_file.described(Located.of(fields))


def by_engine(
    jobs: TraceJobs | Workload,
    machine: machine_file.Platform,
    chosen: Scenario,
    *,
    order: Any = "batch",
    kills: bool = False,
    **physics: Any,
) -> Schedule:
    """Schedule by a core and an engine that are put together here."""
    (own,) = machine.machines({}, counted=False).values()
    core = Core(chosen, own, kill_at_walltime=kills, order=order)
    if isinstance(jobs, Workload):
        return Engine(core, jobs.jobs, columns=jobs.columns, **physics).run()
    return Engine(core, jobs, **physics).run()


@pytest.mark.parametrize("name", ["fcfs", "easy", "conservative", "easy++"])
@pytest.mark.parametrize("order", ["batch", "sequential"])
def test_rigid_jobs(name: str, order: Any) -> None:
    ran = simulate(SMALL, processors=64, scenario=name, event_order=order)
    jobs, _ = normalise(swf.read(SMALL), 64, labels=True)
    assert_same(ran, by_engine(jobs, machine_file.flat(64), scenario(name), order=order))


def test_rules_and_first() -> None:
    jobs = Jobs.read(SMALL).with_rules(overrun="keep").first(100)
    ran = simulate(jobs, processors=64, estimates="exact")
    cleaned, _ = normalise(swf.read(SMALL), 64, Rules(overrun="keep", exact=True))
    assert_same(ran, by_engine(cleaned.first(100), machine_file.flat(64), scenario("easy")))


@pytest.mark.parametrize("counted", [True, False])
def test_resizable_jobs(counted: bool) -> None:
    jobs = Jobs.read(SMALL).with_resizable(0.5, "amdahl:serial=0.02")
    fields: dict[str, Any] = {"processors": 64, "scenario": "fcfs-pr", "seed": 3}
    experiment = Experiment(jobs, select=None if counted else "first-fit", **fields)
    cleaned, _ = normalise(swf.read(SMALL), 64)
    how = jobs.fields.resizable
    assert how is not None
    workload = of_trace(cleaned, 64, how, 3, kills=False)
    expected = by_engine(workload, machine_file.flat(64), scenario("fcfs-pr"))
    ran = experiment.run()
    assert_same(ran, expected)
    assert ran.schedule.sizes
    assert ran.resizes.rows > 0


def test_jobs_in_memory(tmp_path: Path) -> None:
    """What readers and models return can be simulated, with changed columns if need be."""
    read = swf.read(SMALL)
    ran = simulate(Jobs(read).first(100))
    assert_same(ran, simulate(Jobs.read(SMALL).first(100)).schedule)
    assert (ran.name, ran.processors) == ("small", 64)
    halved = read.columns | {"submit": read.columns["submit"] // 2}
    faster = simulate(msgspec.structs.replace(read, columns=halved))
    assert faster.metrics["makespan_s"] < simulate(read).metrics["makespan_s"]
    single = Workload(64, [SimJob(5.0, JobSpec(2, 20.0), 10.0)])
    assert simulate(single).jobs["end_s"].tolist() == [15]
    with pytest.raises(ConfigError, match="first: applies to rigid jobs"):
        Jobs(single).first(3)
    for jobs in (read, single):
        with pytest.raises(ConfigError, match="jobs: jobs in memory have no path; write them"):
            Experiment(jobs).save(tmp_path / "e.yaml")


@pytest.mark.parametrize("site", [{}, {"pool": POOL, "pool_wait": 5}, {"machine": CENTRES}])
def test_a_watch_sees_the_decisions(trace: Path, site: dict[str, Any]) -> None:
    starts: dict[int, float] = {}

    def watch(now: float, _: list[Event], orders: list[Order]) -> None:
        starts.update({order.job: now for order in orders if isinstance(order, Start)})

    ran = Experiment(trace, **site).run(watch=watch)
    assert [starts[job + 1] for job in range(ran.jobs.rows)] == ran.jobs["start_s"].tolist()


def test_a_simulation_explains_why_a_job_waits_starts_and_resizes() -> None:
    jobs = Jobs.read(SMALL).first(80).with_resizable(expand_least=0.5)
    experiment = Experiment(jobs, scenario="malleable")
    ran = experiment.run()
    for row in (int(ran.jobs["wait_s"].argmax()), 79):
        told = experiment.explain(ran.jobs["job"][row])
        assert (np.diff(told["at_s"]) >= 0).all()
        waits = told["at_s"][told["decision"] == "wait"].tolist()
        assert told["at_s"][told["decision"] == "start"].tolist() == [ran.jobs["start_s"][row]]
        assert waits[:1] == [ran.jobs["submit_s"][row]] * int(ran.jobs["wait_s"][row] > 0)
        resizes = np.isin(told["decision"], ["expand", "contract"]).sum()
        assert resizes <= (ran.resizes["job"] == ran.jobs["job"][row]).sum()
        assert all(told["reason"])
    assert "processors wanted" in told["reason"][0]
    with pytest.raises(ConfigError, match="no simulated job has the number '0'; give a value of"):
        experiment.explain(0)


@pytest.mark.parametrize("assign", ["less-waittime", "multiple-requests", "grid-backfilling"])
def test_jobs_at_several_centres_are_explained(assign: str) -> None:
    experiment = Experiment(COLUMNS, machine=CENTRES, assign=assign)
    ran = experiment.run()
    assert ran.centres is not None
    for row, job in enumerate(ran.jobs["job"]):
        told = experiment.explain(job)
        starts = told["decision"] == "start"
        assert told["at_s"][starts].tolist() == [ran.jobs["start_s"][row]]
        waits = told["at_s"][told["decision"] == "wait"].tolist()
        assert waits[:1] == [ran.jobs["submit_s"][row]] * int(ran.jobs["wait_s"][row] > 0)
        if assign == "grid-backfilling":
            assert "centre" not in told, "one core decides for all"
        else:
            assert told["centre"][starts].tolist() == ["AB"[ran.centres.ran_at[row]]]
            several = set(told["centre"]) if waits else {"A", "B"}
            assert (several == {"A", "B"}) or assign != "multiple-requests"
    assert ran.jobs["wait_s"].any()


WORKLOAD = """
jobs:
  - {at: 0, processors: 8, walltime: 30, iteration_s: 20, partition: B}
  - {at: 1, processors: 4, walltime: 30, iteration_s: 4, iterations: 5, max_processors: 8,
     topology: "arbitrary:step=4", speedup: "amdahl:serial=0", partition: A}
  - {at: 2, processors: 8, walltime: 10, iteration_s: 40, partition: A}
end_s: 1
"""
ELASTIC = {
    "centres": [
        {"name": "A", "processors": 8, "scenario": "fcfs-pr", "cpu_factor": 2},
        {"name": "B", "processors": 8},
    ]
}


def test_a_workload_file_runs_at_several_centres(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(WORKLOAD)
    ran = simulate(tmp_path / "jobs.yaml", machine=ELASTIC, assign="origin")
    assert ran.jobs["start_s"].tolist() == [0, 1, 34]
    assert ran.metrics["jobs_by_centre"] == {"A": 2, "B": 1}
    assert ran.jobs["state"].tolist() == ["completed", "completed", "killed"]
    assert ran.jobs["end_s"].tolist() == [21, 34, 54], "iterations of 8 or 4 s, and 1 s to end"
    assert ran.resizes["after"].tolist() == [8, 4, 8, 4]
    quickest = simulate(tmp_path / "jobs.yaml", machine=ELASTIC, assign="less-turnaround")
    assert quickest.jobs["end_s"].sum() < ran.jobs["end_s"].sum()
    grid = {"machine": CENTRES, "assign": "grid-backfilling"}
    with pytest.raises(ConfigError, match="grid-backfilling: runs rigid jobs, because its one"):
        simulate(tmp_path / "jobs.yaml", **grid)
    elastic = 'max_processors: 8,\n     topology: "arbitrary:step=4", speedup: "amdahl:serial=0",'
    rigid = WORKLOAD.replace(elastic, "")
    (tmp_path / "jobs.yaml").write_text(rigid)
    assert simulate(tmp_path / "jobs.yaml", **grid).jobs["start_s"].tolist() == [0, 1, 21]


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("partition: a", "job 3 names partition 'a', which is no centre; known are A, B"),
        ("dependency: 'afterok:1'", "job 3 depends on others, and each centre knows only the jobs"),
        ("array: 0-1", "job 3 is an array, and each centre knows only the jobs that came to it"),
    ],
)
def test_what_a_job_of_a_workload_file_cannot_have_at_several_centres(
    tmp_path: Path, field: str, says: str
) -> None:
    (tmp_path / "jobs.yaml").write_text(WORKLOAD.replace("40, partition: A", f"40, {field}"))
    with pytest.raises(ReshapeError, match=says):
        simulate(tmp_path / "jobs.yaml", machine=ELASTIC)


def test_a_job_that_waits_for_nodes_of_a_pool_is_explained() -> None:
    told = Experiment(COLUMNS, pool=POOL, pool_wait=5).explain(1)
    assert told["at_s"].tolist() == [0, 5]
    assert told["decision"].tolist() == ["wait", "start"]
    assert told["rule"][0] == "ReqNodeNotAvail"


def test_quotes_of_starts() -> None:
    """FCFS starts jobs when exact run times say; estimates are later."""
    jobs = Jobs.read(SMALL).first(300)
    exact = simulate(jobs, scenario="fcfs", quotes={"run_times": "exact"})
    rows = exact.quotes["row"]
    assert exact.quotes["expected_start_s"].tolist() == exact.jobs["start_s"][rows].tolist()
    assert exact.quotes["job"].tolist() == exact.jobs["job"][rows].tolist()
    assert (exact.jobs["wait_s"] > 0).sum() == exact.quotes.rows > 30
    assert_same(exact, simulate(jobs, scenario="fcfs").schedule)
    third = simulate(jobs, scenario="fcfs", quotes={"every": 3, "futures": 2}, seed=1)
    assert third.tables["quotes"]["row"].tolist() == rows[2::3].tolist()
    expected = third.quotes["expected_start_s"]
    assert (expected >= third.jobs["start_s"][third.quotes["row"]]).all()
    levels = [third.quotes[f"raw_{level}_start_s"] for level in ("p10", "p50", "p90")]
    assert all((low <= high).all() for low, high in pairwise(levels))
    assert (third.quotes["p90_start_s"] != levels[2]).any(), "calibrated by earlier outcomes"
    names, *rows = third.files()["quotes.csv"].decode().splitlines()
    assert names.startswith("job,row,expected_start_s,p10_start_s")
    assert len(rows) == third.quotes.rows
    assert simulate(COLUMNS).quotes.rows == 0


def test_quotes_of_centres() -> None:
    ran = simulate(COLUMNS, machine=CENTRES, quotes={})
    assert ran.quotes["row"].tolist() == [*range(ran.jobs.rows)]
    assert (ran.quotes["run_s"] > 0).all()


def test_a_pool() -> None:
    ran = simulate(COLUMNS, pool=POOL, pool_wait=5)
    words = dict(part.split("=") for part in POOL.split(","))
    jobs, _ = normalise(swf_of(COLUMNS), 16, Rules())
    options = parse_pool_options(words)
    site = PooledSite(scenario("easy"), options, np.array([5.0]), len(jobs))
    expected = Engine(site, jobs, allocations=True).run()
    assert_same(ran, expected)
    assert ran.pool is not None
    assert ran.metrics["allocations"] == len(site.ended)
    assert_same(simulate(COLUMNS, pool=words, pool_wait="0:05"), expected)


def swf_of(columns: dict[str, list[float]]) -> swf.Trace:
    made = Jobs(columns).load(None)
    assert isinstance(made, swf.Trace)
    return made


def test_centres() -> None:
    ran = simulate(COLUMNS, machine=CENTRES, assign="less-workleft", dispatch={"ask": 2})
    centres = described_centres(Located.of(CENTRES))
    jobs, _ = normalise(swf_of(COLUMNS), 8, Rules(), labels=True)
    rules = rules_named("less-workleft", {"ask": 2})
    site = site_of(jobs, [""] * len(jobs), centres, rules)
    assert_same(ran, Engine(site, jobs, cpu_factors=site.cpu_factors).run())
    assert ran.centres is not None
    assert ran.centres.ran_at.tolist() == [site.ran_at[job + 1] for job in range(len(jobs))]


@pytest.mark.parametrize("tau_s", [1.0, 60.0, 500.0])
def test_the_metrics_of_centres_follow_from_their_table_of_jobs(tau_s: float) -> None:
    centres = [
        {"name": "A", "processors": 8, "cost_per_unit": 0.5},
        {"name": "B", "processors": 4, "cpu_factor": 2},
    ]
    ran = simulate(COLUMNS, machine={"centres": centres}, tau_s=tau_s)
    table, metrics = ran.jobs, ran.metrics
    wait, run = table["start_s"] - table["submit_s"], table["end_s"] - table["start_s"]
    slowdown = np.maximum(1.0, (wait + run) / np.maximum(run, tau_s))
    for name, values in (("bounded_slowdown", slowdown), ("wait_s", wait)):
        assert metrics[f"mean_{name}"] == pytest.approx(values.mean())
        assert metrics[f"sd_{name}"] == pytest.approx(values.std())
        assert metrics[f"p95_{name}"] == pytest.approx(np.percentile(values, 95))
    held_s, makespan_s = (run * table["processors"]).sum(), table["end_s"].max()
    assert metrics["utilization_pct"] == pytest.approx(100 * held_s / (12 * makespan_s))
    assert ran.centres is not None
    at_a = ran.centres.ran_at == 0
    assert table["centre"].tolist() == np.where(at_a, "A", "B").tolist()
    assert table["cost"].sum() == pytest.approx(metrics["cost"])
    assert set(table["origin"].tolist()) == {""}
    assert metrics["jobs_by_centre"] == {"A": at_a.sum(), "B": (~at_a).sum()}
    cost = 0.5 * (run * table["processors"])[at_a].sum() / 3600
    assert metrics["cost"] == pytest.approx(cost)


def test_sharing(tmp_path: Path) -> None:
    lines = trace_text().splitlines()
    lines[0] += "\n; Shared: bandwidth=10"
    assert SHARED["nodes"] == 2
    ran = simulate(COLUMNS, machine=SHARED, sharing={"windows": "changes", "overtime": "allow"})
    sharing = Sharing(
        processors_per_node=4, amounts={"bandwidth": 10}, windows="changes", overtime="allow"
    )
    jobs, _ = normalise(swf_of(COLUMNS), 8)
    assert_same(ran, by_engine(jobs, platform(SHARED), scenario("easy"), sharing=sharing))
    assert ran.metrics["mean_penalised_s"] == ran.jobs["penalised_s"].mean()


def test_advance_reservations(trace: Path) -> None:
    ran = simulate(trace, advance_reservations=RESERVATIONS)
    planned = advance_reservations.described(Located.of({"reservations": RESERVATIONS}))
    assert ran.reservations["name"].tolist() == ["course"]
    assert ran.reservations["begin_s"].tolist() == [40]
    assert_same(simulate(trace, advance_reservations=planned), ran.schedule)


def test_contiguity(trace: Path) -> None:
    ran = simulate(trace, machine=TREE, select="tree", contiguity=0.5, dispersal=True)
    easy = scenario("easy", {"selection": "tree"})
    machine = platform(TREE)
    jobs, _ = normalise(swf.read(trace), machine.processors, Rules(overrun="keep"))
    gain = ContiguityGain(0.5).run_times_in(machine.network)
    expected = by_engine(jobs, machine, easy, kills=True, contiguity=gain, allocations=True)
    assert_same(ran, expected)
    assert ran.schedule.dispersal is not None
    assert (
        simulate(trace, machine=platform(TREE), select="tree", contiguity=0.5).metrics["makespan_s"]
        == ran.metrics["makespan_s"]
    )


def test_load_stretches_the_submissions(trace: Path) -> None:
    halves = [simulate(trace, load=load).jobs["submit_s"] for load in (0.5, 1.0)]
    assert np.ptp(halves[0]) == pytest.approx(2 * np.ptp(halves[1]), rel=0.02)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        (["--policy", "conservative"], {"scenario": "conservative"}),
        (["--policy", "easy", "--backfill-order", "sjf"], {"backfill_order": "sjf"}),
        (
            ["--policy", "pba-pr", "--resizable", "0.5", "--seed", "4"],
            {"scenario": "pba-pr", "resizable": 0.5, "seed": 4},
        ),
        (["--select", "first-fit", "--set", "tau_s=10"], {"select": "first-fit", "tau_s": 10}),
        (["--pool", POOL, "--set", "pool_wait=30"], {"pool": POOL, "pool_wait": 30}),
    ],
)
def test_metrics_are_those_of_the_command(options: list[str], fields: dict[str, Any]) -> None:
    jobs = Jobs.read(SMALL).first(60)
    if "resizable" in fields:
        jobs = jobs.with_resizable(fields["resizable"])
        fields = {name: value for name, value in fields.items() if name != "resizable"}
    told = json.loads(invoke("simulate", SMALL, "--jobs", 60, *options, "--json").stdout)
    ran = simulate(jobs, **fields)
    shown = json.loads(json.dumps(ran.metrics))
    assert {name: told[name] for name in shown} == shown
    assert told.keys() - shown.keys() <= OF_COMMAND | {
        "trace", "policy", "report", "pool", "pool_wait",
    }  # fmt: skip


def test_policies_by_name_mapping_and_object(trace: Path) -> None:
    path = f"{__name__}:Longest"
    ways: list[dict[str, Any]] = [
        {"queue_order": Longest(-1)},
        {"queue_order": {"policy": path, "sign": -1}},
        {"scenario": {"name": "easy", "order": {"policy": path, "sign": -1}}},
        {"scenario": msgspec.structs.replace(scenario("easy"), order=Longest(-1))},
    ]
    waits = [simulate(trace, **way).jobs["wait_s"].tolist() for way in ways]
    assert all(each == waits[0] for each in waits)
    assert waits[0] != simulate(trace, queue_order=Longest()).jobs["wait_s"].tolist()
    assert waits[0] != simulate(trace).jobs["wait_s"].tolist()


def test_a_resizing_policy_as_object() -> None:
    jobs = Jobs(COLUMNS).with_resizable()
    ran = simulate(jobs, processors=16, scenario=Never())
    assert ran.resizes.rows == 0
    assert ran.summary["policy"] == "Never"
    assert ran.experiment.chosen.backfill == scenario("easy").backfill


def test_a_class_without_typed_parameters_is_no_policy() -> None:
    class Plain:
        def key(self, job: Job, now: float) -> float:
            return 0.0

    with pytest.raises(
        ConfigError, match=r"queue_order: 'Plain' is .* a msgspec.Struct or a datac"
    ):
        Experiment(COLUMNS, queue_order=Plain())

    @dataclass
    class Undeclared(Plain):
        pass

    with pytest.raises(ConfigError, match="derive the class from QueueOrder"):
        Experiment(COLUMNS, queue_order=Undeclared())


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (None, "TypeError: it returned None, which is neither Grow nor Shrink nor Stay"),
        ("grow", "TypeError: it returned 'grow', which"),
        (Grow(1000, Reason("big")), r"ValueError: it returned Grow\(to=1000, .*the machine has 16"),
        (Grow(1, Reason("small")), r"ValueError: it returned Grow\(to=1, .* processors already"),
    ],
)
def test_a_resizing_policy_that_returns_no_valid_decision_ends_a_simulation(
    decision: Any, said: str
) -> None:
    jobs = Jobs(COLUMNS).with_resizable()
    with pytest.raises(ReshapeError, match=rf"Returning failed in decide with {said}.*:\d+\)"):
        simulate(jobs, processors=16, scenario=Scenario("own", resizing=Returning(decision)))


class Cheating(QueueOrder, msgspec.Struct, frozen=True):
    """A queue order that changes the jobs themselves, by what no policy should use."""

    field: str
    reads_only: bool = False
    ages = False

    def key(self, job: JobView, now: float) -> float:
        """Let a job look as if it needed one processor."""
        setattr(job if self.reads_only else original(job), self.field, 1)
        return 0.0


@pytest.mark.parametrize("field", ["processors", "demand"])
def test_a_simulation_ends_if_more_is_allocated_than_there_is(field: str) -> None:
    said = "policy that changes what it may only read"
    with pytest.raises(ReshapeError, match=said):
        simulate(Jobs(COLUMNS), processors=16, scenario="conservative", queue_order=Cheating(field))
    with pytest.raises(ReshapeError, match=f"AttributeError: a policy cannot change '{field}' of"):
        simulate(Jobs(COLUMNS), processors=16, queue_order=Cheating(field, reads_only=True))


def test_jobs_that_held_more_than_the_machine_has_are_an_error() -> None:
    jobs = normalise(swf.read(SMALL), 16)[0]
    count = len(jobs.submitted)
    begun, ended = np.zeros(count), np.ones(count)
    schedule = Schedule(jobs, int(jobs.processors.sum()), begun, ended, jobs.cut)
    check_conservation(schedule)
    with pytest.raises(ReshapeError, match=r"the jobs held .* processor-seconds while the"):
        check_conservation(msgspec.structs.replace(schedule, processors=schedule.processors - 1))


def test_a_policy_that_raises_gives_its_error_and_place() -> None:
    jobs = Jobs(COLUMNS).with_resizable()
    said = (
        r"the resizing policy .*:Broken failed in decide with AttributeError: .*no_such_attribute"
        r".* at \d+ s of the simulation \(.*test_experiment.py:\d+\); correct the policy"
    )
    with pytest.raises(ReshapeError, match=said) as refused:
        simulate(jobs, processors=16, scenario=Broken())
    assert isinstance(refused.value.__cause__, AttributeError)
    with pytest.raises(ReshapeError, match=r"the queue order .*:Failing failed in key with Zero"):
        simulate(jobs, processors=16, queue_order=Failing())


@dataclass
class Shuffled(QueueOrder):
    """A random order, which keeps the state of its draws."""

    draws: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))
    held: object = None
    ages = False

    def key(self, job: JobView, now: float) -> float:
        """Draw a key."""
        return float(self.draws.random())


@pytest.mark.parametrize(
    "fields",
    [
        {"queue_order": Shuffled(), "processors": 8},
        {"queue_order": Shuffled(), "pool": POOL},
        {"machine": CENTRES, "assign": "random", "seed": 3},
    ],
    ids=["machine", "pool", "centres"],
)
def test_each_run_begins_with_policies_that_remember_nothing(fields: dict[str, Any]) -> None:
    sizes = [*[4, 8, 2, 6] * 8, 4]
    experiment = Experiment(
        Jobs(submit_s=[0.0] * 33, processors=sizes, run_s=range(10, 43)), **fields
    )
    table = experiment.run().jobs
    assert experiment.run().jobs["start_s"].tolist() == table["start_s"].tolist()
    starts = [row for row in experiment.explain(20).lines() if row["decision"] == "start"]
    assert starts[-1]["at_s"] == table["start_s"][19]


def test_forecasts_leave_the_policies_of_the_run_as_they_are() -> None:
    shuffled = Experiment(COLUMNS, processors=8, queue_order=Shuffled())
    quoted = shuffled.replace(quotes={}).run()
    assert quoted.quotes.rows
    assert quoted.jobs["start_s"].tolist() == shuffled.run().jobs["start_s"].tolist()


def test_a_policy_that_cannot_be_copied_is_refused() -> None:
    with open(SMALL) as opened, pytest.raises(ReshapeError, match=r"each run takes a copy .*Text"):
        simulate(COLUMNS, processors=16, queue_order=Shuffled(held=opened))


def test_a_policy_of_a_notebook_names_the_line_of_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython gives cells names of files that do not exist, with their lines."""
    cell, name = getsource(Failing), "/tmp/ipykernel_17/4214792401.py"
    values: dict[str, Any] = {**globals()}
    exec(compile(cell, name, "exec"), values)
    monkeypatch.setitem(linecache.cache, name, (len(cell), None, cell.splitlines(True), name))
    with pytest.raises(ReshapeError, match=r"simulation \(line 7 of its cell: return 1 / 0\); cor"):
        simulate(COLUMNS, queue_order=values["Failing"]())


def test_a_policy_that_raises_in_a_pool_or_at_a_centre() -> None:
    said = r"queue order .*:Failing failed in key with Zero.* s of the simulation \(.*:\d+\)"
    with pytest.raises(ReshapeError, match=said):
        simulate(COLUMNS, pool=POOL, queue_order=Failing())
    order = {"order": f"{__name__}:Failing"}
    centres = [{"name": n, "processors": 8, "set": order} for n in ("A", "B")]
    with pytest.raises(ReshapeError, match=said):
        simulate(COLUMNS, machine={"centres": centres})


def test_replace(trace: Path) -> None:
    first = Experiment(trace, scenario="fcfs")
    assert first.replace(scenario="easy").run().metrics == simulate(trace).metrics
    assert first.scenario == "fcfs"
    with pytest.raises(ConfigError, match="scenari: unknown field; did you mean scenario"):
        first.replace(scenari="easy")
    with pytest.raises(ConfigError, match="seed: nothing is drawn"):
        first.replace(seed=3)


def test_replace_below_a_field() -> None:
    jobs = Jobs(COLUMNS).with_resizable(share=0.5, speedup="amdahl:serial=0.02")
    first = Experiment(jobs, scenario="malleable")
    halves = {"jobs.resizable.expand_least": 0.5, "jobs.rules.ties": "number", "jobs.first": 3}
    made = first.replace(**halves, **{"scenario.resizing.slack": np.int64(2)})
    assert made.jobs == jobs.with_resizable(
        share=0.5, speedup="amdahl:serial=0.02", expand_least=0.5
    ).with_rules(ties="number").first(3)
    assert made.scenario == {"name": "malleable", "resizing": {"slack": 2}}
    again = made.replace(**{"scenario.resizing.slack": 3, "scenario.resizing.settle": 2})
    assert again.scenario == {"name": "malleable", "resizing": {"slack": 3, "settle": 2}}
    assert made.scenario == {"name": "malleable", "resizing": {"slack": 2}}
    other = {"scenario": "steady", "scenario.resizing.settle": 2}
    assert made.replace(**other).scenario == {"name": "steady", "resizing": {"settle": 2}}
    costs = first.replace(**{"jobs.resizable.cost.join_s": 3.0}).jobs.fields.resizable
    assert costs is not None
    assert costs.cost == {"join_s": 3.0}
    assert first.replace(**{"jobs.resizable": None}).jobs.fields.resizable is None


def test_replace_below_other_fields() -> None:
    shared = Experiment(COLUMNS, machine=SHARED, sharing="changes")
    ratio = shared.replace(**{"sharing.penalty": "ratio"})
    assert ratio.shared == SharingRules(windows="changes", penalty="ratio")
    asks = Experiment(COLUMNS, machine=CENTRES).replace(**{"dispatch.ask": 1, "seed": 2})
    assert asks.dispatch == {"ask": 1}
    aging = shared.replace(queue_order="aging", **{"queue_order.refresh_s": 5})
    assert aging.queue_order == {"policy": "aging", "refresh_s": 5}
    easy = Experiment(COLUMNS, scenario=scenario("easy"))
    assert easy.replace(**{"scenario.max_restarts": 2}).chosen.max_restarts == 2
    own = Experiment(COLUMNS, scenario={"name": "easy", "order": Longest(-1)})
    made = own.replace(**{"scenario.backfill.max_jobs": 2})
    assert made.scenario == {"name": "easy", "order": Longest(-1), "backfill": {"max_jobs": 2}}
    assert own.scenario == {"name": "easy", "order": Longest(-1)}


@pytest.mark.parametrize("order", [1, -1])
def test_what_replace_sets_below_a_scenario_counts_last(order: int) -> None:
    fields = [("resizing.slack", 2), ("resizing", {"slack": 3})][::order]
    both = {"name": "malleable", **dict(fields)}
    made = Experiment(COLUMNS, scenario=both).replace(**{"scenario.resizing.slack": 4})
    assert scenario_of(made.scenario, dict.fromkeys(OF_SCENARIO)) == scenario(
        "malleable", {"resizing.slack": 4}
    )


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("jobs.resizable.shar", 1, "jobs.resizable.shar: unknown field; did you mean share?"),
        ("jobs.resizable.share", 2, "jobs.resizable.share: expected float <= 1.0, got 2"),
        ("jobs.resizeable", 2, "jobs.resizeable: unknown field; did you mean resizable?"),
        ("jobs.columns", {}, "jobs.columns: unknown field"),
        ("scenario.backfil.max_jobs", 2, "unknown field 'backfil'; did you mean backfill"),
        ("scenario.", 2, "scenario.: unknown field"),
        ("load.share", 2, "load: must be a mapping, got 0.5"),
        ("sharings.penalty", "ratio", "sharings: unknown field; did you mean sharing?"),
    ],
)
def test_a_field_below_another_that_cannot_be(name: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Experiment(COLUMNS, load=0.5).replace(**{name: value})
    assert says in str(raised.value)


def test_numpy_numbers_within_fields_are_plain() -> None:
    three = np.int64(3)
    order, easy = {"policy": "aging", "refresh_s": three}, {"name": "easy", "max_restarts": three}
    made = Experiment(COLUMNS, queue_order=order, scenario=easy)
    assert made.queue_order == {"policy": "aging", "refresh_s": 3}
    assert made.run().metrics == simulate(COLUMNS, queue_order="aging").metrics
    jobs = Jobs.drawn("lublin", jobs=three, processors=np.int16(8)).first(np.uint8(2))  # type: ignore[arg-type]
    assert str(jobs.with_resizable(iterations=three)) == str(
        Jobs.drawn("lublin", jobs=3, processors=8).first(2).with_resizable(iterations=3)
    )


def test_numpy_numbers_are_plain(tmp_path: Path) -> None:
    made = Experiment(COLUMNS, processors=np.int64(8), load=np.float32(0.5))  # type: ignore[arg-type]
    assert (type(made.processors), type(made.load)) == (int, float)
    made.save(tmp_path / "e.yaml")
    assert Experiment.from_file(tmp_path / "e.yaml").run().metrics == made.run().metrics


def saved(experiment: Experiment, path: Path) -> Experiment:
    """The experiment after a round through a file; the file is stable."""
    experiment.save(path)
    again = Experiment.from_file(path)
    first = path.read_text()
    again.save(path)
    assert path.read_text() == first
    return again


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"scenario": {"name": "easy", "backfill.max_jobs": 3}, "load": 0.8, "tau_s": 10},
        {"scenario": "conservative", "event_order": "sequential", "estimates": "exact"},
        {"queue_order": Longest(-1), "backfill_order": Sjf()},
        {"scenario": scenario("easy", {"order": "sjf", "backfill.reservations": 2})},
        {"machine": TREE, "select": "tree", "contiguity": {"speedup": 0.5, "exponent": 2.0}},
        {"machine": CENTRES, "assign": "random", "dispatch": {"ask": 2}, "seed": 3},
        {"pool": POOL, "pool_wait": 7},
        {"advance_reservations": RESERVATIONS},
        {"machine": SHARED, "sharing": {"windows": "changes", "demand_error": 0.1}, "seed": 5},
    ],
    ids=lambda fields: "-".join(fields) or "defaults",
)
def test_a_file_gives_the_same_run(trace: Path, tmp_path: Path, fields: dict[str, Any]) -> None:
    jobs = Jobs.read(trace).first(10)
    experiment = Experiment(jobs, **fields)
    again = saved(experiment, tmp_path / "experiment.yaml")
    assert_same(again.run(), experiment.run().schedule)
    assert again.run().metrics == experiment.run().metrics


def test_resizing_policies_and_drawn_jobs_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sys_path_policy = {"name": "my_policy:Patient", "resizing": {"reserve": 1}}
    monkeypatch.delitem(sys.modules, "my_policy", raising=False)  # of another test
    monkeypatch.syspath_prepend(EXAMPLES)
    from my_policy import Patient  # type: ignore[import-not-found]

    jobs = Jobs.drawn("prio", jobs=5)
    experiment = Experiment(jobs, scenario=Patient(reserve=1), seed=2)
    assert experiment.data()["scenario"] == sys_path_policy
    again = saved(experiment, tmp_path / "experiment.yaml")
    assert_same(again.run(), experiment.run().schedule)


def test_paths_are_relative_to_the_file(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside = tmp_path / "files", tmp_path / "elsewhere"
    inside.mkdir()
    outside.mkdir()
    (inside / "small.swf").write_bytes(trace.read_bytes())
    (outside / "machine.yaml").write_text("nodes: 8\n")
    monkeypatch.chdir(tmp_path)
    made = Experiment("files/small.swf", machine="elsewhere/machine.yaml")
    made.save("files/experiment.yaml")
    text = (inside / "experiment.yaml").read_text()
    assert "trace: small.swf" in text
    assert "machine: ../elsewhere/machine.yaml" in text
    monkeypatch.chdir("/")
    again = Experiment.from_file(inside / "experiment.yaml")
    assert_same(again.run(), simulate(trace).schedule)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("jobs: twelve.swf\nscenari: easy\n", ":2: scenari: unknown field; did you mean scenario"),
        ("scenario: easy\n", ": jobs: is missing; give the path of a trace, a mapping, or"),
        ("jobs: twelve.swf\nscenario: esy\n", ":2: scenario: unknown scenario 'esy'; did you mean"),
        ("jobs: twelve.swf\nload: 1\nseed: 3\n", ":3: seed: nothing is drawn"),
        ("jobs: twelve.swf\nprocessors: many\n", ":2: processors: expected int, got 'many'"),
        ("jobs:\n  trace: twelve.swf\n  first: 0\n", ":3: jobs.first: expected int >= 1, got 0"),
        ("jobs:\n  trace: twelve.swf\n  fist: 1\n", ":3: jobs.fist: unknown field; did you mean"),
        ("jobs:\n  trace: twelve.swf\n  rules: {over_run: cut}\n",
         ":3: jobs.rules.over_run: unknown field; did you mean overrun?"),
        ("jobs:\n  trace: twelve.swf\n  options: {a: 1}\n", ":3: jobs.options: applies to a model"),
        ("jobs: twelve.swf\nmachine: {nodes: 0}\n", ":2: machine.nodes: "),
        ("jobs: twelve.swf\nmachine:\n  nodes: 8\n  exclusively: true\n", ":4: machine.exclu"),
        ("jobs: twelve.swf\nsharing: tables\n", ":2: sharing.windows: must be table or changes"),
        ("jobs: twelve.swf\njobs: twelve.swf\n", ":2: jobs: is given twice; keep one"),
        ("jobs: none.swf\n", "none.swf: cannot be read: No such file"),
        ("- 1\n", "the file must be a mapping"),
    ],
)  # fmt: skip
def test_errors_name_the_line(trace: Path, text: str, says: str) -> None:
    file = trace.parent / "experiment.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        Experiment.from_file(file)
    assert says in str(error.value)
    if not text.startswith("jobs: none"):
        assert str(error.value).startswith(str(file))


@pytest.mark.parametrize(
    "fields",
    [
        {"scenario": InMain()},
        {"machine": machine_file.flat(8)},
        {"advance_reservations": advance_reservations.described(
            Located.of({"reservations": RESERVATIONS}))},
        {"scenario": msgspec.structs.replace(scenario("easy"), name="mine")},
    ],
    ids=["policy", "machine", "reservations", "scenario"],
)  # fmt: skip
def test_an_object_without_a_name_is_not_written(tmp_path: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(fields))}: .* cannot be written to a file"):
        Experiment(COLUMNS, **fields).save(tmp_path / "e.yaml")
    assert not (tmp_path / "e.yaml").exists()


def test_a_file_that_cannot_be_written(trace: Path) -> None:
    with pytest.raises(ReshapeError, match="there is no directory"):
        Experiment(trace).save(trace.parent / "no" / "e.yaml")
