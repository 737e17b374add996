"""The blocks of pages on simulations run in their order and print what the pages show."""

from __future__ import annotations

from pathlib import Path

from page_blocks import check_blocks
from paths import EXAMPLES


def test_the_blocks_print_what_the_page_shows(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    check_blocks("python.md", tmp_path, {"MPLBACKEND": "agg"})
    files = {path.name for path in tmp_path.iterdir()}
    assert files >= {"results", "load.png", "sweep.jsonl", "easy.yaml"}


def test_the_block_on_predictions_prints_what_the_page_shows(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    check_blocks("predictions.md", tmp_path, {})
