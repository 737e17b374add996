"""The sets of the tasks of an array that are no jobs yet, compared with one word for each task."""

from __future__ import annotations

from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.procset import ProcSet
from scheduler.model.requests.tasks_to_come import TasksToCome

COUNT = 12
#: What is done -> who holds a task afterwards.
HOLDS = {"hold": "user", "hold as administrator": "administrator", "release": ""}
ACTIONS = st.tuples(
    st.sampled_from([*HOLDS, "cancel", "come"]), st.sets(st.integers(0, COUNT - 1), min_size=1)
)


@examples(300)
@given(st.lists(ACTIONS, max_size=12))
def test_sets_agree_with_a_word_for_each_task(actions: list[tuple[str, set[int]]]) -> None:
    coming, words = TasksToCome(ProcSet.span(0, COUNT)), ["ready"] * COUNT
    for action, places in actions:
        chosen = ProcSet.of(places)
        if action == "cancel":
            coming = coming.after_cancellation(chosen)
        elif action == "come":
            coming = coming.without(chosen)
        else:
            coming = coming.changed(chosen, HOLDS[action])  # type: ignore[arg-type]
        for place in places:
            if words[place] in ("come", "cancelled"):
                continue
            if action == "cancel":
                words[place] = "cancelled"
            elif action == "come":
                words[place] = "come"
            elif not (action == "hold" and words[place] == "administrator"):
                words[place] = HOLDS[action] or "ready"
        for word, held in (
            ("ready", coming.ready),
            ("user", coming.held),
            ("administrator", coming.held_by_administrator),
            ("cancelled", coming.cancelled),
        ):
            assert list(held) == [place for place in range(COUNT) if words[place] == word]
        left = [word in ("ready", "user", "administrator") for word in words]
        assert list(coming.left) == [place for place in range(COUNT) if left[place]]
        for place in range(COUNT):
            is_held = words[place] in ("user", "administrator")
            assert coming.hold_of(place) == (words[place] if is_held else "")
