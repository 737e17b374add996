"""A closed terminal, a damaged server.json, and an agent that is started in the background."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import psutil
from command_line import invoke, reshape
from ports import free_port
from waiting import LIMIT_S, wait_until

from scheduler.client import background
from scheduler.protocol import messages as m

PROGRAM = "import signal, sys; sys.exit(signal.getsignal(signal.SIGHUP) != signal.SIG_DFL)"


def test_service_and_agent_survive_a_hangup_and_a_damaged_server_file(served: Any) -> None:
    port = free_port()
    config = served.work / "site.yaml"
    nodes = "nodes: [{name: n1, processors: 1, launcher: none}]"
    config.write_text(f"{nodes}\nlisten: 127.0.0.1:{port}\nallow_root: true\n")
    served.place.create()
    served.place.server_file.write_text('{"endpoint": 3')
    advice = "a service that runs there writes it again within a few seconds; if none runs there"
    assert advice in invoke("info", "--dir", served.directory, code=1).stderr
    served.start("--config", str(config))  # as the message advises

    access = str(served.directory / "access" / "agent.json")
    words = ("agent", "--connect", access, "--node", "n1", "--background", "--log", "agent.log")
    done = reshape(*words, cwd=served.work)
    log = served.work / "agent.log"
    said = re.fullmatch(
        rf"agent of n1 serves tcp://127.0.0.1:{port}, process (\d+); its log is {log}\n",
        done.stdout,
    )
    assert said is not None, done.stdout
    agent = psutil.Process(int(said[1]))
    wait_until(lambda: "agent of n1 pid=" in log.read_text())
    for number in (served.process.pid, agent.pid):
        os.kill(number, signal.SIGHUP)

    info = served.ask(m.ServerInfo())
    assert info.pid == served.process.pid
    assert served.wait(served.submit(["python", "-c", PROGRAM])).state == "COMPLETED"
    assert agent.is_running()

    written = served.place.server_file.read_bytes()
    served.place.server_file.write_bytes(b"")
    wait_until(lambda: served.place.server_file.read_bytes() == written)
    background.stop(served.directory, kill=True)  # its answer may be lost as the service ends
    agent.wait(LIMIT_S)
    served.process.wait(LIMIT_S)
