"""How a rank waits: it keeps on asking as long as that has an effect, then leaves its core."""

import time

from redistribution.messages import waiting
from redistribution.messages.waiting import Patience


def rests(monkeypatch, patience):
    """What a rest does: nothing, yield or sleep."""
    done = []
    with monkeypatch.context() as patched:
        patched.setattr(waiting.os, "sched_yield", lambda: done.append("yield"))
        patched.setattr(waiting.time, "sleep", lambda _: done.append("sleep"))
        patience.rest()
    return done


def test_the_longer_it_waits_the_more_it_leaves_to_others(monkeypatch):
    patience = Patience()
    patience.renew()
    patience.since += 1000
    assert rests(monkeypatch, patience) == []
    patience.since = time.perf_counter() - (waiting._YIELD_AFTER + waiting._SLEEP_AFTER) / 2
    assert rests(monkeypatch, patience) in (["yield"], ["sleep"])  # it may be held up just here
    patience.since = time.perf_counter() - 2 * waiting._SLEEP_AFTER
    assert rests(monkeypatch, patience) == ["sleep"]
    # After a sleep it asks again for a while before the next one.
    assert time.perf_counter() - patience.since < 2 * waiting._SLEEP_AFTER


def test_a_question_that_takes_long_was_work(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(waiting.time, "perf_counter", lambda: clock[0])

    def takes(seconds):
        def test(requests):
            clock[0] += seconds
            return requests

        return test

    patience = Patience()
    for _ in range(100):
        assert patience.poll(takes(1e-6), ["asked"]) == ["asked"]
    assert patience.since < 2e-6, "nothing came, yet it takes itself to be at work"
    patience.poll(takes(1e-5), [])
    assert patience.since == clock[0]
