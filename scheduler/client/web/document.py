"""The bytes that pages draw: a header and columns, one form for servers and single files.

A document begins with the length of its header (4 bytes, little-endian). The header is JSON:
``format``, and ``runs``, each with names, marks, and for each column its type, offset and length.
Columns follow, little-endian, each at a multiple of 4 bytes from the end of the header. Times in
columns are whole ticks of ``tick_s`` seconds from the origin of the run on; -1 stands for none.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from math import inf
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from scheduler.client.web.run_data import Kind, RunData, SegmentRows, between

FORMAT = 1
#: What `report` writes.
FORMATS = ("html", "perfetto", "document")
#: Colours of jobs; `static/colours.js` has as many.
COLOURS = 12
#: Steps of the coverage of a pixel in an image; a pixel is colour + COLOURS * coverage.
LEVELS = 16
_LARGEST = 2**31 - 1
#: Modules of the page, each after those that it imports.
MODULES = ("document", "colours", "gantt", "curves", "story", "tables", "live", "page")
_TYPES = {"i4": "<i4", "u2": "<u2", "u1": "|u1"}


class TimeWindow(NamedTuple):
    """The part of a run that a document has.

    Parameters
    ----------
    begin, end : seconds from the origin on.
    most : with more segments than this, an image stands for them.
    shape : rows and columns of that image.
    """

    begin: float = -inf
    end: float = inf
    most: int = _LARGEST
    shape: tuple[int, int] = (0, 0)


_ALL = TimeWindow()


class _Columns:
    """Columns of a document, one after the other."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, values: Any, kind: str) -> tuple[str, int, int]:
        """Add a column; return its type, offset and length."""
        data = np.ascontiguousarray(values, dtype=_TYPES[kind]).tobytes()
        place = kind, self.size, len(values)
        padded = data + bytes(-len(data) % 4)
        self.parts.append(padded)
        self.size += len(padded)
        return place


def encode(runs: Sequence[RunData], window: TimeWindow = _ALL, **more: Any) -> bytes:
    """Encode runs as a document.

    Parameters
    ----------
    window : which part of them.
    more : further fields of the header.
    """
    columns = _Columns()
    described = [_run(run, window, columns) for run in runs]
    header = msgspec.json.encode({"format": FORMAT, "runs": described, **more})
    header += b" " * (-len(header) % 4)
    return b"".join([len(header).to_bytes(4, "little"), header, *columns.parts])


