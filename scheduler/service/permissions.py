"""Who may send a message (each class declares the roles), and log lines about who changed what.

The identity of a sender comes from its connection, never from a message. The socket of the service
directory can be reached only by the user who owns the directory (mode 0700), so a connection there
holds all roles. Over TCP the key of the connection determines one role and one user.

Roles are the first of two conditions. Messages of agents and jobs need their secret, too: that of
the service directory (or the key of an agent), and the token of the job.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from reshape.errors import PermissionDenied
from reshape.wire.access import AccessRole
from scheduler.journal.replay import one_line
from scheduler.protocol import messages as m
from scheduler.text.plain import plain

log = logging.getLogger(__name__)

#: Jobs of one request that the log names, at most.
LOGGED = 20


@dataclass(frozen=True)
class Sender:
    """The identity of the peer of a connection.

    Attributes
    ----------
    user : name of the user, as the connection proves it.
    roles : roles of the connection.
    origin : where it comes from, for messages: address and key, or the service directory.
    is_remote : whether a key on TCP proves the identity, instead of the service directory.
    """

    user: str
    roles: frozenset[AccessRole]
    origin: str = "the service directory"
    is_remote: bool = False


def owner(user: str) -> Sender:
    """Return the sender of a connection to the socket in the service directory."""
    return Sender(user, frozenset(("administrator", "user", "agent", "job")))


def check_role(sender: Sender, message: m.Message) -> None:
    """Check that a role of the sender may send messages of this type.

    Raises
    ------
    PermissionDenied : no role of the sender may.
    """
    allowed = message.senders
    if not allowed & sender.roles:
        roles = " or ".join(sorted(allowed)) or "no role"
        raise PermissionDenied(
            f"the key of {sender.user} has the role {'/'.join(sorted(sender.roles))};"
            f" this request ({type(message).__name__}) needs the role {roles}"
        )


def check_user(sender: Sender, job: int, user: str) -> None:
    """Check that the sender may change a job of a user, or read its explanation.

    Raises
    ------
    PermissionDenied : the job belongs to another user, and the sender is no administrator.
    """
    if "administrator" not in sender.roles and sender.user != user:
        raise PermissionDenied(
            f"job {job} belongs to user {user}, and this connection to user {sender.user}: ask"
            f" {user} or an administrator"
        )


def log_change(message: m.Message, sender: Sender, answer: m.Message | None) -> None:
    """Log a request that is carried out, if it changes nodes, pools, reservations or jobs."""
    if isinstance(answer, m.Failure):
        return
    match message:
        case m.ChangeJobs(jobs=jobs, change=change):
            named = ",".join(map(str, jobs[:LOGGED])) + ",..." * (len(jobs) > LOGGED)
            what = one_line(change)
            if isinstance(change, m.UpdateJob):  # an empty value removes what was there
                what = f"UpdateJob {' '.join(f'{k}={v!r}' for k, v in change.given.items())}"
            text = f"job={named} {what}"
        case m.ChangeMachine(change=change):
            text = one_line(change)
        case m.EndStep(job=job, step=step):
            text = f"job={job} EndStep step={step}"
        case m.Stop(kill=kill):
            text = f"Stop kill={kill}"
        case _:
            return
    log.info("%s: by %s, from %s", plain(text), sender.user, sender.origin)
