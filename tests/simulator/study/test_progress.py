"""Progress of one long simulation, and what an interrupted one says."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable

import msgspec
import pytest
from rich.console import Console
from small_experiments import CENTRES, POOL

import simulator as sim
from scheduler.policies.api import QueueOrder
from simulator.experiment import running
from simulator.study.progress import SimulationProgress
from simulator.study.runner import compute


def seconds() -> Callable[[], float]:
    """Clock that goes on by two seconds at each reading."""
    times = itertools.count(0.0, 2.0)
    return lambda: next(times)


def test_a_terminal_has_a_bar_and_a_notebook_lines() -> None:
    shown = {}
    for kind, options in (
        ("terminal", {"force_terminal": True, "width": 80}),
        ("notebook", {"force_terminal": False}),
        ("file", {"force_terminal": False}),
    ):
        file = io.StringIO()
        console = Console(file=file, **options)
        console.is_jupyter = kind == "notebook"
        with SimulationProgress("name", 100.0, 200.0, console=console, clock=seconds()) as shows:
            for at in range(100, 200, 5):
                shows.tick(float(at))
        shown[kind] = file.getvalue()
    assert "name" in shown["terminal"]
    assert "\x1b[" in shown["terminal"]
    lines = shown["notebook"].splitlines()
    assert len(lines) >= 2
    assert lines[0] == "name: 5%"
    assert shown["file"] == ""


def test_short_simulations_show_nothing() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True)
    with SimulationProgress("name", 0.0, 9.0, console=console, clock=lambda: 0.0) as shows:
        for at in range(10):
            shows.tick(float(at))
    assert file.getvalue() == ""


def shown_in_a_study(parameters: dict[str, object]) -> dict[str, str]:
    """The function of a study: a simulation that would show its progress."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True)
    with SimulationProgress("name", 0.0, 9.0, console=console, clock=seconds()) as shows:
        for at in range(10):
            shows.tick(float(at))
    return {"shown": file.getvalue()}


def test_a_run_of_a_study_shows_nothing() -> None:
    """The study shows the progress of all runs; a run again by itself shows its own."""
    assert compute(f"{__name__}:shown_in_a_study", "", {}) == b'{"shown":""}'
    assert "name" in shown_in_a_study({})["shown"]


class Interrupts(QueueOrder, msgspec.Struct, frozen=True):
    """Order during which the user presses Ctrl-C."""

    ages = False

    def key(self, job: object, now: float) -> tuple[float, int]:
        if now >= 100_000:
            raise KeyboardInterrupt
        return now, 0


@pytest.mark.parametrize("shows", [True, False])
def test_an_interrupted_simulation_says_how_far_it_was(
    capsys: pytest.CaptureFixture[str], shows: bool
) -> None:
    times = sim.Jobs(submit_s=range(0, 200_000, 50), processors=[1] * 4000, run_s=[60] * 4000)
    with pytest.raises(KeyboardInterrupt):
        sim.Experiment(times, queue_order=Interrupts()).run(progress=shows)
    said = capsys.readouterr().err
    words = r"columns: interrupted after \d+ s, 4\d% simulated\n" if shows else ""
    assert re.fullmatch(words, said)


@pytest.mark.parametrize("fields", [{}, {"machine": CENTRES}, {"pool": POOL}])
def test_every_kind_of_simulation_ticks(
    fields: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[float] = []

    class Noted(SimulationProgress):
        def tick(self, now: float) -> None:
            ticks.append(now)

    monkeypatch.setattr(running, "SimulationProgress", Noted)
    times = sim.Jobs(submit_s=range(0, 30_000, 20), processors=[1] * 1500, run_s=[5] * 1500)
    sim.simulate(times, **fields)
    assert len(ticks) >= 2
    assert ticks == sorted(ticks)
    assert 0 < ticks[0] < ticks[-1] <= 30_000
