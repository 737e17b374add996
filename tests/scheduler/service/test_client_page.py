"""The blocks of docs/client.md run in their order and print what the page shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from page_blocks import check_blocks


def test_the_blocks_print_what_the_page_shows(served: Any, tmp_path: Path) -> None:
    served.start("--processors", "4", "--scenario", "easy")
    check_blocks("client.md", tmp_path, {"RESHAPE_DIR": str(served.directory)})
