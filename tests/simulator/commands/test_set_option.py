"""The options of `reshape simulate`, its help, and `--set` for all other fields."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from command_line import invoke
from paths import ROOT
from paths import SMALL_TRACE as SMALL

from reshape.__main__ import main
from simulator.commands.simulate import HEADINGS, assignments, paths, simulate
from simulator.traces import swf
from simulator.workload_models.drawn import MIXES, with_demands

LINES = 100  #: Two screens.
TWENTY = {
    "--policy", "--queue-order", "--backfill-order", "--estimates", "--select", "--processors",
    "--machine", "--pool", "--resizable", "--speedup", "--jobs", "--seed", "--lenient", "--set",
    "--out", "--swf", "--save", "--json",
}  # fmt: skip
VARYING = {"wall_s", "cpu_s", "jobs_per_s", "peak_rss_mib", "core", "trace"}


def told(*words: object) -> dict[str, object]:
    """Numbers of a run that do not depend on the process."""
    printed = json.loads(invoke("simulate", *words, "--json").stdout)
    return {name: value for name, value in printed.items() if name not in VARYING}


def completions(*words: str) -> list[str]:
    """What a shell offers for the last word."""
    shell = ShellComplete(main, {}, "reshape", "_RESHAPE_COMPLETE")
    return [item.value for item in shell.get_completions([*words[:-1]], words[-1])]


def test_the_help_shows_twenty_options_under_headings_on_two_screens() -> None:
    text = simulate.get_help(click.Context(simulate, info_name="simulate", terminal_width=100))
    assert len(text.splitlines()) <= LINES
    shown = [line.split()[0] for line in text.splitlines() if line.startswith("  --")]
    assert {*shown} - {"--help"} == TWENTY
    assert [*shown].index("--policy") < shown.index("--machine") < shown.index("--out")
    assert [line for line in text.splitlines() if line.rstrip(":") in HEADINGS] == [
        f"{heading}:" for heading in HEADINGS
    ]
    assert "docs/simulator.md lists all" in text


def test_the_documentation_lists_every_field() -> None:
    text = (ROOT / "docs" / "simulator.md").read_text()
    assert [path for path in paths() if f"`{path}`" not in text] == []


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("penalty=ratio", "--set penalty: unknown field; did you mean sharing.penalty?"),
        ("backfil.max_jobs=3", "--set backfil.max_jobs: unknown field; did you mean backfill.max"),
        ("backfill.max_job=3", "--set backfill.max_job: unknown field 'max_job'; did you mean max"),
        ("jobs.frist=3", "--set jobs.frist: unknown field; did you mean first?"),
        ("zzz=3", "--set zzz: unknown field; known are advance_reservations, assign, backfill, "),
        ("name=mine", "--set name: unknown field"),
        ("sharing.penalty=rati", "--set sharing.penalty: must be excess or ratio, got 'rati'"),
        ("sharing=tabel", "--set sharing: sharing.windows: must be table or changes, got 'tabel'"),
        ("contiguity.exponent=2", "--set contiguity.exponent: contiguity.speedup: is missing"),
        ("tau_s=12:00:00", "--set tau_s: expected float, got '12:00:00'"),
        ("load=NaN", "--set load: must be > 0 and finite, got nan"),
        ("seed=true", "--set seed: expected int, got True"),
        ("event_order=foo", "--set event_order: must be batch or sequential, got 'foo'"),
        ("select=5", "--set select: must be a name, a mapping or an object with a method select"),
        ("pool=5", "--set pool: must be a text or a mapping, got 5"),
        ("dispatch=5", "--set dispatch: must be a mapping, got 5"),
        ("jobs.first=0", "--set jobs.first: expected int >= 1, got 0"),
        ("jobs.rules=keep", "--set jobs.rules: expected object, got 'keep'"),
        ("jobs.resizable.iterations=0", "--set jobs.resizable.iterations: expected int >= 1"),
        ("jobs.resizable.cost=join=1", "jobs.resizable.cost.join: unknown field; did you mean jo"),
        ("queue_order.wait=1", "--set queue_order.wait: unknown field; none is known"),
        ("pool_wait=5", "--set pool_wait: needs a pool; give pool as well"),
    ],
)
def test_wrong_fields(field: str, says: str) -> None:
    assert says in invoke("simulate", SMALL, "--set", field, code=2).stderr


def test_values_are_numbers_truth_values_json_or_text() -> None:
    given = ("load=1e-3", "dispersal=true", "seed=null", 'dispatch={"ask": 2}', "pool_wait=1:00:00")
    read = {name: value for name, _, value in assignments(given)}
    assert read == {
        "load": 0.001, "dispersal": True, "seed": None, "dispatch": {"ask": 2},
        "pool_wait": "1:00:00",
    }  # fmt: skip


def test_a_field_of_the_short_form_goes_with_those_below_it(tmp_path: Path) -> None:
    """In either order on the command line, and over a file."""
    machine, demands = tmp_path / "nodes.yaml", tmp_path / "demands.swf"
    machine.write_text(
        "nodes: 16\nprocessors_per_node: 4\nshared_per_node: {memory_bandwidth: 3000}\n"
    )
    swf.write(demands, with_demands(swf.read(SMALL), MIXES["high"], 1))
    common = [demands, "--machine", machine, "--jobs", 150]
    table, ratio = ("--set", "sharing=table"), ("--set", "sharing.penalty=ratio")
    long = told(*common, "--set", "sharing.windows=table", *ratio)
    assert told(*common, *table, *ratio) == told(*common, *ratio, *table) == long
    assert long != told(*common, *table)
    file = tmp_path / "table.yaml"
    invoke("simulate", *common, *table, "--save", file)
    file.write_text(file.read_text().replace("{windows: table}", "table"))
    assert told(file, *ratio) == long


def test_options_change_a_scenario_that_a_file_names_alone(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(f"jobs: {SMALL}\nscenario: easy\nqueue_order: sjf\n")
    assert told(file, "--policy", "fcfs") == told(SMALL, "--policy", "fcfs", "--queue-order", "sjf")
    assert told(file, "--set", "backfill.max_jobs=1") != told(file)


def test_a_shell_completes_the_names_of_fields() -> None:
    assert completions("simulate", "--set", "sharing.") == [
        "sharing.windows=", "sharing.penalty=", "sharing.overtime=", "sharing.demand_error=",
    ]  # fmt: skip
    assert completions("simulate", "--set", "backfill.max") == ["backfill.max_jobs="]
    assert "--set" in completions("simulate", "--s")
