"""``reshape serve`` before the service starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import invoke

from reshape.errors import ConfigError
from scheduler.client.commands.serve import check_account
from scheduler.config.settings import NodeConfig, ServeConfig

NODES = (NodeConfig("local", 2),)
ROOT, ANN = 0, 1000


def test_root_listens_only_if_that_is_allowed() -> None:
    open_to_keys = ServeConfig(nodes=NODES, listen="127.0.0.1:7077")
    with pytest.raises(ConfigError, match=r"^listen: a service of root .* gives root to every key"):
        check_account(open_to_keys, ROOT)
    check_account(open_to_keys, ANN)
    check_account(ServeConfig(nodes=NODES, listen="127.0.0.1:7077", allow_root=True), ROOT)
    check_account(ServeConfig(nodes=NODES), ROOT)


@pytest.mark.skipif(os.geteuid() != 0, reason="as another user the service may listen")
def test_a_service_of_root_that_is_to_listen_does_not_start(tmp_path: Path) -> None:
    directory = tmp_path / "service"
    words = ["--dir", directory, "--processors", "1", "--listen", "127.0.0.1:7077"]
    for background in ([], ["--background"]):
        told = invoke("serve", *words, *background, code=1, cwd=tmp_path).stderr
        assert "allow it by --allow-root (allow_root: true in the configuration)" in told
    assert not directory.exists()
