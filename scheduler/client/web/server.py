"""The pages over HTTP: who may see them, and the addresses below ``api/v1`` (docs/web.md)."""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from hmac import compare_digest
from math import inf, isfinite, nan, nextafter
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reshape.errors import ReshapeError
from scheduler.client.api.client import Client
from scheduler.client.web.document import encode, script, static
from scheduler.client.web.live_run import LiveRun
from scheduler.client.web.run_data import between
from scheduler.policies.registry import known
from scheduler.protocol import messages as m
from scheduler.text.plain import plain

#: Segments of an answer at most; an image stands for more.
MOST_SEGMENTS = 8000
#: Largest image.
LARGEST = {"rows": 256, "columns": 2400}
#: Jobs of a page of the table.
PAGE = 100
#: Seconds between two messages of a stream at least, and at most.
LEAST_S, MOST_S = 0.1, 15.0
#: Streams that are open at once, at most.
MOST_STREAMS = 200
#: Bytes of the body of a request, at most.
MOST_BODY = 10_000
#: Seconds that a simulation of another scenario may take.
WHAT_IF_S = 120.0
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
#: Files of the page.
_TYPES = {"page.js": "text/javascript", "page.css": "text/css", "index.html": "text/html"}
_ACTIONS: dict[str, m.JobChange] = {
    "cancel": m.CancelJob(),
    "hold": m.HoldJob(),
    "release": m.ReleaseJob(),
    "requeue": m.RequeueJob(),
}


class WhatIf(msgspec.Struct):
    """What is to be simulated: the jobs of the last hours under a scenario."""

    scenario: str
    hours: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 6.0


class Doors:
    """Application that lets browsers in: it checks each request and restricts what pages may do.

    A link with a one-time token gives a browser the cookie that all other requests need.

    Parameters
    ----------
    app : the application behind it.
    hosts : names by which browsers may reach the server, besides those of the loopback interface.
    announce : called with each new token.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str], announce: Callable[[str], None]) -> None:
        self._app = app
        self._hosts, self._proxies = {"localhost", "127.0.0.1", "::1", *hosts}, {*hosts}
        self._announce = announce
        self._key = secrets.token_urlsafe(32)
        self._cookie = f"reshape-web-{secrets.token_hex(4)}"
        self.open()

    def open(self) -> None:
        """Announce a token."""
        self._token = secrets.token_urlsafe(32)
        self._announce(self._token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""

        async def restricted(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        is_request = scope["type"] == "http"
        answer = self._refusal(Request(scope)) if is_request else None
        await (answer or self._app)(scope, receive, restricted)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that is not passed on; None: it is."""
        if fault := self._fault(request):
            return refusal(fault)
        cookie, token = request.cookies.get(self._cookie, ""), request.query_params.get("token")
        is_open = compare_digest(cookie.encode(), self._key.encode())
        if request.url.path != "/" or token is None:
            text = "open the link that reshape web has printed; each one is valid once"
            return None if is_open else refusal(text)
        answer = RedirectResponse("./", 303)
        if compare_digest(token.encode(), self._token.encode()):
            self.open()
            answer.set_cookie(self._cookie, self._key, path=None, httponly=True, samesite="lax")
        elif not is_open:
            text = "this link was used or is wrong: reshape web prints a new one after each"
            return refusal(text)
        return answer

    def _fault(self, request: Request) -> str:
        """Say why a request is refused whatever its cookie; "" if it is not."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if _host_of(f"//{host}") not in self._hosts:
            return "this name of the host is not allowed: see --allow-host"
        if origin is None:
            names_none = "a request that changes something names no origin"
            return names_none if request.method == "POST" else ""
        if origin.partition("://")[2] != host and _host_of(origin) not in self._proxies:
            return "the request comes from another site"  # other ports are other sites
        return ""


def _host_of(url: str) -> str:
    """Name of the host of an address; "" if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def refusal(why: str, status: int = 403) -> Response:
    """Refuse a request with a sentence."""
    return Response(f"reshape: {why}\n", status, media_type="text/plain")


