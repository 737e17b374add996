"""What a program reports of its progress, and what it requests of its size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from application_scripts import check_wrong_use, script
from driver import Driver
from paths import SUPPORT

import reshape
from reshape.app import Application
from reshape.topology import SizeBounds
from scheduler.protocol import messages as m

on_4_ranks = pytest.mark.mpi(min_size=4)

PROGRAM = """
    wish = None
    for step in app.iterations(1000):
        if step == 1:
            wish = app.request(minimum=np.int64(4))
        if step == 3:
            assert (wish.state, wish.why) == ("declined", "too large"), wish
            wish = app.request(minimum=1, maximum=2)
        if step == 5:
            assert (wish.state, wish.why) == ("accepted", ""), wish
            app.progress(3, 30)
        if step == 6:  # the residual has grown, and is almost the first one
            app.progress(-3, 30)
            app.progress(1e-320, 30)
        if step == 7:  # below the tolerance
            app.progress(31, 30)
        if step == 8:
            break
    print(app.comm.rank, "ends")
"""


def test_requests_are_answered_on_all_ranks_and_progress_is_reported(tmp_path: Path) -> None:
    """A request is repeated until it is answered; an answer goes to every rank."""
    seen: list[tuple[int, SizeBounds | None, int]] = []

    def decide(point: m.AtResizePoint) -> m.Message:
        seen.append((point.iteration, point.requests, point.iterations))
        if point.iteration in (3, 4):
            return m.Proceed(answers=True, declined="too large" if point.iteration == 3 else "")
        return m.Proceed()

    with Driver(tmp_path, [script(tmp_path, PROGRAM)]) as driver:
        driver.decide = decide
        driver.start(2, "first")
        assert sorted(driver.finish().splitlines()) == ["0 ends", "1 ends"]
    four, two = SizeBounds(4, 0), SizeBounds(1, 2)
    assert [request for _, request, _ in seen] == [None, four, four, two, None, None, None, None]
    assert [total for _, _, total in seen] == [1000] * 5 + [60, 60, 8]


def test_a_group_that_joins_takes_over_what_is_not_answered(tmp_path: Path) -> None:
    """Its process becomes rank 0, which sends the request and the progress."""
    body = f"""
        sys.path.append({str(SUPPORT)!r})
        from resizable import inject_faults
        inject_faults(app.state, app.comm.rank)
        u = app.blocks("u", (8,))
        for step in app.iterations(30):
            if step == 1:
                app.request(maximum=7)
                app.progress(1, 100)
    """
    own = {"MESSAGES": "1", "REVERSE": "1"}
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        first = driver.start(1, "first", **own)
        driver.serve(lambda: driver.latest is not None and driver.latest.requests is not None)
        assert driver.expand(1, **own).ok
        assert driver.contract(0).ok
        assert first.process.poll() == 0
        met = driver.points
        driver.serve(lambda: driver.points > met)
        assert driver.latest is not None
        assert (driver.latest.requests, driver.latest.iterations) == (SizeBounds(0, 7), 200)
        driver.finish()


WRONG_USE: list[tuple[Callable[[Application], object], str]] = [
    (
        lambda a: a.request(minimum=0),
        "app.request(minimum=0, maximum=None): expected whole numbers",
    ),
    (
        lambda a: a.request(5, 4),
        "app.request(minimum=5, maximum=4): expected whole numbers >= 1 and",
    ),
    (
        lambda a: a.request("5"),
        "app.request(minimum='5', maximum=None): expected whole numbers >= 1",
    ),
    (
        lambda a: a.request(2**31),
        "app.request(minimum=2147483648, maximum=None): expected whole num",
    ),
    (lambda a: a.report(x=2**63), "app.report(x=...): expected an integer of at most 64 bits"),
    (lambda a: a.report(x="\udcff"), "app.report(x=...): expected UTF-8 text, got '\\udcff'"),
    (lambda a: a.progress(0, 0), "app.progress(0, 0): expected numbers, and a finite total > 0"),
    (lambda a: a.progress(float("nan"), 1), "app.progress(nan, 1): expected numbers, and a finite"),
    (lambda a: a.progress(1, float("inf")), "app.progress(1, inf): expected numbers, and a finite"),
]


@on_4_ranks
@pytest.mark.parametrize(("use", "error"), WRONG_USE)
def test_wrong_use_raises_an_error_of_one_sentence(
    alone: None, use: Callable[[Application], object], error: str
) -> None:
    check_wrong_use(use, error)


@on_4_ranks
def test_without_a_service_a_request_is_declined() -> None:
    with reshape.application() as app:
        request = app.request(minimum=5)
        assert request.state == "declined"
        assert request.why.startswith("the program runs without a service")
        app.progress(1, 2)
