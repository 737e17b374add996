"""Pages are complete and right: links, options, variables, blocks, and texts of public names."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import click
import msgspec
import pytest
from core_script import replay
from paths import ROOT
from registrations import temporary_registrations

from reshape.__main__ import main
from reshape.errors import ReshapeError
from scheduler import Client, JobHandle, compiled
from scheduler.client.sites import sites_file
from scheduler.config import machine_file
from scheduler.config.machine_file import MachineFields, NetworkFields
from scheduler.config.partitions import PartitionConfig
from scheduler.config.settings import (
    Deadlines,
    JournalConfig,
    NodeConfig,
    PassConfig,
    QueueConfig,
    ServeConfig,
)
from scheduler.config.sources import load_config
from scheduler.policies.queue_orders import basic
from scheduler.policies.registry import register
from scheduler.text.located import Located
from simulator.many_centres import rules as centres_file
from simulator.workload_models import advance_reservations, workload_file

DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "benchmarks").rglob("*.md"), *DOCS.rglob("*.md")]
PAGES = [page for page in sorted(PAGES) if "_build" not in page.parts]
#: Pages that say when to use what; the reference of the commands lists everything.
GUIDES = [
    page for page in PAGES if page.name != "CHANGELOG.md" and not page.name.startswith("commands-")
]
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    \S.*\n(?:^ *\n)*)+", re.MULTILINE)


def of_page(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(text: str) -> str:
    """Text of a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


# ---------------------------------------------------------------- links


@cache
def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub and the site make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,4} (.+)$", prose(page.read_text()), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(slug if slug not in found else f"{slug}-1")
    return found


@pytest.mark.parametrize("page", PAGES, ids=of_page)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_every_page_is_in_the_contents_of_the_site() -> None:
    listed = set(re.findall(r"^([\w/-]+)$", (DOCS / "index.md").read_text(), re.MULTILINE))
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES if DOCS in page.parents}
    assert pages - {"index"} == listed


# ---------------------------------------------------------------- commands


def commands(group: click.Group, name: str = "reshape") -> Iterator[tuple[str, click.Command]]:
    for word, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


COMMANDS = dict(commands(main.loaded()))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_on_a_page_that_says_when_to_use_it(name: str) -> None:
    text = "\n".join(page.read_text() for page in GUIDES)
    options = (each for each in COMMANDS[name].params if isinstance(each, click.Option))
    missing = [
        max(option.opts, key=len)
        for option in options
        if not option.hidden
        and not re.search(rf"{re.escape(max(option.opts, key=len))}(?![\w-])", text)
    ]
    assert missing == []


def test_every_command_is_in_the_reference() -> None:
    pages = "\n".join(page.read_text() for page in (DOCS / "reference").glob("commands-*.md"))
    shown = re.findall(r"^   :prog: reshape (\S+)$", pages, re.MULTILINE)
    assert sorted(shown) == sorted(main.list_commands(click.Context(main)))


def shell_lines(text: str) -> Iterator[str]:
    """Lines of the shell in the blocks of a page that begin with a command of ours."""
    blocks = [block for kind, block in FENCED.findall(text) if kind == "bash"]
    blocks += [textwrap.dedent(block) for block in INDENTED.findall(prose(text))]
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|\||[|;&>]", re.sub(r"\s#\s.*|\s{3,}\S.*", "", line)):
                found = re.match(r"\s*reshape (?!: )(.*)", part)
                if found and not re.search(r"['\"$`<(]|\.\.\.|\[", part):
                    yield found[1]


def test_most_lines_of_commands_are_read() -> None:
    assert sum(len([*shell_lines(page.read_text())]) for page in GUIDES) > 150


@pytest.mark.parametrize("page", GUIDES, ids=of_page)
def test_the_lines_of_commands_have_options_that_exist(page: Path) -> None:
    for line in shell_lines(page.read_text()):
        words = shlex.split(line)
        command: click.Command = main.loaded()
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        if isinstance(command, click.Group):
            continue
        try:
            command.make_parser(click.Context(command)).parse_args(words)
        except click.UsageError as error:
            pytest.fail(f"{line}: {error.message}")


# ---------------------------------------------------------------- variables and files


