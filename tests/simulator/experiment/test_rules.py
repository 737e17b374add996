"""Each combination that an experiment refuses, by the row of the table that refuses it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from small_experiments import CENTRES, COLUMNS, POOL, SHARED, TREE, trace_text

from reshape.errors import ConfigError
from scheduler.predictions.estimates import Tsafrir
from simulator import Experiment, Jobs
from simulator.experiment.rules import NOT_YET, REFUSALS, Refusal

WORKLOAD = "processors: 8\njobs:\n  - {at: 0, processors: 4, walltime: 60, iteration_s: 1}\n"
RESERVATIONS = [{"name": "course", "start": 10, "duration": 10, "processors": 2}]


@pytest.fixture
def jobs() -> Jobs:
    return Jobs(COLUMNS)


@pytest.fixture
def workload(tmp_path: Path) -> Jobs:
    (tmp_path / "jobs.yaml").write_text(WORKLOAD)
    return Jobs.read(tmp_path / "jobs.yaml")


#: Number of a row of the table -> fields of an experiment that it refuses. The others are valid.
POOLED = {"pool": POOL}
AT_CENTRES = {"machine": CENTRES}
REDIRECTED = {"scenario": {"name": "easy", "redirection.theta": 1, "redirection.processors": 4}}
PARTITIONED = {"nodes": 8, "partitions": {"batch": None, "short": {"nodes": 2}}}
RESIZABLE = Jobs(COLUMNS).with_resizable()
CASES: list[tuple[str, str, dict[str, Any]]] = [
    # the field, the begin of the reason, fields of the experiment
    ("processors", "does not apply to a pool", {**POOLED, "processors": 8}),
    ("machine", "does not apply to a pool", {**POOLED, "machine": TREE}),
    ("sharing", "does not apply to a pool", {**POOLED, "sharing": "table"}),
    ("contiguity", "does not apply to a pool", {**POOLED, "contiguity": 0.5}),
    ("dispersal", "does not apply to a pool", {**POOLED, "dispersal": True}),
    ("advance_reservations", "does not apply to a pool",
     {**POOLED, "advance_reservations": RESERVATIONS}),
    ("event_order", "a pool joins and loses nodes", {**POOLED, "event_order": "sequential"}),
    ("pool_wait", "needs a pool", {"pool_wait": 30}),
    ("processors", "does not apply to several centres", {**AT_CENTRES, "processors": 8}),
    ("scenario", "does not apply to several centres", {**AT_CENTRES, "scenario": "fcfs"}),
    ("queue_order", "does not apply to several centres", {**AT_CENTRES, "queue_order": "sjf"}),
    ("backfill_order", "does not apply to several centres",
     {**AT_CENTRES, "backfill_order": "sjf"}),
    ("event_order", "does not apply to several centres",
     {**AT_CENTRES, "event_order": "sequential"}),
    ("select", "does not apply to several centres", {**AT_CENTRES, "select": "first-fit"}),
    ("sharing", "does not apply to several centres", {**AT_CENTRES, "sharing": "table"}),
    ("contiguity", "does not apply to several centres", {**AT_CENTRES, "contiguity": 0.5}),
    ("dispersal", "does not apply to several centres", {**AT_CENTRES, "dispersal": True}),
    ("advance_reservations", "reserves processors of one machine",
     {**AT_CENTRES, "advance_reservations": RESERVATIONS}),
    ("quotes", "no forecast knows which nodes", {**POOLED, "quotes": {}}),
    ("quotes", "centres keep what they were asked", {**AT_CENTRES, "quotes": {"every": 2}}),
    ("quotes", "no forecast follows jobs that are redirected", {**REDIRECTED, "quotes": {}}),
    ("quotes", "no forecast knows which jobs feedback", {"feedback": True, "quotes": {}}),
    ("quotes.run_times", "resizable jobs have no run times",
     {"jobs": RESIZABLE, "quotes": {"run_times": "exact"}}),
    ("assign", "needs a machine of several centres", {"assign": "random"}),
    ("dispatch", "needs a machine of several centres", {"dispatch": {"ask": 2}}),
    *((f"dispatch.{field}", "does not apply to grid-backfilling",
       {**AT_CENTRES, "assign": "grid-backfilling", "dispatch": {field: value}})
      for field, value in (("ask", 1), ("affinity", True), ("redispatch", "quote"))),
    ("dispatch.affinity", "all centres are asked", {**AT_CENTRES, "dispatch": {"affinity": True}}),
    ("dispatch.redispatch", "jobs wait in the queue of the dispatcher",
     {**AT_CENTRES, "assign": "central-queue", "dispatch": {"redispatch": "quote"}}),
    ("processors", "the machine names the number", {"machine": TREE, "processors": 8}),
    ("sharing", "sharing and contiguity both change run times",
     {"machine": SHARED, "sharing": "table", "contiguity": 0.5}),
    ("sharing", "jobs that share nodes cannot be redirected",
     {"machine": SHARED, "sharing": "table", **REDIRECTED}),
    ("sharing", 'windows "table" does not apply to resizable jobs',
     {"machine": SHARED, "sharing": "table", "jobs": RESIZABLE}),
    ("machine", "exclusive nodes do not apply to resizable jobs",
     {"machine": {**TREE, "exclusive": True}, "jobs": RESIZABLE}),
    ("pool", "a pool has no redirection group", {**POOLED, **REDIRECTED}),
    ("dispersal", "is measured for all jobs", {"machine": TREE, "select": "tree",
     "dispersal": True, "warm_up_s": 9}),
    ("feedback", "only jobs of a trace", {"feedback": True, "jobs": Jobs.drawn("lublin")}),
    ("feedback", "the times between submissions", {"feedback": True, "load": 0.5}),
    ("feedback", "reservations are planned",
     {"feedback": True, "advance_reservations": RESERVATIONS}),
    ("contiguity", "jobs have no places", {"contiguity": 0.5}),
    ("contiguity", "the exponent needs a network",
     {"contiguity": {"speedup": 0.5, "exponent": 1}, "select": "first-fit"}),
    ("dispersal", "jobs have no places in a network", {"machine": TREE, "dispersal": True}),
    ("partition_field", "needs a machine with partitions", {"partition_field": "queue"}),
    ("advance_reservations", "partitions take no advance reservations",
     {"machine": PARTITIONED, "advance_reservations": RESERVATIONS}),
    ("select", "needs a machine with a network", {"select": "tree"}),
    ("select", "resizable jobs get individual", {"select": "count", "jobs": RESIZABLE}),
    ("select", "count has no effect", {"select": "count", "machine": SHARED, "sharing": "table"}),
    ("load", "applies to the jobs of a trace", {"load": 0.5, "jobs": Jobs.drawn("prio")}),
    ("load", "is that of one machine", {**AT_CENTRES, "load": 0.5}),
    ("seed", "nothing is drawn", {"seed": 1}),
    ("scenario.backfill.reservations", "another number of reservations",
     {"scenario": {"name": "fcfs", "backfill": {"reservations": 2}}}),
    ("scenario.backfill.kill_at_reservation", "no job exceeds its estimate",
     {"scenario": {"name": "easy", "backfill.kill_at_reservation": True}}),
]  # fmt: skip


def refused_by(experiment: Callable[[], Experiment]) -> tuple[str, str]:
    with pytest.raises(ConfigError) as refused:
        experiment()
    return refused.value.field or "", refused.value.message


@pytest.mark.parametrize(("field", "reason", "fields"), CASES)
def test_a_combination_is_refused_with_its_reason(
    jobs: Jobs, field: str, reason: str, fields: dict[str, Any]
) -> None:
    told = refused_by(lambda: Experiment(**{"jobs": jobs} | fields))
    assert (told[0], told[1][: len(reason)]) == (field, reason)


def reason_against(fields: dict[str, Any]) -> str:
    """Reason of the row that refuses these fields; "" if none does."""
    try:
        Experiment(**fields)
    except ConfigError as error:
        return error.message
    return ""


@pytest.mark.parametrize(("field", "reason", "fields"), CASES)
def test_without_the_field_its_row_refuses_nothing(
    jobs: Jobs, field: str, reason: str, fields: dict[str, Any]
) -> None:
    name = field.partition(".")[0]
    rest = {"jobs": jobs} | {key: value for key, value in fields.items() if key != name}
    assert not reason_against({"jobs": jobs} | rest).startswith(reason)


def row_of(field: str, reason: str) -> Refusal:
    names = (field, "" if "." in field else field)
    return next(r for r in REFUSALS if r.field in names and r.reason.startswith(reason))


def test_each_row_of_the_table_has_a_case() -> None:
    assert [row_of(field, reason) for field, reason, _ in CASES] == [*REFUSALS]


def test_the_page_lists_what_is_refused_for_want_of_code() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    _, _, table = page.partition("| refused for want of code | with |")
    rows = [line.split("|") for line in table.partition("\n\n")[0].splitlines()[2:]]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    assert listed == {row.field for row in NOT_YET}
    assert len(NOT_YET) < len(REFUSALS) / 2


def test_a_workload_file_has_its_own_times_of_submission(workload: Jobs) -> None:
    field, reason = refused_by(lambda: Experiment(workload, load=0.5))
    assert (field, reason.partition(";")[0]) == ("load", "applies to the jobs of a trace")


def test_what_draws_takes_a_seed(workload: Jobs, jobs: Jobs, tmp_path: Path) -> None:
    waits = tmp_path / "waits.swf"
    waits.write_text(trace_text(with_waits=True))
    for some, fields in (
        (Jobs.drawn("lublin", jobs=5), {}),
        (jobs.with_resizable(0.5), {}),
        (jobs, {**AT_CENTRES, "assign": "random"}),
        (jobs, {**AT_CENTRES, "dispatch": {"ask": 1}}),
        (jobs, {**POOLED, "pool_wait": str(waits)}),
        (jobs, {"machine": SHARED, "sharing": {"windows": "changes", "demand_error": 0.1}}),
    ):
        assert Experiment(some, seed=7, **fields).seed == 7
    for fixed in (
        {"jobs": workload},
        {"jobs": jobs.with_resizable(0.0)},
        {"jobs": jobs.with_resizable(1.0)},
        {"jobs": jobs, **AT_CENTRES},
        {"jobs": jobs, **POOLED, "pool_wait": 5},
    ):
        assert reason_against({**fixed, "seed": 7}).startswith("nothing is drawn")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"processors": 0}, "processors: must be >= 1, got 0"),
        ({"processors": "many"}, "processors: expected int, got 'many'"),
        ({"seed": -1}, "seed: must be >= 0, got -1"),
        ({"seed": 1.5}, "seed: expected int, got 1.5"),
        ({"load": 0}, "load: must be > 0 and finite, got 0"),
        ({"warm_up_s": -5}, "warm_up_s: must be >= 0 and finite, got -5"),
        ({"tau_s": float("nan")}, "tau_s: must be >= 0 and finite, got nan"),
        ({"partition_field": "que"}, "partition_field: must be partition or queue, got 'que'"),
        ({"event_order": "bach"}, "event_order: must be batch or sequential, got 'bach'"),
        ({"scenario": "esy"}, "scenario: unknown scenario 'esy'; did you mean easy"),
        (
            {"scenario": 5},
            "scenario: must be a name, a Scenario, a resizing policy, a scheduling",
        ),
        ({"queue_order": 5}, "queue_order: must be a name, a mapping or an object with a method k"),
        ({"estimates": object()}, "estimates: must be a name, a mapping or an object with a meth"),
        (
            {"estimates": Tsafrir().predictor()},
            "estimates: is a _UserMeans, which learns in one sim",
        ),
        ({"estimates": "exakt"}, "estimates: unknown estimates 'exakt'; did you mean exact"),
        ({"select": "tre", "machine": TREE}, "select: unknown selection 'tre'; did you mean tree"),
        ({"queue_order": "sjf", "scenario": {"name": "easy", "order": "fcfs"}}, "keep one"),
        ({"machine": 5}, "machine: must be a path or a mapping, got 5"),
        ({"machine": "none.yaml"}, "none.yaml: cannot be read: No such file"),
        ({"machine": {"node": 5}}, "machine: node: unknown field; did you mean nodes"),
        (
            {"machine": {"nodes": 4, "network": {"topology": "mesh", "dim": [2, 2]}}},
            "machine: network.dim: unknown field; did you mean dims",
        ),
        ({"pool": 5}, "pool: must be a text or a mapping, got 5"),
        (
            {**AT_CENTRES, "assign": "random", "dispatch": {"seed": 2}},
            "dispatch.seed: unknown field; all draws have the seed of the experiment",
        ),
        ({"sharing": "tables"}, "sharing.windows: must be table or changes, got 'tables'"),
        ({"contiguity": 2, "select": "first-fit"}, "contiguity: speedup must be >= 0 and < 1"),
    ],
)
def test_a_wrong_value_gives_one_error(jobs: Jobs, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        Experiment(jobs, **fields)
    assert says in str(error.value)


def test_a_class_in_place_of_an_object_is_named(jobs: Jobs) -> None:
    class Mine:
        def key(self, job: object, now: float) -> float:
            return 0.0

        decide = key

    for field in ("queue_order", "scenario"):
        fields: dict[str, Any] = {field: Mine}
        assert refused_by(lambda fields=fields: Experiment(jobs, **fields)) == (  # type: ignore[misc]
            field,
            "is a class; give an object, Mine()",
        )
