"""Log lines about who changes the machine, and jobs, from where."""

from __future__ import annotations

import logging

from scheduler.protocol import messages as m
from scheduler.service.permissions import Sender
from scheduler.text.plain import plain

log = logging.getLogger(__name__)


def note(message: m.Message, sender: Sender, answer: m.Message | None) -> None:
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
        case m.Withdraw(job=job):
            return f"job {job} is withdrawn"
        case m.Stop(kill=kill):
            return f"the service is stopped{', with its jobs' * kill}"
    return ""
