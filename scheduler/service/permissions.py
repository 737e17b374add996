"""Who may send which message, and log lines about who has changed what.

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
from scheduler.protocol import messages as m
from scheduler.text.plain import plain

log = logging.getLogger(__name__)

_PEOPLE: frozenset[AccessRole] = frozenset(("administrator", "user"))
_JOB: frozenset[AccessRole] = frozenset(("job",))
_AGENT: frozenset[AccessRole] = frozenset(("agent",))
_ADMINISTRATOR: frozenset[AccessRole] = frozenset(("administrator",))

#: Messages about a job that only its user and administrators may send.
OF_OWN_JOB = (
    *(m.Cancel, m.HoldJob, m.RequeueJob, m.SignalJob, m.UpdateJob),
    *(m.Explain, m.ForecastJob),
)
#: Jobs of one request that the log names, at most.
LOGGED = 20
#: Roles, and the messages that each of them may send; a job and its script prove theirs by a token.
_BY_ROLES: tuple[tuple[frozenset[AccessRole], tuple[type, ...]], ...] = (
    (_JOB, (m.Hello, m.AtResizePoint, m.JoinPort, m.ResizeReport, m.Facts, m.GroupReady)),
    (_JOB, (m.ProgramFault, m.RunStep, m.WaitStep, m.EndStep)),
    (_AGENT, (m.AgentHello, m.AgentArrival)),
    (_PEOPLE, OF_OWN_JOB),
    (_PEOPLE, (m.CancelJobs,)),  # of each job it is checked who may
    (_PEOPLE, (m.Submit, m.CheckSubmission, m.RequestQuote, m.ForecastStarts, m.ReadArray)),
    (_PEOPLE, (m.ListJobs, m.Wait, m.ListNodes, m.ListPools, m.ListReservations)),
    (_PEOPLE | _AGENT, (m.ServerInfo,)),
    (_ADMINISTRATOR, (m.ChangeNode, m.RemoveNode, m.AddPool, m.ChangePool, m.Stop)),
    (_ADMINISTRATOR, (m.CreateReservation, m.CancelReservation)),
)
#: The roles that may send each message; messages that are missing here are refused.
MAY_SEND = {message: roles for roles, messages in _BY_ROLES for message in messages}


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
    allowed = MAY_SEND.get(type(message), frozenset())
    if not allowed & sender.roles:
        roles = " or ".join(sorted(allowed)) or "no role"
        raise PermissionDenied(
            f"the key of {sender.user} has the role {'/'.join(sorted(sender.roles))};"
            f" {type(message).__name__} needs the role {roles}"
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
    text = _told(message)
    if text and not isinstance(answer, m.Failure):
        log.info("%s: by %s, from %s", plain(text), sender.user, sender.origin)


def _told(message: m.Message) -> str:
    """Say what a request changes; empty if it is none of these."""
    match message:
        case m.ChangeNode(node=node, drains=True, why=why):
            return f"node {node} drains ({why or 'no reason given'})"
        case m.ChangeNode(node=node):
            return f"node {node} is resumed"
        case m.RemoveNode(node=node):
            return f"node {node} is removed"
        case m.AddPool(name=name):
            return f"pool {name} is added"
        case m.ChangePool(name=name, action=action, why=why):
            return f"pool {name}: {action}{f' ({why})' if why else ''}"
        case m.CreateReservation(name=name):
            return f"reservation {name or 'without a name'} is requested"
        case m.CancelReservation(name=name):
            return f"reservation {name} is cancelled"
        case m.Cancel(job=job):
            return f"job {job} is cancelled"
        case m.CancelJobs(jobs=jobs):
            named = ", ".join(map(str, jobs[:LOGGED])) + ", ..." * (len(jobs) > LOGGED)
            return f"jobs {named} are cancelled"
        case m.EndStep(job=job, step=step):
            return f"step {step} of job {job} is ended"
        case m.HoldJob(job=job, hold=hold):
            return f"job {job} is {'held' if hold else 'released'}"
        case m.RequeueJob(job=job):
            return f"job {job} is requeued"
        case m.UpdateJob(job=job, changes=changes):
            parts = (f"{name} {value}" for name, value in changes.given.items())
            return f"job {job} is updated: {', '.join(parts)}"
        case m.Stop(kill=kill):
            return f"the service is stopped{', with its jobs' * kill}"
    return ""
