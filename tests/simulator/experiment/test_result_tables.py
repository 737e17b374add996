"""Tables of results: columns of equal length that agree with the schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_experiments import CENTRES, COLUMNS, POOL, TREE

from scheduler.model.procset import ProcSet
from simulator import Jobs, Simulation, simulate
from simulator.experiment.tables import Columns, of_rows


def runs() -> dict[str, Simulation]:
    resizable = Jobs(COLUMNS).with_resizable(iterations=20)
    growing: dict[str, Any] = {"processors": 16, "scenario": "fcfs-pr"}
    return {
        "counted": simulate(COLUMNS),
        "individual": simulate(COLUMNS, select="first-fit"),
        "tree": simulate(COLUMNS, machine=TREE, select="tree"),
        "resizable": simulate(resizable, **growing),
        "resizable with places": simulate(resizable, select="first-fit", **growing),
        "centres": simulate(COLUMNS, machine=CENTRES),
        "pool": simulate(COLUMNS, pool=POOL),
        "too large": simulate(Jobs(COLUMNS).with_rules(larger="drop"), processors=4),
    }


RUNS = runs()


@pytest.fixture(params=RUNS)
def ran(request: pytest.FixtureRequest) -> Simulation:
    return RUNS[request.param]


def test_columns_of_a_table_are_equally_long(ran: Simulation) -> None:
    for table in (ran.jobs, ran.allocations, ran.resizes, ran.reservations, *ran.tables.values()):
        assert {len(column) for column in table.values()} <= {table.rows}
        assert len([*table.lines()]) == table.rows


def test_jobs_agree_with_the_schedule(ran: Simulation) -> None:
    jobs, schedule = ran.jobs, ran.schedule
    assert np.array_equal(jobs["start_s"], schedule.started, equal_nan=True)
    assert np.array_equal(jobs["end_s"], schedule.ended, equal_nan=True)
    assert np.array_equal(jobs["wait_s"], jobs["start_s"] - jobs["submit_s"], equal_nan=True)
    assert np.nanmean(jobs["wait_s"]) == pytest.approx(ran.metrics["mean_wait_s"])
    assert (jobs["state"] == "killed").sum() == ran.metrics.get("killed", 0)
    assert (jobs["state"] == "unstarted").sum() == ran.metrics.get("unstarted", 0)
    slowdowns = jobs["bounded_slowdown"][~np.isnan(jobs["bounded_slowdown"])]
    assert slowdowns.mean() == ran.metrics["mean_bounded_slowdown"], "to the last bit"


def test_allocations_agree_with_the_schedule(ran: Simulation) -> None:
    table, jobs = ran.allocations, ran.jobs
    began: dict[str, float] = {}
    ended: dict[str, float] = {}
    held: dict[str, float] = {}
    for row in table.lines():
        name, span = str(row["job"]), row["end_s"] - row["begin_s"]
        assert span >= 0
        began.setdefault(name, row["begin_s"])
        ended[name] = row["end_s"]
        held[name] = held.get(name, 0.0) + span * row["processors"]
        if row["numbers"]:
            assert len(ProcSet.parse(row["numbers"])) == row["processors"]
    for row in jobs.lines():
        name = str(row["job"])
        if row["state"] != "unstarted":
            assert (began[name], ended[name]) == (row["start_s"], row["end_s"])
            if not ran.schedule.sizes:
                assert held[name] == row["run_s"] * row["processors"]
    if ran.metrics.get("utilization") and ran.pool is None and ran.centres is None:
        span = jobs["end_s"].max() - jobs["submit_s"].min()
        used = sum(held.values()) / (span * ran.processors)
        assert used == pytest.approx(ran.metrics["utilization"])


def test_no_processor_has_two_jobs() -> None:
    for name in ("individual", "tree", "resizable with places"):
        rows = sorted(RUNS[name].allocations.lines(), key=lambda row: row["begin_s"])
        for i, row in enumerate(rows):
            for other in rows[:i]:
                if other["end_s"] > row["begin_s"]:
                    assert not ProcSet.parse(row["numbers"]) & ProcSet.parse(other["numbers"])


def test_resizes_are_the_changes_of_allocations() -> None:
    ran = RUNS["resizable with places"]
    sizes: dict[tuple[str, float], tuple[int, int]] = {}
    last: dict[str, dict[str, Any]] = {}
    for row in ran.allocations.lines():
        name, before = str(row["job"]), last.get(str(row["job"]))
        if before is not None and before["processors"] != row["processors"]:
            sizes[name, row["begin_s"]] = (before["processors"], row["processors"])
        last[name] = row
    told = {
        (str(row["job"]), row["at_s"]): (row["before"], row["after"]) for row in ran.resizes.lines()
    }
    assert told == sizes
    assert len(told) == ran.metrics["expansions"] + ran.metrics["contractions"] > 0
    assert ran.resizes["at_s"].tolist() == sorted(ran.resizes["at_s"].tolist())
    assert RUNS["counted"].resizes.rows == 0


def test_centres_count_their_jobs() -> None:
    ran = RUNS["centres"]
    assert ran.centres is not None
    table = ran.tables["centres"]
    assert table["centre"].tolist() == ["A", "B"]
    assert table["processors"].tolist() == [8, 8]
    ended = ~np.isnan(ran.centres.schedule.ended)
    ran_there = [int((ended & (ran.centres.ran_at == at)).sum()) for at in (0, 1)]
    assert table["jobs"].tolist() == ran_there
    assert table["jobs"].sum() == 12


def test_allocations_of_a_pool() -> None:
    ran = RUNS["pool"]
    assert ran.pool is not None
    table = ran.tables["pool"]
    assert table.rows == ran.metrics["allocations"]
    assert (table["ended_s"] >= table["granted_s"]).all()


def test_columns_are_a_mapping_of_arrays() -> None:
    table = Columns(a=np.arange(30), b=np.linspace(0, 1, 30))
    assert dict(table).keys() == {"a", "b"}
    assert table.rows == 30
    lines = repr(table).splitlines()
    assert lines[-1] == "[30 rows x 2 columns]"
    assert len(lines) == 13
    assert lines[0].split() == ["a", "b"]
    assert next(table.lines()) == {"a": 0, "b": 0.0}
    assert repr(Columns()).endswith("[0 rows x 0 columns]")
    assert Columns().rows == 0


def test_rows_of_numbers_and_texts_stay_what_they_are() -> None:
    table = of_rows(("name", "value"), [("a", ""), ("b", 0.5)])
    assert table["value"].tolist() == ["", 0.5]
    assert table["name"].tolist() == ["a", "b"]
    assert of_rows(("name",), []).rows == 0


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_data_frame_takes_them(library: str) -> None:
    frames = pytest.importorskip(library)
    frame = frames.DataFrame(RUNS["counted"].jobs)
    assert frame.shape == (12, len(RUNS["counted"].jobs))
    assert frame["wait_s"].mean() == pytest.approx(RUNS["counted"].metrics["mean_wait_s"])


def test_a_notebook_shows_tables_and_runs_as_html() -> None:
    table = of_rows(("name", "a<b"), [(f"n{i}", i / 2) for i in range(30)])
    shown = table._repr_html_()
    assert shown.startswith("<table><thead><tr><th>name</th><th>a&lt;b</th></tr></thead><tbody>")
    assert shown.count("<tr>") == 1 + 5 + 1 + 5
    assert "<td>n4</td><td>2</td></tr><tr><td>...</td><td>...</td></tr><tr><td>n25</td>" in shown
    assert shown.endswith("</table><p>30 rows x 2 columns</p>")
    run = RUNS["counted"]
    told = run._repr_html_()
    assert told.startswith("<b>columns</b><table>")
    assert f"<td>mean_wait_s</td><td>{run.metrics['mean_wait_s']:.6g}</td>" in told
    page = run.report()
    assert page._repr_html_().startswith('<iframe width="100%"')
    assert len(repr(page)) < 80, "a terminal does not show the page"


def test_an_unknown_name_suggests_a_similar_one() -> None:
    run = RUNS["counted"]
    with pytest.raises(KeyError, match="there is no 'mean_wait'; did you mean mean_wait_s"):
        run.metrics["mean_wait"]
    with pytest.raises(KeyError, match="there is no 'wait'; did you mean wait_s"):
        run.jobs["wait"]
    assert run.metrics.get("mean_wait") is None
    assert "wait" not in run.jobs
