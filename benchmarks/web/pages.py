"""Sizes and times of pages: a report, and the live page of a million segments in a real Chromium.

Prints a table. The run is made up: 64 jobs at a time on a machine of 1024 processors, ten
segments each. `--segments` sets how many segments the live page has. Beside the wall times are
times of the processor, which other load on the machine does not change.
"""

from __future__ import annotations

import argparse
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import uvicorn

from scheduler.client.web.document import encode, report
from scheduler.client.web.live_run import LiveRun
from scheduler.client.web.run_data import SEGMENT, JobRow, RunData
from scheduler.client.web.server import Doors, Pages

PROCESSORS, LANES = 1024, 64


def made_up(count: int, seed: int = 1) -> RunData:
    """Make a run of so many segments, ten for each job."""
    rng = np.random.default_rng(seed)
    rows = np.zeros(count, SEGMENT)
    length = rng.exponential(600.0, count) + 1.0
    lane = np.arange(count) % LANES
    for each in range(LANES):
        ends = np.cumsum(1.05 * length[lane == each])
        rows["begin"][lane == each] = ends - 1.05 * length[lane == each]
    rows["end"] = rows["begin"] + length
    width = PROCESSORS // LANES
    rows["first"], rows["count"] = lane * width, rng.choice([width // 4, width // 2, width], count)
    rows = np.sort(rows, order="begin")
    rows["job"] = np.arange(count) // 10
    jobs = [
        JobRow(i + 1, "", f"job {i % 50}", f"user {i % 20}", float(rows["begin"][10 * i]) - 60.0,
               float(rows["begin"][10 * i]) - 60.0, 8, 1, 64, 3600.0, "COMPLETED",
               float(rows["begin"][10 * i]), float(rows["end"][10 * i : 10 * i + 10].max()))
        for i in range(-(-count // 10))
    ]  # fmt: skip
    end = float(rows["end"].max())
    return RunData("made up", 1.7e9, rows, end, PROCESSORS, jobs=jobs)


class Fixed(LiveRun):
    """A run that does not go on."""

    def __init__(self, run: RunData) -> None:
        super().__init__(Path("/nonexistent"))
        self._run, self.fault = run, ""

    def start(self) -> None:
        """Follow nothing."""

    def stop(self) -> None:
        """End nothing."""

    def data(self) -> RunData:
        """Return the run; as after a change, nothing that was computed of it is kept."""
        return replace(self._run)


def show(name: str, value: float, unit: str) -> None:
    """Print a line of the table."""
    print(f"{name:<58}{value:>12.3f} {unit}", flush=True)


def files(folder: Path) -> None:
    """Measure reports."""
    for count in (10_000, 100_000):
        run = made_up(count)
        began = time.perf_counter()
        data = report([run], "made up")
        show(f"report of {count} segments: time", time.perf_counter() - began, "s")
        show(f"report of {count} segments: size", len(data) / 1e6, "MB")
        (folder / f"report-{count}.html").write_bytes(data)


def encoding(run: RunData) -> None:
    """Measure the first answer without a server."""
    began, used = time.perf_counter(), time.process_time()
    data = encode([run], most=8000, shape=(256, 1800))
    show(f"window of {len(run.segments)} segments: time", time.perf_counter() - began, "s")
    show("of that on a processor", time.process_time() - used, "s")
    show(f"window of {len(run.segments)} segments: size", len(data) / 1e6, "MB")
    show("the same as columns", len(encode([run])) / 1e6, "MB")


def browser(run: RunData, folder: Path) -> None:
    """Measure the live page, and reports, in Chromium."""
    from playwright.sync_api import sync_playwright

    links: list[str] = []
    app = Doors(Pages(Fixed(run)).app(), [], links.append)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    with sync_playwright() as play:
        chromium = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(300_000)
        page.goto(f"http://127.0.0.1:{port}/?token={links[-1]}")
        page.locator("canvas.gantt").wait_for()
        began = time.perf_counter()
        page.reload()
        page.locator("canvas.gantt").wait_for()
        page.evaluate("new Promise(requestAnimationFrame)")
        show("live page: reload to the first picture", time.perf_counter() - began, "s")
        page.screenshot(path=folder / "live.png")
        began = time.perf_counter()
        page.goto("data:text/html,<canvas></canvas>")
        page.locator("canvas").wait_for(state="attached")
        page.evaluate("new Promise(requestAnimationFrame)")
        show("for comparison: opening an empty page", time.perf_counter() - began, "s")
        for name, count in (("report of 10000 segments", 10_000), ("of 100000", 100_000)):
            began = time.perf_counter()
            page.goto((folder / f"report-{count}.html").as_uri())
            page.locator("canvas.gantt").wait_for()
            page.evaluate("new Promise(requestAnimationFrame)")
            show(f"{name}: opening to the first picture", time.perf_counter() - began, "s")
        drawn = page.evaluate(
            """async () => {
                const button = document.querySelector("[data-key=ArrowLeft]"), times = [];
                for (let i = 0; i < 10; i++) {
                    const began = performance.now();
                    button.click();
                    await new Promise(requestAnimationFrame);
                    await new Promise(requestAnimationFrame);
                    times.push(performance.now() - began);
                }
                return times.sort((a, b) => a - b)[5];
            }"""
        )
        show("report of 100000 segments: a move of the view", drawn, "ms")
        page.screenshot(path=folder / "report.png")
        chromium.close()
    server.should_exit = True
    thread.join()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path("web-out"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    files(options.out)
    run = made_up(options.segments)
    encoding(run)
    if shutil.which("chromium") is None:
        print("there is no chromium: pages were not opened")
    else:
        browser(run, options.out.resolve())


if __name__ == "__main__":
    main()
