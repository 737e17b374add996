"""Which connections without a proven key are admitted, verified, and have to go."""

from __future__ import annotations

import socket

import pytest

from scheduler.service.gate_connections import Limits, Peer, Turns, Unproven

#: The end of each connection here; nothing is sent.
END = socket.socket()
END.close()


def from_host(host: str, since: float = 0.0) -> Peer:
    return Peer(END, host, 0, since)


def unproven(
    most: int = 100, admitted: int = 10, lanes: int = 2, rate: float = 10.0, burst: int = 5
) -> Unproven:
    return Unproven(Limits(1000, most, admitted), lanes, rate, burst, patience_s=5.0)


def admit(group: Unproven, now: float) -> list[Peer]:
    """Admit those that can be; none has to go for them."""
    admitted = []
    while (step := group.admit(now))[0] is not None:
        assert step[1] is None
        admitted.append(step[0])
    return admitted


def begun(group: Unproven, host: str) -> Peer:
    peer = from_host(host)
    assert group.add(peer) is None
    group.begin(peer)
    return peer


@pytest.mark.parametrize("files", [256, 1024, 4096, 16384, 1 << 20])
def test_the_limits_leave_files(files: int) -> None:
    limits = Limits.for_files(files)
    assert 0 < limits.admitted <= limits.unproven
    assert 0 < limits.served <= 4096
    assert 2 * limits.served + limits.unproven + limits.admitted < files
    assert limits.served + limits.admitted <= files // 2


def test_hosts_take_turns() -> None:
    turns = Turns()
    peers = [from_host(host) for host in "aaabac"]
    for peer in peers:
        turns.add(peer)
    turns.discard(peers[1])
    chosen = []
    while (peer := turns.next()) is not None:
        chosen.append(peer)
    assert [peers.index(peer) for peer in chosen] == [0, 3, 5, 2, 4]


def test_silent_connections_go_before_others() -> None:
    group = unproven(most=3)
    talks = begun(group, "a")
    silent = [from_host("b") for _ in range(5)]
    assert [group.add(peer) for peer in silent[:2]] == [None, None]
    for number in (2, 3, 4):
        excess = group.add(silent[number])
        assert excess is silent[number - 2]
        group.remove(excess)
    assert len(group) == 3
    assert admit(group, 1.0) == [talks]


def test_the_oldest_that_waits_goes_if_none_is_silent() -> None:
    group = unproven(most=2)
    first, _ = begun(group, "a"), begun(group, "b")
    assert group.add(from_host("c")) is first


def test_admissions_are_limited_a_second_unless_they_prove_a_key() -> None:
    group = unproven(rate=8.0, burst=5)
    peers = [begun(group, "a") for _ in range(10)]
    assert admit(group, 100.0) == peers[:5]
    assert admit(group, 100.0) == []
    assert admit(group, 100.125) == [peers[5]]
    for peer in peers[:3]:
        group.complete(peer)
        group.remove(peer, is_proven=True)
    assert admit(group, 100.125) == peers[6:9]


def test_the_oldest_handshake_goes_unless_the_client_has_done_its_part() -> None:
    group = unproven(admitted=2)
    peers = [begun(group, "a") for _ in range(4)]
    assert group.admit(1.0) == (peers[0], None)
    assert group.admit(1.0) == (peers[1], None)
    group.complete(peers[0])
    assert group.admit(1.0) == (peers[2], peers[1])
    group.remove(peers[1])
    group.complete(peers[2])
    assert group.admit(1.0) == (None, None)


def test_one_connection_is_verified_on_each_lane() -> None:
    group = unproven(lanes=2)
    peers = [begun(group, "a") for _ in range(4)]
    assert admit(group, 1.0) == peers
    assert [peer.lane for peer in peers] == [0, 1, 0, 1]
    for peer in peers:
        group.complete(peer)
    assert group.verify() == peers[:2]
    assert group.verify() == []
    group.remove(peers[1], is_proven=True)
    assert group.verify() == [peers[3]]
    group.remove(peers[0])
    assert group.verify() == [peers[2]]
    for peer in peers:
        group.remove(peer)
    assert (len(group), group.verify()) == (0, [])


def test_late_ones_expire_unless_the_client_has_done_its_part() -> None:
    group = unproven()
    verified = begun(group, "a")
    waits, silent = from_host("a", since=1.0), from_host("b", since=2.0)
    assert admit(group, 1.0) == [verified]
    group.complete(verified)
    group.add(waits)
    group.begin(waits)
    group.add(silent)
    assert group.expired(6.5) == [waits]
    assert group.expired(7.5) == [silent, waits]


def test_a_connection_that_was_silent_at_first_expires_in_time() -> None:
    """It waits behind younger ones, which have sent their first bytes earlier."""
    group = unproven()
    old, young = from_host("a", since=1.0), from_host("a", since=5.0)
    group.add(old)
    group.add(young)
    group.begin(young)
    group.begin(old)
    assert group.expired(6.5) == [old]