def test_every_environment_variable_is_in_the_reference() -> None:
    page = (DOCS / "reference" / "environment.md").read_text()
    used: set[str] = set()
    for package in ("redistribution", "reshape", "scheduler", "simulator", "apps"):
        for module in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(module.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    used |= set(re.findall(r"^RESHAPE_[A-Z_]*[A-Z]$", node.value))
    assert len(used) > 40
    assert set(re.findall(r"`(RESHAPE_[A-Z_]+)`", page)) == used - {"RESHAPE_ARRAY"}


@pytest.mark.parametrize(
    "structure",
    [
        ServeConfig,
        NodeConfig,
        QueueConfig,
        PartitionConfig,
        Deadlines,
        JournalConfig,
        PassConfig,
        MachineFields,
        NetworkFields,
    ],
)
def test_every_field_is_on_a_page_that_says_when_to_set_it(structure: type) -> None:
    guides = (page for page in GUIDES if page.parent.name != "reference")
    text = "\n".join(page.read_text() for page in guides)
    names = (field.encode_name for field in msgspec.structs.fields(structure))
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


#: What reads the files that pages show.
READERS: tuple[Callable[[Path], object], ...] = (
    lambda file: load_config(file, {}),
    machine_file.read,
    lambda file: centres_file.described_centres(Located.read(file)),
    workload_file.read,
    lambda file: advance_reservations.described(Located.read(file)),
    sites_file.read_sites,
)


def yaml_blocks() -> Iterator[tuple[str, list[str]]]:
    """Each block of YAML with what may complete it: the first block of its page, or a node."""
    for page in PAGES:
        blocks = [block for kind, block in FENCED.findall(page.read_text()) if kind == "yaml"]
        if "studies" not in page.parts:  # the test of that page runs its blocks
            for number, block in enumerate(blocks):
                yield (
                    f"{of_page(page)}:{number}",
                    [block, blocks[0] + block, block + "processors: 8\n"],
                )


YAML_BLOCKS = dict(yaml_blocks())


@pytest.mark.parametrize("name", YAML_BLOCKS)
def test_the_files_on_the_pages_are_valid(name: str, tmp_path: Path) -> None:
    errors = []
    for text in YAML_BLOCKS[name]:
        (tmp_path / "file.yaml").write_text(text)
        for reader in READERS:
            try:
                reader(tmp_path / "file.yaml")
            except ReshapeError as error:
                errors.append(str(error))
            else:
                return
    pytest.fail("\n".join(errors))


def test_the_first_change_of_the_guide_gives_the_output_that_it_shows(tmp_path: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    blocks = dict(FENCED.findall(text))
    names = dict(vars(basic))
    exec(blocks["python"], names)
    script = next(block for block in INDENTED.findall(text) if "# The widest" in block)
    (tmp_path / "widest.txt").write_text(textwrap.dedent(script))
    with temporary_registrations():
        register("widest", names["Widest"])
        assert blocks["text"] in replay(tmp_path / "widest.txt")


# ---------------------------------------------------------------- texts of public names

#: Prints the public names without a text. Compiled modules would have signatures of C.
WITHOUT_TEXT = """
import inspect, importlib
MODULES = ("reshape", "redistribution", "scheduler", "simulator", "scheduler.policies.api")
MORE = (
    "reshape.app:Application", "reshape.registrations:Registrations",
    "reshape.data.arrays:Array", "reshape.data.stencils:BlockArray", "reshape.data.sparse:Csr",
    "reshape.data.ragged:Items", "reshape.data.particles:Particles",
    "reshape.data.streams:Streams", "reshape.data.streams:RankStream",
    "reshape.data.job_context:SizeRequest", "reshape.topology:Topology",
    "scheduler.state.view:QueuedJobs", "scheduler.model.events:JobSpec",
    "simulator.engine.jobs:SimJob",
)
def texts(name, thing):
    yield name, inspect.getdoc(thing) if inspect.isroutine(thing) else vars(thing).get("__doc__")
    if inspect.isclass(thing):
        for word, member in ((w, getattr(thing, w)) for w in dir(thing)):
            inner = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if not word.startswith("_") and inspect.isroutine(inner):
                yield f"{name}.{word}", inspect.getdoc(member)
count = 0
for module in MODULES:
    loaded = importlib.import_module(module)
    for word in loaded.__all__:
        thing = getattr(loaded, word)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            for name, text in texts(f"{module}.{word}", thing):
                count += 1
                if not text or not text.strip():
                    print(name)
for path in MORE:
    module, _, word = path.partition(":")
    for name, text in texts(path, getattr(importlib.import_module(module), word)):
        count += 1
        if not text or not text.strip():
            print(name)
assert count > 250, count
"""


@pytest.mark.parametrize("client", [Client, JobHandle])
def test_the_page_of_the_clients_has_all_of_their_methods(client: type) -> None:
    page = (ROOT / "docs/reference/python-scheduler.md").read_text()
    part = page.partition(f".{client.__name__}\n")[2].partition("autoclass")[0]
    public = {name for name in dir(client) if not name.startswith("_")}
    assert set(re.findall(r"auto(?:method|property):: (\w+)", part)) == public


def test_no_public_name_is_without_a_text() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TEXT],
        env={**os.environ, "RESHAPE_COMPILED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


@pytest.mark.skipif(compiled.STATE != "compiled", reason="the sources run")
def test_help_of_a_compiled_module_has_its_texts() -> None:
    from scheduler.state import view

    assert "resizing policy sees" in (view.__doc__ or "")
    assert "Scheduler state at one instant" in (inspect.getdoc(view.View) or "")
    assert "Free processors that a job may hold" in (inspect.getdoc(view.View.free_for) or "")