def _run(run: RunData, window: TimeWindow, columns: _Columns) -> dict[str, Any]:
    segments = between(run.segments, window.begin, window.end)
    begin, end = max(window.begin, 0.0), min(window.end, max(run.end, 1.0))
    tick_s = _tick_s(max(run.end, end))
    described: dict[str, Any] = {
        "name": run.name,
        "origin": run.origin,
        "now": run.now,
        "end": run.end,
        "from": begin,
        "to": end,
        "tick_s": tick_s,
        "processors": run.processors,
        "hosts": [(name, held.intervals) for name, held in run.hosts.items()],
        "marks": [
            (mark.kind, mark.held.intervals, mark.begin, min(mark.end, 1e18), mark.text)
            for mark in run.blocked
            if mark.begin < window.end and mark.end > window.begin
        ],
        "notes": list(run.notes),
        "count": len(segments),
        "totals": run.totals,
        "stories": run.stories,
        "utilization": run.utilization,
    }
    if len(segments) > window.most:
        colours = np.asarray(run.numbers, np.int64) % COLOURS
        image = picture(segments, colours, begin, end, run.processors, window.shape)
        described["image"] = (*image.shape, columns.add(image.ravel(), "u1"))
        longest = np.argsort(segments["begin"] - segments["end"])[: window.most // 4]
        segments = segments[longest]
    is_part = window.most < _LARGEST
    rows = np.unique(segments["job"]) if is_part else np.arange(len(run.jobs))
    described["jobs"] = _jobs(run, rows, tick_s, columns)
    segments = segments[np.argsort(segments["begin"], kind="stable")]  # steps are above their jobs
    described["segments"] = {
        "job": columns.add(np.searchsorted(rows, segments["job"]), "i4"),
        "first": columns.add(segments["first"], "i4"),
        "count": columns.add(segments["count"], "i4"),
        "begin": columns.add(_ticks(segments["begin"], tick_s), "i4"),
        "end": columns.add(_ticks(segments["end"], tick_s), "i4"),
        "kind": columns.add(segments["kind"], "u1"),
    }
    described["curves"] = {
        name: {
            "times": columns.add(_ticks(times, tick_s), "i4"),
            "values": columns.add(np.round(100 * values), "i4"),
        }
        for name, (times, values) in run.curves(begin, max(begin, min(end, run.now))).items()
    }
    return described


def _tick_s(end: float) -> float:
    """Return the smallest tick of 1, 2, 5, 10, ... ms with which times fit into 31 bits, s."""
    tick_s = 0.001
    for factor in (2, 2.5, 2) * 12:
        if end / tick_s < _LARGEST - 1:
            break
        tick_s *= factor
    return tick_s


def _ticks(seconds: NDArray[np.float64], tick_s: float) -> NDArray[np.float64]:
    ticks: NDArray[np.float64] = np.clip(np.round(seconds / tick_s), -_LARGEST, _LARGEST)
    return ticks


def _jobs(
    run: RunData, rows: NDArray[np.int64], tick_s: float, columns: _Columns
) -> dict[str, Any]:
    jobs = [run.jobs[row] for row in rows.tolist()]
    users: dict[str, int] = {}
    names: dict[str, int] = {}
    states: dict[str, int] = {}

    def times(values: Sequence[float | None]) -> tuple[str, int, int]:
        seconds = np.array([-tick_s if at is None else at for at in values], np.float64)
        return columns.add(_ticks(seconds, tick_s), "i4")

    described: dict[str, Any] = {
        "number": columns.add([run.numbers[row] for row in rows.tolist()], "i4"),
        "name": columns.add([names.setdefault(job.name, len(names)) for job in jobs], "i4"),
        "user": columns.add([users.setdefault(job.user, len(users)) for job in jobs], "i4"),
        "state": columns.add([states.setdefault(job.state, len(states)) for job in jobs], "u1"),
        "requested": columns.add([job.requested for job in jobs], "i4"),
        "least": columns.add([job.least for job in jobs], "i4"),
        "most": columns.add([job.most for job in jobs], "i4"),
        "submitted": times([job.submitted for job in jobs]),
        "started": times([job.started for job in jobs]),
        "ended": times([job.ended for job in jobs]),
        "expected": times([job.expected for job in jobs]),
    }
    labels = {
        place: job.label
        for place, (row, job) in enumerate(zip(rows.tolist(), jobs, strict=True))
        if job.label != str(run.numbers[row])
    }
    return described | {
        "names": list(names),
        "users": list(users),
        "states": list(states),
        "labels": labels,
        "reasons": {place: job.reason for place, job in enumerate(jobs) if job.reason},
    }


def picture(
    segments: SegmentRows,
    colours: NDArray[np.int64],
    begin: float,
    end: float,
    processors: int,
    shape: tuple[int, int],
) -> NDArray[np.uint8]:
    """Draw segments as an image: the colour of each pixel, and how much of it jobs cover.

    Each segment adds a few numbers around its corners, and sums along both axes turn them into
    areas. A pixel has the colour of the last job that begins in it, or of the one that runs on.
    Rows are groups of processors.

    Parameters
    ----------
    colours : of each job, by its row.
    begin, end : of the image, s.

    Returns
    -------
    (rows, columns) uint8, row 0 has the lowest processors; 0 where nothing runs, else colour +
    COLOURS * coverage with a coverage from 1 to LEVELS.
    """
    rows, width = min(shape[0], processors), shape[1]
    scale = width / (end - begin)
    left = np.clip((segments["begin"] - begin) * scale, 0, width)
    right = np.clip((segments["end"] - begin) * scale, 0, width)
    top = segments["first"] * (rows / processors)
    bottom = (segments["first"] + segments["count"]) * (rows / processors)
    across = width + 2
    corners = np.zeros((rows + 2) * across)
    for y, down in ((top, 1.0), (bottom, -1.0)):
        for row, part in _split(y):
            for x, to_right in ((left, 1.0), (right, -1.0)):
                for column, share in _split(x):
                    weights = down * to_right * part * share
                    corners += np.bincount(row * across + column, weights, len(corners))
    areas = np.cumsum(np.cumsum(corners.reshape(-1, across), axis=0), axis=1)[:rows, :width]
    low = top.astype(np.int32)
    heights = np.maximum(np.ceil(bottom).astype(np.int32) - low, 1)
    of = np.repeat(np.arange(len(segments), dtype=np.int32), heights)
    below = np.arange(len(of), dtype=np.int32) - np.repeat(
        (np.cumsum(heights) - heights).astype(np.int32), heights
    )
    first = low * width + np.minimum(left.astype(np.int32), width - 1)
    last = np.zeros(rows * width, np.int32)
    last[first[of] + below * width] = of + 1  # of several the last one stays
    marked = np.where(last > 0, np.arange(len(last)), 0).reshape(rows, width)
    owner = last[np.maximum.accumulate(marked, axis=1)]
    painted = np.append(0, colours[segments["job"]])[owner]
    level = np.clip(np.ceil(areas * LEVELS - 1e-6), 0, LEVELS).astype(np.int64)
    return np.where(level > 0, painted + COLOURS * level, 0).astype(np.uint8)


def _split(
    values: NDArray[np.float64],
) -> tuple[tuple[NDArray[np.int64], NDArray[np.float64]], ...]:
    """Divide a step at each place among the two next whole numbers."""
    whole = values.astype(np.int64)
    part = values - whole
    return (whole, 1 - part), (whole + 1, part)


def static(name: str) -> str:
    """Return the text of a file of the page."""
    return (resources.files("scheduler.client.web") / "static" / name).read_text(encoding="utf-8")


def script() -> str:
    """Return the modules of the page as one script, which has no imports and no exports."""
    parts = [
        re.sub(r"^export (?=(async )?function|class|const|let)", "", text, flags=re.MULTILINE)
        for name in MODULES
        for text in [re.sub(r"^import [^;]*;\n", "", static(f"{name}.js"), flags=re.MULTILINE)]
    ]
    return "\n".join(parts)


def page(title: str, document: bytes) -> str:
    """Return a page with its data, which needs no server and no network."""
    code, style = f'"use strict";\n{script()}', static("page.css")
    data = base64.b64encode(zlib.compress(document, 9)).decode()
    policy = (
        "default-src 'none';"
        f" script-src 'sha256-{_digest(code)}'; style-src 'sha256-{_digest(style)}'"
    )
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style>"
    )
    body = re.sub(r"(?s)^.*<body>|</body>.*$", "", static("index.html"))
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}'
        f'<script type="application/octet-stream" id="data">{data}</script>\n'
        f'<script type="module">{code}</script></body></html>\n'
    )


