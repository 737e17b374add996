"""Ends of groups that an agent keeps."""

from __future__ import annotations

from scheduler.node.processes import EndedGroups, GroupProcesses, ProcessTree


def group_of(number: int, **fields: object) -> GroupProcesses:
    return GroupProcesses(number, 1, ProcessTree({}), **{"token": "token", **fields})  # type: ignore[arg-type]


def test_the_latest_ends_are_kept() -> None:
    ended = EndedGroups(most=2)
    for number in (1, 2, 3):
        ended.add(group_of(number, gone=True, exit_code=number, signal=9, why="why"))
    assert ended.find(1, 1, "token") is None
    found = ended.find(3, 1, "token")
    assert found is not None
    assert (found.gone, found.exit_code, found.signal, found.why) == (True, 3, 9, "why")
    assert ended.find(3, 1, "other") is None


def test_groups_that_run_and_those_without_a_token_are_not_kept() -> None:
    ended = EndedGroups()
    ended.add(group_of(1))
    ended.add(group_of(2, gone=True, token=""))
    assert ended.find(1, 1, "token") is None
    assert ended.find(2, 1, "") is None
