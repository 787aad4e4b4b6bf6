"""A processor that is shared by turns: who is done when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from loadtest.twin.agenda import Agenda
from loadtest.twin.processor import Processor

WORK_S = 0.004


def _done_at_s(came_s: Sequence[float]) -> list[tuple[int, float]]:
    """Who was done and when, in the order in which that happened."""
    agenda, done = Agenda(), list[tuple[int, float]]()
    processor = Processor(agenda, WORK_S)
    for at, each_s in enumerate(came_s):
        agenda.at(each_s, processor.add, lambda at=at: done.append((at, agenda.now_s)))
    agenda.run(1e6)
    return done


def _as_by_hand(came_s: Sequence[float], slice_s: float = 1e-6) -> list[float]:
    """The same, given out in small slices to all who are there."""
    left, now_s, done_s = dict[int, float](), 0.0, [0.0] * len(came_s)
    coming = list(enumerate(came_s))
    while coming or left:
        while coming and coming[0][1] <= now_s + slice_s / 2:
            left[coming.pop(0)[0]] = WORK_S
        share_s = slice_s / max(1, len(left))
        left = {at: each_s - share_s for at, each_s in left.items()}
        now_s += slice_s
        for at in [at for at, each_s in left.items() if each_s <= slice_s / 10]:
            done_s[at] = now_s
            del left[at]
    return done_s


def test_alone_a_piece_takes_its_own_time_and_idle_time_is_given_to_nobody() -> None:
    assert _done_at_s((0.0, 1.0, 500_000.0)) == [
        (0, pytest.approx(0.004)), (1, pytest.approx(1.004)), (2, pytest.approx(500_000.004)),
    ]  # fmt: skip


def test_those_that_come_together_are_done_together_and_in_order() -> None:
    done = _done_at_s((0.1,) * 7)
    assert [at for at, _ in done] == list(range(7))
    assert [at_s for _, at_s in done] == [pytest.approx(0.1 + 7 * WORK_S)] * 7
    assert len({at_s for _, at_s in done}) == 1, "at one moment, and not a rounding apart"


@pytest.mark.parametrize(
    "came_s",
    [(0.0, 0.001, 0.002), (0.0, 0.0, 0.003, 0.0035), (0.0, 0.0039, 0.004, 0.0041), (0.0, 0.002, 0.002, 0.02, 0.021)],
)
def test_all_who_are_there_have_equal_parts_of_the_time(came_s: tuple[float, ...]) -> None:
    done = _done_at_s(came_s)
    assert [at for at, _ in done] == list(range(len(came_s)))
    assert [at_s for _, at_s in done] == pytest.approx(_as_by_hand(came_s), abs=5e-6)


def test_work_that_begins_as_other_work_ends_shares_with_what_is_left() -> None:
    agenda, done = Agenda(), dict[str, float]()
    processor = Processor(agenda, WORK_S)

    def again() -> None:
        done["first"] = agenda.now_s
        processor.add(lambda: done.update(again=agenda.now_s))

    agenda.at(0.0, processor.add, again)
    agenda.at(0.002, processor.add, lambda: done.update(second=agenda.now_s))
    agenda.run(1.0)
    # 2 ms alone and 4 ms by halves; then the second's other half and the new piece by halves, and the rest of it alone.
    assert done == {"first": pytest.approx(0.006), "second": pytest.approx(0.010), "again": pytest.approx(0.012)}
