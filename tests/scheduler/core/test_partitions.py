"""Partitions: jobs keep to the processors of their own, and each decides as if it were alone."""

from __future__ import annotations

import msgspec
from core_life import MEMORY, NODES, SCENARIOS, AnyLife, noted
from example_counts import examples
from fixed_estimates import Constant
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from reshape.topology import Topology
from scheduler.core.core import Core
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import Event, JobSpec, JobSubmitted, NodeJoined
from scheduler.model.job import FINAL
from scheduler.model.machine import Machine
from scheduler.model.orders import Order, Start
from scheduler.model.procset import ProcSet
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import from_data, scenario, to_data
from scheduler.state.records import decode_core, decode_job, encode_core, encode_job
from simulator.engine.costs import Costs, ResizeCost
from simulator.engine.engine import Engine
from simulator.engine.jobs import SimJob
from simulator.results.schedule import Schedule

NAMES = ["a", "b", "c"]
#: Node -> its processors in partitions other than the first one.
SHARES = {"n1": {"b": 2}, "n2": {"a": 1, "c": 1}, "n3": {}}


class PartitionedLife(AnyLife):
    """Any life of a core with three partitions; the third has no node at first."""

    @initialize(
        chosen=st.tuples(*[st.sampled_from(SCENARIOS)] * 3),
        order=st.sampled_from(["batch", "batch", "sequential"]),
        kill=st.booleans(),
    )
    def begin(self, chosen: tuple[Scenario, ...], order: str, kill: bool) -> None:
        parts = dict(zip(NAMES, chosen, strict=True))
        self.core = Core(
            Scenario("x", partitions=parts),
            kill_at_walltime=kill,
            order=order,
            report_error=noted,
        )
        self.start(self.core.partitions)
        self.core.handle([self.joined("n1")])

    def submit(self, *arguments: object, **named: object) -> None:
        super().submit(*arguments, **named)
        event = self.waiting[-1]
        assert isinstance(event, JobSubmitted)
        name = ["", *NAMES][event.job % 4]
        spec = msgspec.structs.replace(event.spec, partition=name)
        self.waiting[-1] = msgspec.structs.replace(event, spec=spec)

    def joined(self, node: str) -> NodeJoined:
        resources = MEMORY.get(node, {})
        return NodeJoined(
            self.time, node, NODES[node], resources=resources, shares=SHARES.get(node, {})
        )

    @invariant()
    def jobs_hold_processors_of_their_partition(self) -> None:
        for job in self.core.jobs.values():
            own = next(p for p in self.partitions if p.name == (job.spec.partition or "a"))
            held = ProcSet.union(job.groups.values())
            numbers = ProcSet.union(node.numbers for node in own.machine.nodes.values())
            assert not held - numbers
            steps = own.state.steps.of(0 if job.spec.step_of is None else job.spec.step_of.job)
            queued = (own.live, own.queue, own.queueing.eligibility.waiting)
            places = [job in steps, *(job.id in jobs for jobs in queued)]
            assert job.state in FINAL or any(places)

    @invariant()
    def a_copy_of_the_record_is_the_same(self) -> None:
        record = encode_core(self.core.record())
        jobs = [decode_job(encode_job(job)) for job in self.core.jobs.values()]
        copy = Core.restored(decode_core(record), jobs, self.core.scenario, Machine())
        assert encode_core(copy.record()) == record
        assert [p.live.keys() for p in copy.partitions] == [p.live.keys() for p in self.partitions]


TestPartitionedLife = PartitionedLife.TestCase
TestPartitionedLife.settings = examples(100, stateful_step_count=30)

#: Scenarios with all kinds of wake-ups: none of them may disturb another partition.
ALONE = [
    scenario("fcfs"),
    scenario("easy"),
    scenario("easy++"),
    scenario("conservative"),
    scenario("steady"),
    scenario("fcfs-pr", {"order.refresh_s": 3}),
    scenario("pba", {"order": "aging", "order.refresh_s": 0}),
    scenario("max-b-pr"),
    Scenario("expiring", estimates=Constant(3)),
    scenario("easy", {"order": "lxwf"}),
]
JOBS = st.lists(
    st.tuples(
        st.integers(0, 60),  # at, s
        st.sampled_from(["", "a", "b"]),
        st.integers(1, 5),  # processors; of five no partition has enough
        st.sampled_from([0, 0, 2, 4]),  # more of them after expansions
        st.integers(1, 40),  # walltime, s
        st.integers(1, 50),  # run time, s
    ),
    min_size=1,
    max_size=16,
)


def simulated(core: Core, jobs: list[SimJob]) -> Schedule:
    costs = Costs.constant(ResizeCost(start_s=0.5, join_s=0.1))
    return Engine(core, jobs, costs=costs, allocations=True).run()


