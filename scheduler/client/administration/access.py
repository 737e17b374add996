"""`reshape access`: the keys with which clients may reach a service over TCP."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click

from reshape.cli.options import WholeRange, example
from reshape.errors import ReshapeError
from reshape.wire.access import AccessRole
from scheduler.client.options import (
    WALLTIME,
    directory_option,
    echo_list,
    json_option,
)
from scheduler.node.access_keys import AccessKeys, GrantedKey
from scheduler.node.directory import ServiceDirectory
from scheduler.text.formats import format_moment

_ROLES: dict[str, AccessRole] = {
    "user": "user",
    "admin": "administrator",
    "agent": "agent",
    "job": "job",
}


@click.group()
def access() -> None:
    """Create, list and revoke keys for a service that listens on TCP.

    A service is for one account, or for people who share it: every job, submitted with whatever
    key, runs as the account of the service and can read all of its keys. The role of a key is its
    purpose: it prevents mistakes, and does not protect people from each other.

    The commands change files of the service directory, so only its owner can use them. A running
    service follows at once. See docs/security.md.
    """


@access.command()
@directory_option
@click.option(
    "--user", required=True, help="Name of the user to whom jobs submitted with the key belong."
)
@click.option(
    "--role",
    type=click.Choice(list(_ROLES)),
    default="user",
    show_default=True,
    help="Purpose of the key: submitting (user), operating (admin), agents, processes of jobs.",
)
@click.option(
    "--expires",
    type=WALLTIME,
    help="Time until the key expires, such as 30d.  [default: never]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Access file to write, with mode 0600.",
)
@example("reshape access create --user ann -o ann.json")
def create(directory: Path, user: str, role: str, expires: float | None, output: Path) -> None:
    """Grant a new key and write its access file."""
    if not user.isprintable() or not user.strip():
        raise click.BadParameter(f"must be a printable name, got {user!r}", param_hint="--user")
    expires_at = None if expires is None else time.time() + expires
    key = _keys_of(directory).create(output, _ROLES[role], user, expires_at)
    click.echo(f"key {key.number} of {user} with the role {key.role} is in {output}")


@access.command("list")
@directory_option
@json_option
@example("reshape access list")
def list_keys(directory: Path, as_json: bool) -> None:
    """List the granted keys."""
    columns: dict[str, Callable[[GrantedKey], object]] = {
        "KEY": lambda key: key.number,
        "ROLE": lambda key: key.role,
        "USER": lambda key: key.user,
        "CREATED": lambda key: format_moment(key.created_at),
        "EXPIRES": _expiry,
    }
    keys = _keys_of(directory).granted()
    echo_list(keys, columns, "ROLE USER CREATED EXPIRES", as_json)


@access.command()
@directory_option
@click.option("--user", help="Revoke all keys of this user.")
@click.argument("keys", nargs=-1, type=WholeRange(min=1), metavar="KEY...")
@example("reshape access revoke 4", "reshape access revoke --user ann")
def revoke(directory: Path, user: str | None, keys: tuple[int, ...]) -> None:
    """Revoke keys, by number or by user; a running service refuses them at once."""
    if not keys and user is None:
        raise click.UsageError("give the numbers of keys, or --user")
    store = _keys_of(directory)
    unknown = set(keys) - {key.number for key in store.granted()}
    if unknown:
        raise ReshapeError(f"there is no key {min(unknown)}; list them with 'reshape access list'")
    revoked = store.revoke(lambda key: key.number in keys or key.user == user)
    if not revoked:
        raise ReshapeError(f"user {user} has no key; list them with 'reshape access list'")
    for key in revoked:
        click.echo(f"revoked key {key.number} of {key.user} with the role {key.role}")


def _keys_of(directory: Path) -> AccessKeys:
    if not directory.is_dir():
        raise ReshapeError(
            f"there is no service directory {directory}: name it with --dir, or start the service"
            " with reshape serve --listen HOST:PORT"
        )
    service = ServiceDirectory(directory)
    return AccessKeys(service.path, service.owner)


def _expiry(key: GrantedKey) -> str:
    if key.expires_at is None:
        return "never"
    text = format_moment(key.expires_at)
    return f"{text} (expired)" if key.expires_at <= time.time() else text
