"""A service whose nodes are hosts made of namespaces (`hosts`), with agents started by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from hosts import HEAD, NETWORK, Hosts

from scheduler import Client
from scheduler.client import background
from scheduler.client.web.document import report
from scheduler.client.web.journal_run import MOST_JOBS, recorded_run
from scheduler.journal.journal_reader import reading
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.client import connect

BIN = Path(sys.executable).parent
PORT = 7077
#: Seconds after which a condition counts as never met; a loaded machine needs a tenth of them.
PATIENCE_S = 120.0


class Cluster:
    """A service and hosts, one node each, until the end of the block.

    Parameters
    ----------
    folder : for the service directory and the output of jobs.
    config : lines of the configuration file, besides nodes and address.
    launcher : that of all nodes.
    options : further options of ``reshape serve``.
    awaits : whether to wait until all nodes are up.
    local_nodes : nodes on the host of the service, as in a configuration file.
    policies : folder of modules with policies that the options name.
    binding : nodes on which ranks are bound. The hosts share the CPUs of this machine, so by
        default there are none.
    """

    def __init__(
        self,
        folder: Path,
        hosts: int = 3,
        processors: int = 4,
        config: str = "",
        options: Sequence[str] = (),
        launcher: str = "none",
        awaits: bool = True,
        policies: Path | None = None,
        local_nodes: str = "",
        binding: str = "none",
    ) -> None:
        self.folder, self.directory = folder, folder / "service"
        self.place = ServiceDirectory(self.directory)
        self.hosts = Hosts(hosts)
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.names = [f"n{i}" for i in range(1, hosts + 1)]
        self._launcher, self._awaits = launcher, awaits
        self.warnings = ""  # of the service, at its last start
        nodes = "\n".join(
            f"  - {{name: {name}, processors: {processors}, launcher: {launcher},"
            f" host: {NETWORK}.{name[1:]}}}"
            for name in self.names
        )
        fixed = f"listen: {HEAD}:{PORT}\nallow_root: true\nbinding: {binding}\n"
        self._config = f"{fixed}nodes:\n{local_nodes}{nodes}\n{config}\n"
        self._options = list(options)
        self._policies = policies

    def __enter__(self) -> Cluster:
        """Start the service and an agent on each host."""
        self._open()
        try:
            (self.folder / "config.yaml").write_text(self._config)
            self.prepare_hosts()
            self.start_service()
            for name in self.names if self._launcher == "none" else ():
                self.start_agent(name)
            if self._awaits:
                self.until_up(*self.names)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the service, the agents and the hosts."""
        if error is not None:
            self._print_logs()
        self._end()

    def _open(self) -> None:
        """Make the hosts."""
        self.hosts.__enter__()

    def _close(self) -> None:
        """Remove the hosts."""
        self.hosts.__exit__(None, None, None)

    def prepare_hosts(self) -> None:
        """Do what is to be done on the hosts before the service starts."""

    def start_service(self) -> None:
        """Start the service, or start it again."""
        serve = ["serve", "--dir", str(self.directory), "--background", *self._options]
        serve += ["--config", str(self.folder / "config.yaml")]
        command = self.hosts.on_head(sys.executable, "-m", "reshape", *serve)
        path = [str(self._policies or ""), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env=self.environment() | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        self.warnings = done.stderr

    def environment(self) -> dict[str, str]:
        """Environment of the service."""
        return dict(os.environ)

    def kill_service(self) -> None:
        """Kill the service."""
        answer = self.ask(m.ServerInfo())
        assert isinstance(answer, m.Info)
        os.kill(answer.pid, 9)

    def start_agent(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        """Start the agent of a node on its host."""
        access = self.directory / "access" / "agent.json"
        agent = ["agent", "--connect", str(access), "--node", name, *options]
        with (self.folder / f"agent-{name}.log").open("ab") as log:
            process = self.hosts[name].start(
                sys.executable, "-m", "reshape", *agent, stdout=log, stderr=log
            )
        self.agents[name] = process
        return process

    def kill_agent(self, name: str) -> None:
        """Kill the agent of a node."""
        self.hosts[name].start("pkill", "-9", "-f", "reshape agent").wait(10)
        self.agents[name].wait(10)

    def ask(self, message: m.Message, timeout: float = PATIENCE_S) -> m.Message:
        """Send a request to the service."""
        with connect(self.directory) as client:
            return client.request(message, timeout)

    def nodes(self) -> dict[str, str]:
        """State of each node."""
        answer = self.ask(m.ServerInfo())
        assert isinstance(answer, m.Info)
        return {name: state for name, _, state in answer.nodes}

    def until_up(self, *names: str) -> None:
        """Wait until nodes are up."""
        self.until(lambda: all(self.nodes()[name] == "up" for name in names))

    def until(self, condition: Callable[[], bool], timeout: float = PATIENCE_S) -> None:
        """Wait until a condition holds, else raise TimeoutError."""
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"a condition does not hold after {timeout:g} s")
            time.sleep(0.05)

    def submit(self, argv: Sequence[str], processors: int = 1, **more: object) -> int:
        """Submit a job."""
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        environment["UCX_HANDLE_ERRORS"] = "bt"  # a rank that crashes in the MPI library says where
        fields: dict[str, object] = {"cwd": str(self.folder), "environment": environment, **more}
        submission = m.Submission(
            argv=list(argv),
            processors=processors,
            **{"walltime_s": 600.0, **fields},  # type: ignore[arg-type]
        )
        answer = self.ask(m.Submit(submission=submission))
        assert isinstance(answer, m.Submitted)
        return answer.job

    def job(self, number: int) -> m.JobInfo:
        """Return a job."""
        answer = self.ask(m.ListJobs(job=number))
        assert isinstance(answer, m.JobListing)
        return answer.jobs[0]

    def write_report(self, path: Path, title: str) -> None:
        """Write a page that shows the jobs of the service so far, and what was decided."""
        with reading(self.directory) as journal:
            run = recorded_run(journal, title, stories=MOST_JOBS)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(report([run], title))

    def wait(self, number: int, timeout: float = PATIENCE_S) -> m.JobInfo:
        """Wait for the end of a job."""
        with Client(self.directory) as client:
            try:
                return client.job(number).wait(timeout)
            except TimeoutError:
                raise TimeoutError(f"{self.job(number)}\n{self.output(number)}") from None

    def output(self, number: int) -> str:
        """Return what a job has printed."""
        path = self.folder / f"reshape-{number}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def _end(self) -> None:
        try:
            if (self.directory / "server.json").exists():
                background.stop(self.directory, kill=True)
        finally:
            for agent in self.agents.values():
                try:
                    agent.wait(10)
                except subprocess.TimeoutExpired:
                    agent.kill()
                    agent.wait()
            self._close()

    def _print_logs(self) -> None:
        for log in [*self.folder.glob("*.log"), *self.directory.glob("*.log")]:
            print(f"--- {log}\n{log.read_text()[-4000:]}")
        for output in self.folder.glob("*.out"):
            print(f"--- {output}\n{output.read_text()[-2000:]}")
