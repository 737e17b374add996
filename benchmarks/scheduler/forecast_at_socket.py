"""Forecasts of a real service, asked for at its socket: 1000 jobs run and 10 000 are queued.

    python benchmarks/scheduler/forecast_at_socket.py [--running 1000] [--queued 10000]
        [--scenario easy] [--futures 50] [--json]

The service is that of `service.py`: a stand-in replaces the agent and the processes of the jobs.
The table has the time from the request to the answer: of the first forecast of all starts, which
starts the forecaster; of further ones on the same state; of quotes for small and large requests; of
a quote with futures. Then the jobs reach resize points at a steady rate, alone and while one client
asks for forecasts all the time: the two latencies compare what forecasts cost everybody else.
"""

from __future__ import annotations

import argparse
import json
import resource
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from service import SIZE, FirstRanks, Peers, service

from scheduler import Client
from scheduler.client.api.client import forecast
from scheduler.compiled import STATE
from scheduler.forecasts.answers import Quote
from scheduler.protocol import messages as m

RATE = 1000.0
REPEATS = 5
#: Submissions under way at a time.
WINDOW = 200


def submit_mix(endpoint: str, running: int, queued: int) -> None:
    """Submit jobs that fill the machine, and jobs of random sizes and walltimes behind them."""
    rng = np.random.default_rng(1)
    jobs = [(SIZE, float(minutes)) for minutes in rng.integers(600, 24 * 60, running)]
    sizes = rng.integers(1, 64, queued).tolist()
    jobs += list(zip(sizes, rng.integers(1, 24 * 60, queued).tolist(), strict=True))
    peers = Peers(endpoint, 1)
    sent = acknowledged = 0
    while acknowledged < len(jobs):
        while sent < min(len(jobs), acknowledged + WINDOW):
            size, minutes = jobs[sent]
            peers.send(0, m.Submit(submission=_submission(size, 60.0 * minutes)))
            sent += 1
        for _, answer in peers.received(1.0):
            assert isinstance(answer, m.Submitted), answer
            acknowledged += 1
    peers.close()


def _submission(processors: int, walltime_s: float) -> m.Submission:
    return m.Submission(argv=["true"], processors=processors, walltime_s=walltime_s)


def timed(function: Callable[[], object], repeats: int = REPEATS) -> tuple[float, float]:
    """Median and longest time of several calls, in seconds."""
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begun)
    return float(np.median(taken)), max(taken)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all measurements."""
    rows: list[dict[str, Any]] = []

    def add(what: str, median_s: float, longest_s: float) -> None:
        rows.append(
            {"what": what, "median_s": round(median_s, 4), "longest_s": round(longest_s, 4)}
        )

    with (
        service(SIZE * options.running, options.scenario) as (place, agent, _),
        Client(place.path) as client,
    ):
        submit_mix(place.endpoint, options.running, options.queued)
        while client.info().queued > options.queued or len(agent.tokens) < (options.running):
            time.sleep(0.1)
        add("all starts, first", *timed(client.expected_starts, 1))
        add("all starts, again", *timed(client.expected_starts))
        for size, walltime_s in ((1, 600.0), (4, 3600.0), (256, 86400.0), (1024, 86400.0)):
            request = _submission(min(size, SIZE * options.running), walltime_s)
            label = f"quote, {request.processors} processors, {walltime_s / 3600:.2g} h"
            message = m.RequestForecast(of=request)
            add(label, *timed(lambda message=message: forecast(client, message, Quote)))
        futures = m.RequestForecast(of=_submission(4, 3600.0), futures=options.futures)
        several = f"quote, {options.futures} futures"
        add(several, *timed(lambda: forecast(client, futures, Quote), 1))

        ranks = FirstRanks(place.endpoint, agent.tokens)
        ranks.steadily(RATE, 1.5)  # every job connects
        ends = threading.Event()

        def ask() -> None:
            with Client(place.path) as other:
                while not ends.is_set():
                    other.expected_starts()

        for what in ("resize points alone", "resize points beside forecasts"):
            asking = threading.Thread(target=ask)
            if what.endswith("forecasts"):
                asking.start()
            latencies, _ = ranks.steadily(RATE, options.seconds)
            ends.set()
            if asking.ident is not None:
                asking.join()
            p99 = float(np.quantile(latencies, 0.99))
            add(f"{what}, p99", p99, max(latencies))
        ranks.peers.close()
    return rows


def main() -> None:
    """Print the table, or the same as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--running", type=int, default=1000, help="running jobs (1000)")
    parser.add_argument("--queued", type=int, default=10_000, help="queued jobs (10000)")
    parser.add_argument("--scenario", default="easy")
    parser.add_argument("--futures", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=8, help="of resize points (8)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows = measure(options)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"core: {STATE}, scenario {options.scenario}")
    for row in rows:
        print(f"{row['what']:<38} {row['median_s']:>9.4f} s {row['longest_s']:>9.4f} s")


if __name__ == "__main__":
    main()