@given(
    jobs=JOBS,
    chosen=st.tuples(st.sampled_from(ALONE), st.sampled_from(ALONE)),
    order=st.sampled_from(["batch", "sequential"]),
    kill=st.booleans(),
)
@example(  # the resize points of one instant stay in the order in which they came
    jobs=[(at, "", 1, 0, 1, 1) for at in (0, 0, 0, 0)]
    + [(4, "", 2, 0, 1, 1), (4, "", 3, 0, 37, 36), (5, "", 2, 2, 1, 3), (41, "", 1, 2, 1, 2)],
    chosen=(ALONE[4], ALONE[0]),
    order="sequential",
    kill=False,
)
@examples(300)
def test_each_partition_decides_as_if_it_were_alone(
    jobs: list[tuple[int, str, int, int, int, int]],
    chosen: tuple[Scenario, Scenario],
    order: str,
    kill: bool,
) -> None:
    parts = dict(zip("ab", chosen, strict=True))
    work = [
        SimJob(
            float(at),
            JobSpec(n, float(walltime), n + more, Topology(step=1), partition=name),
            float(run),
            iterations=run if more else 1,
        )
        for at, name, n, more, walltime, run in sorted(jobs)
    ]
    first = Machine([("n1", 4)])
    others = {"b": Machine([("n2", 3)], numbering=first.numbering)}
    options = {"order": order, "kill_at_walltime": kill}
    both = Core(Scenario("x", partitions=parts), first, others, **options)
    together = simulated(both, work)
    for (name, rules), processors in zip(parts.items(), (4, 3), strict=True):
        own = [i for i, job in enumerate(work) if (job.spec.partition or "a") == name]
        alone = simulated(
            Core(rules, Machine([("n", processors)]), **options), [work[i] for i in own]
        )
        for place, i in enumerate(own):
            assert_equal(together, i, alone, place)


def assert_equal(one: Schedule, i: int, other: Schedule, j: int) -> None:
    assert repr((one.started[i], one.ended[i])) == repr((other.started[j], other.ended[j]))
    assert one.sizes.get(i + 1) == other.sizes.get(j + 1)


def test_a_forecast_runs_every_partition() -> None:
    rules = Scenario("x", partitions={"a": scenario("fcfs"), "b": scenario("easy")})
    first = Machine([("n1", 2)])
    core = Core(rules, first, {"b": Machine([("n2", 2)], numbering=first.numbering)})
    core.handle([JobSubmitted(0.0, i, JobSpec(2, 10.0 * i, partition="b")) for i in (1, 2)])
    state = RecordedState.of_core(core)
    of_b = JobSpec(1, 5.0, partition="b")
    run = forecast(state, [JobSpec(1, 5.0), of_b])
    assert run.of(3).start == 0.0, "the other partition is idle"
    assert run.of(4).start == 30.0
    assert run.of(4).processors == "2"
    assert forecast(state, [of_b], only=[3]).of(3).start == 30.0


def test_a_partition_that_is_configured_no_more_keeps_its_nodes_until_they_join_again() -> None:
    rules = Scenario("x", partitions={"a": scenario("fcfs"), "b": scenario("easy")})
    core = Core(rules)
    core.handle([NodeJoined(0.0, "n1", 4, shares={"b": 4})])
    copy = Core.restored(core.record(), [], scenario("easy"), Machine())
    assert [(part.name, part.machine.installed) for part in copy.partitions] == [("", 0), ("b", 4)]
    copy.handle([NodeJoined(1.0, "n1", 4)])
    assert [part.machine.processors for part in copy.partitions] == [4, 0]
    assert (copy.machine.installed, copy.machine.processors) == (4, 4)
    assert copy.machine.nodes["n1"].up
    again = Core.restored(copy.record(), [], scenario("easy"), Machine())
    assert [part.name for part in again.partitions] == [""]


def test_a_scenario_without_partitions_can_be_tried_with_the_events_of_one_with_some() -> None:
    core = Core(scenario("easy"))
    spec = JobSpec(3, 5.0, partition="b")
    orders = core.handle([NodeJoined(0.0, "n1", 4, shares={"b": 3}), JobSubmitted(0.0, 1, spec)])
    assert [str(order.processors) for order in orders if isinstance(order, Start)] == ["0-2"]


def test_a_scenario_with_partitions_is_data() -> None:
    rules = Scenario("x", partitions={"a": scenario("fcfs"), "b": scenario("steady")})
    assert from_data(msgspec.json.decode(msgspec.json.encode(to_data(rules)))) == rules
    assert "partitions" not in to_data(scenario("easy"))


def test_redirection_leads_to_another_partition() -> None:
    """Both take submissions; a job of the first that delays two starts again in the other."""
    changes = {"redirection.theta": 1, "redirection.partition": "b"}
    parts = {"a": scenario("easy", changes), "b": scenario("fcfs")}
    first = Machine([("n1", 2)])
    core = Core(
        Scenario("x", partitions=parts),
        first,
        {"b": Machine([("n2", 2)], numbering=first.numbering)},
    )
    jobs = [
        SimJob(0.0, JobSpec(2, 100.0, partition="a"), 100.0),
        SimJob(1.0, JobSpec(1, 5.0, partition="b"), 5.0),
        SimJob(2.0, JobSpec(2, 5.0), 5.0),
        SimJob(3.0, JobSpec(2, 5.0), 5.0),
    ]
    partitions = {}

    def watch(now: float, events: list[Event], orders: list[Order]) -> None:
        partitions[now] = core.jobs[1].partition if 1 in core.jobs else None

    result = Engine(core, jobs, watch=watch).run()
    assert result.redirected == [(1, 0.0, 3.0)]
    started = result.started.tolist()
    assert started == [6.0, 1.0, 3.0, 8.0], "job 2 did not count, and had to end first"
    assert [partitions[at] for at in (2.0, 3.0)] == ["a", "b"]
