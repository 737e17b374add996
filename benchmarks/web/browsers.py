"""Resize points of a service while browsers watch it, against the same without them.

    python benchmarks/web/browsers.py [--browsers 20] [--jobs 200] [--rate 500] [--rounds 5]

starts a real service with a stand-in for its agent (`benchmarks/scheduler/service.py`) and `reshape
web` beside it. Rounds without and with browsers follow in turn; in each, the jobs reach their
resize points at a steady rate, and jobs are submitted that change the page. A browser is a thread
of another process that reads as the page does: it follows the stream of events, loads the window
after each, and the list of jobs once a second at most. `ratio` is the median over rounds of the p99
with browsers divided by that without; the target is at most 2. Before the rounds one browser waits
for the window after each of 20 submissions: `update` counts from the acknowledgement; the target is
100 ms. `--json` prints the same as JSON.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import sys
import threading
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks" / "scheduler"), str(ROOT / "tests" / "support")]
from service import MOST, SIZE, FirstRanks, service, submission, submit  # noqa: E402
from web_server import web_server  # noqa: E402

#: Jobs that are submitted in a second of a round; each changes the page.
CHANGES = 5


class Browser:
    """What one page reads.

    Attributes
    ----------
    windows, bytes : that it has loaded.
    """

    def __init__(self, host: str, cookie: str) -> None:
        self.host, self.headers = host, {"Cookie": cookie}
        self.windows = self.bytes = 0
        self._requests = http.client.HTTPConnection(host, timeout=30)

    def _get(self, path: str) -> int:
        self._requests.request("GET", f"/api/v1/{path}", headers=self.headers)
        answer = self._requests.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return len(body)

    def watch(self, ends: Event) -> None:
        """Follow the stream until the end."""
        stream = http.client.HTTPConnection(self.host, timeout=30)
        stream.request("GET", "/api/v1/events", headers=self.headers)
        events, listed = stream.getresponse(), 0.0
        while not ends.is_set():
            if not events.readline().startswith(b"data:"):
                continue
            self.bytes += self._get("window?columns=1800&rows=300")
            self.windows += 1
            if time.monotonic() - listed > 1.0:
                listed = time.monotonic()
                self._get("jobs")
        stream.close()


def watch(host: str, cookie: str, count: int, opened: Event, ends: Event, results: Any) -> None:
    """Open browsers until the end; this is a process of its own."""
    browsers = [Browser(host, cookie) for _ in range(count)]
    threads = [threading.Thread(target=each.watch, args=[ends], daemon=True) for each in browsers]
    for thread in threads:
        thread.start()
    opened.set()
    ends.wait()
    for thread in threads:
        thread.join(1.0)
    results.put((sum(each.windows for each in browsers), sum(each.bytes for each in browsers)))


def updates_ms(browser: Browser, endpoint: str, size: int, count: int = 20) -> list[float]:
    """Measure updates of a page after submissions; return their median and longest in ms."""
    stream = http.client.HTTPConnection(browser.host, timeout=30)
    stream.request("GET", "/api/v1/events", headers=browser.headers)
    events, times, seen, since = stream.getresponse(), list[float](), -1, 0.0
    while len(times) <= count:
        line = events.readline()
        if not line.startswith(b"data:"):
            continue
        sequence = json.loads(line[5:])["sequence"]
        browser._get("window?columns=1800&rows=300")
        if sequence > seen:  # else what is expected has changed
            if seen >= 0:
                times.append(time.monotonic() - since)
            time.sleep(0.25)  # the stream pauses after each message
            submit(endpoint, 1, submission(size))
            seen, since = sequence, time.monotonic()
    stream.close()
    return [round(1e3 * float(np.quantile(times, part)), 1) for part in (0.5, 1.0)]


def points_ms(ranks: FirstRanks, endpoint: str, rate: float, seconds: float) -> list[float]:
    """Measure resize points while jobs are submitted; return p50 and p99 in ms."""
    ends = threading.Event()

    def change() -> None:
        while not ends.wait(1 / CHANGES):
            submit(endpoint, 1, submission(SIZE * len(ranks.jobs)))

    thread = threading.Thread(target=change)
    thread.start()
    latencies, _ = ranks.steadily(rate, seconds)
    ends.set()
    thread.join()
    return (1e3 * np.quantile(latencies, (0.5, 0.99))).round(2).tolist()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds."""
    spawn = multiprocessing.get_context("spawn")
    rounds: list[dict[str, Any]] = []
    with service(SIZE * options.jobs, options.scenario) as (place, agent, _):
        submit(place.endpoint, options.jobs, submission(SIZE, MOST))
        while len(agent.tokens) < options.jobs:
            time.sleep(0.1)
        ranks = FirstRanks(place.endpoint, agent.tokens)
        with web_server(place.path) as server:
            server.enter()
            points_ms(ranks, place.endpoint, options.rate, 1.0)  # every job connects
            update = updates_ms(
                Browser(server.host, server.cookie), place.endpoint, SIZE * options.jobs
            )
            for _ in range(options.rounds):
                alone = points_ms(ranks, place.endpoint, options.rate, options.seconds)
                opened, ends, results = spawn.Event(), spawn.Event(), spawn.Queue()
                given = (server.host, server.cookie, options.browsers, opened, ends, results)
                process = spawn.Process(target=watch, args=given)
                process.start()
                opened.wait()
                watched = points_ms(ranks, place.endpoint, options.rate, options.seconds)
                ends.set()
                windows, loaded = results.get(timeout=30)
                process.join()
                rounds.append(
                    {"alone_p50_ms": alone[0], "alone_p99_ms": alone[1]}
                    | {"watched_p50_ms": watched[0], "watched_p99_ms": watched[1]}
                    | {"windows": windows, "loaded_mb": round(loaded / 1e6, 1)}
                )
        ranks.peers.close()
    ratio = np.median([each["watched_p99_ms"] / each["alone_p99_ms"] for each in rounds])
    return {"ratio": round(float(ratio), 2), "update_ms": update, "rounds": rounds}


def main() -> None:
    """Print a row for each round, and the median of the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--browsers", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=200, help="running jobs (200)")
    parser.add_argument("--rate", type=float, default=500, help="resize points a second (500)")
    parser.add_argument("--seconds", type=float, default=5, help="length of a round (5)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scenario", default="fcfs-pr")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for row in result["rounds"]:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    median, longest = result["update_ms"]
    print(f"update {median} ms, at most {longest} ms, target 100 ms")
    print(f"ratio of p99 {result['ratio']}, target at most 2")


if __name__ == "__main__":
    main()