class Pages:
    """The answers to requests.

    Parameters
    ----------
    administrator : access file with which jobs may be changed; None: pages only show.
    """

    def __init__(self, run: LiveRun, administrator: Path | None = None) -> None:
        self._run, self._administrator = run, administrator
        self._changed = asyncio.Event()  # a new one after each change
        self._simulation = asyncio.Lock()

    def app(self) -> Starlette:
        """Make the application."""
        routes = [
            Route("/", self._file),
            Route("/static/{name}", self._file),
            Route("/api/v1/state", self._state),
            Route("/api/v1/window", self._window),
            Route("/api/v1/at", self._at),
            Route("/api/v1/jobs", self._jobs),
            Route("/api/v1/jobs/{job:int}", self._job),
            Route("/api/v1/jobs/{job:int}/{action}", self._act, methods=["POST"]),
            Route("/api/v1/events", self._events),
            Route("/api/v1/scenarios", self._scenarios),
            Route("/api/v1/whatif", self._what_if, methods=["POST"]),
        ]
        errors = dict.fromkeys((ReshapeError, msgspec.DecodeError, OverflowError), _failed)
        return Starlette(routes=routes, exception_handlers=errors, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            self._changed.set()
            self._changed = asyncio.Event()

        self._run.on_change = lambda: loop.call_soon_threadsafe(wake)
        self._run.start()
        yield
        await run_in_threadpool(self._run.stop)

    def _file(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in _TYPES:
            return refusal("there is no such file", 404)
        return Response(script() if name == "page.js" else static(name), media_type=_TYPES[name])

    def _state(self, request: Request) -> Response:
        may_change = self._administrator is not None
        return _json({**self._run.state(), "actions": [*_ACTIONS] if may_change else []})

    def _window(self, request: Request) -> Response:
        begin, end = _number(request, "from", -inf), _number(request, "to", inf)
        rows, columns = (
            max(1, min(int(_number(request, name, most)), most)) for name, most in LARGEST.items()
        )
        run, sequence = self._run.data(), self._run.state()["sequence"]
        body = encode([run], begin, end, MOST_SEGMENTS, (rows, columns), sequence=sequence)
        return Response(body, media_type="application/octet-stream")

    def _at(self, request: Request) -> Response:
        """Answer which job had a processor at a time (s); null: none had."""
        moment, processor = _number(request, "time", 0), int(_number(request, "processor", 0))
        run = self._run.data()
        rows = between(run.segments, moment, nextafter(moment, inf))
        rows = rows[(rows["first"] <= processor) & (processor < rows["first"] + rows["count"])]
        return _json({"job": run.jobs[int(rows["job"][-1])].number if len(rows) else None})

    def _jobs(self, request: Request) -> Response:
        """Answer with a page of the jobs that match, the newest first unless they wait."""
        offset = max(0, int(_number(request, "offset", 0)))
        query = request.query_params
        group, text = query.get("group", "all"), query.get("text", "")[:200].lower()
        rows = [
            job
            for job in self._run.data().jobs
            if group in ("all", job.group)
            and any(
                text in field.lower() for field in (job.shown_label, job.name, job.user, job.state)
            )
        ]
        if group != "queued":
            rows.reverse()
        return _json({"total": len(rows), "rows": rows[offset : offset + PAGE]})

    def _job(self, request: Request) -> Response:
        return _json(self._run.job(request.path_params["job"]))

    def _act(self, request: Request) -> Response:
        action, job = request.path_params["action"], request.path_params["job"]
        if self._administrator is None:
            return refusal("pages only show: start reshape web with --administrator")
        if action not in _ACTIONS:
            return refusal(f"there is no action {action!r}: give {', '.join(_ACTIONS)}", 404)
        with Client(access=self._administrator) as client:
            client.ask(m.ChangeJobs.one(job, _ACTIONS[action]), m.Done)
        return _json({})

    async def _events(self, request: Request) -> Response:
        if self._run.viewers >= MOST_STREAMS:
            return refusal("too many pages are open", 503)
        last = request.headers.get("last-event-id", "")
        return StreamingResponse(self._stream(last), media_type="text/event-stream")

    async def _stream(self, last: str) -> AsyncIterator[bytes]:
        """Send a message for each change, the latest state only."""
        self._run.viewers += 1
        try:
            sent = -1
            yield b"retry: 1000\n\n"
            while True:
                changed, state = self._changed, self._run.state()
                if state["version"] != sent and (sent >= 0 or str(state["sequence"]) != last):
                    yield b"id: %d\ndata: %s\n\n" % (state["sequence"], msgspec.json.encode(state))
                    await asyncio.sleep(LEAST_S)
                sent = state["version"]
                try:
                    await asyncio.wait_for(changed.wait(), MOST_S)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._run.viewers -= 1

    def _scenarios(self, request: Request) -> Response:
        return _json({"scenarios": sorted(known("scenario"))})

    async def _what_if(self, request: Request) -> Response:
        length = request.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MOST_BODY:
            raise ReshapeError(f"the body must have a length of at most {MOST_BODY} bytes")
        asked = msgspec.json.decode(await request.body(), type=WhatIf)
        if asked.scenario not in known("scenario"):
            raise ReshapeError(f"there is no scenario {plain(asked.scenario)}")
        if self._simulation.locked():
            return refusal("another simulation runs: try again when it has ended", 503)
        async with self._simulation:  # in a process of its own, which does not slow the pages
            with tempfile.TemporaryDirectory(prefix="reshape-web-") as folder:
                out = Path(folder) / "whatif.bin"
                process = await asyncio.create_subprocess_exec(
                    *("nice", "-n", "10", sys.executable, "-m", "reshape", "report"),
                    *(str(self._run.directory), "--format", "document", "-o", str(out)),
                    *(f"--policy={asked.scenario}", f"--last={round(3600 * asked.hours)}s"),
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                )
                try:
                    _, error = await asyncio.wait_for(process.communicate(), WHAT_IF_S)
                except TimeoutError:
                    return refusal(f"the simulation took more than {WHAT_IF_S:.0f} s", 503)
                finally:
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
                if not out.is_file():
                    text = error.decode(errors="replace").strip().removeprefix("reshape: error: ")
                    return refusal(text or "the simulation failed", 400)
                return Response(out.read_bytes(), media_type="application/octet-stream")


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _number(request: Request, name: str, default: float) -> float:
    """Read a number of the query of a request, which must be finite."""
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise ReshapeError(f"{name} must be a finite number, got {text[:100]!r}")
    return number


async def _failed(request: Request, error: Exception) -> Response:
    return refusal(str(error), 400)
