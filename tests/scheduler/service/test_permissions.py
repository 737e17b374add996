"""Which roles may send which messages: every type of message with every role."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from reshape.errors import PermissionDenied
from reshape.wire.access import AccessRole
from scheduler.protocol import messages as m
from scheduler.service.permissions import (
    Sender,
    check_role,
    check_user,
    owner,
)

#: Rows: type of message; columns: whether administrator, user, agent, job may send it.
EXPECTED = """
Hello          .  .  .  job
AtResizePoint  .  .  .  job
JoinPort       .  .  .  job
ResizeReport   .  .  .  job
Facts          .  .  .  job
GroupReady     .  .  .  job
ProgramFault   .  .  .  job
RunStep        .  .  .  job
WaitStep       .  .  .  job
EndStep        .  .  .  job
AgentArrival   .  .  agent  .
AgentHello     .  .  agent  .
Submit         administrator  user  .  .
RequestForecast administrator  user  .  .
ChangeJobs     administrator  user  .  .
ListJobs       administrator  user  .  .
Explain        administrator  user  .  .
Wait           administrator  user  .  .
ServerInfo     administrator  user  agent  .
ListMachine    administrator  user  .  .
ChangeMachine  administrator  .  .  .
Stop           administrator  .  .  .
"""
MAY = {line.split()[0]: set(line.split()[1:]) - {"."} for line in EXPECTED.strip().splitlines()}
TYPES = get_args(m.Message)
ROLES = get_args(AccessRole)


def blank(kind: type) -> m.Message:
    """Make a message of a type with arbitrary values."""
    values = {"int": 1, "str": "x", "float": 1.0, "bool": True}
    fields = {}
    for field in msgspec.structs.fields(kind):
        if field.required:
            name = getattr(field.type, "__name__", "")
            fields[field.name] = values.get(name)
    made: m.Message = kind(**fields)
    return made


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_every_message_with_every_role(kind: type, role: AccessRole) -> None:
    sender = Sender("ann", frozenset((role,)), is_remote=True)
    if role in MAY.get(kind.__name__, ()):
        check_role(sender, blank(kind))
        return
    said = rf"role {role}; this request \({kind.__name__}\) needs the role"
    with pytest.raises(PermissionDenied, match=said):
        check_role(sender, blank(kind))


def test_the_owner_holds_all_roles_but_sends_no_messages_of_the_service() -> None:
    for kind in TYPES:
        if kind.__name__ in MAY:
            check_role(owner("ann"), blank(kind))
        else:
            with pytest.raises(PermissionDenied):
                check_role(owner("ann"), blank(kind))


def test_users_have_their_own_jobs_and_administrators_all() -> None:
    ann = Sender("ann", frozenset(("user",)))
    check_user(ann, 3, "ann")
    check_user(Sender("root", frozenset(("administrator",))), 3, "ann")
    check_user(owner("root"), 3, "ann")
    with pytest.raises(PermissionDenied, match=r"job 3 belongs to user bob.* to user ann"):
        check_user(ann, 3, "bob")