class ReportPage(msgspec.Struct, frozen=True):
    """A page with its data, which notebooks show.

    Parameters
    ----------
    html : the page.
    """

    html: str

    def _repr_html_(self) -> str:
        """Return the page in a frame, which can run its script and reach nothing else."""
        frame = 'width="100%" height="640" style="border:0" sandbox="allow-scripts"'
        return f'<iframe {frame} srcdoc="{escape(self.html)}"></iframe>'


def report(
    runs: Sequence[RunData],
    title: str,
    form: str = "html",
    tables: Sequence[Mapping[str, Any]] = (),
) -> bytes:
    """Return the file of a report.

    Parameters
    ----------
    form : one of `FORMATS`.
    tables : further tables of a page, each with ``title``, ``heads`` and ``rows`` of texts.

    Raises
    ------
    ReshapeError : there is nothing to show.
    """
    if form == "perfetto":
        if not runs:
            raise ReshapeError("a trace shows runs, and these sources have none")
        return perfetto(runs)
    document = encode(runs, title=title, tables=tables)
    return document if form == "document" else page(title, document).encode()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def perfetto(runs: Sequence[RunData]) -> bytes:
    """Encode runs as a trace for ui.perfetto.dev: a track for each processor.

    It is Chrome's trace format, with complete events; times are in microseconds.
    """
    events: list[Mapping[str, Any]] = []
    for place, run in enumerate(runs, 1):
        events.append(_meta("process_name", place, 0, run.name))
        segments = run.segments
        hosts = {number: f"{name} " for name, held in run.hosts.items() for number in held}
        used = range(run.processors)
        events += [
            _meta("thread_name", place, 1 + number, f"{hosts.get(number, '')}processor {number}")
            for number in used
        ]
        columns = (
            segments["job"],
            segments["first"],
            segments["count"],
            segments["begin"],
            segments["end"],
        )
        for row, first, count, begin, end, kind in zip(
            *(column.tolist() for column in columns), segments["kind"].tolist(), strict=True
        ):
            job = run.jobs[row]
            args = {"job": job.label, "name": job.name, "user": job.user, "kind": Kind(kind).name}
            event = {
                "name": f"{job.label} {job.name}".strip(),
                "cat": Kind(kind).name.lower(),
                "ph": "X",
                "ts": round(1e6 * begin),
                "dur": round(1e6 * (end - begin)),
                "pid": place,
                "args": args,
            }
            events += [event | {"tid": 1 + number} for number in range(first, first + count)]
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def _meta(name: str, process: int, thread: int, text: str) -> dict[str, Any]:
    """Name of a process or a thread."""
    return {"name": name, "ph": "M", "pid": process, "tid": thread, "args": {"name": text}}
