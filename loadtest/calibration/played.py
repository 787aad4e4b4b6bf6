"""Requests that a real fleet answered, played on the twin's own way and steps."""

from __future__ import annotations

import random
from collections.abc import Sequence

from loadtest.calibration.seen import Seen
from loadtest.twin import sequence
from loadtest.twin.agenda import Agenda
from loadtest.twin.batch import Batch
from loadtest.twin.crowd import Crowd
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import Timing
from loadtest.twin.way import Way

_OVER_S = 3_600.0
"""By then the last token has come."""


def played_s(scene: Sequence[Seen], timing: Timing, shape: BatchShape, seed: int) -> list[float]:
    """The times to first token of the same requests, each at the replica that answered it."""
    agenda, draw, first_s = Agenda(), random.Random(seed), {}

    def on_step(first: list[sequence.Sequence], _: list[sequence.Sequence]) -> None:
        first_s.update(dict.fromkeys(first, agenda.now_s))

    crowd = Crowd(timing.crowd_share)
    names = sorted({each.replica for each in scene})
    batches = {name: Batch(shape, timing.steps, agenda, on_step, draw) for name in names}
    for batch in batches.values():
        crowd.join(batch)
    way = Way(timing, agenda, draw, lambda: sum(batch.computes for batch in batches.values()))
    asked = [sequence.Sequence(each.adapter, each.prompt_tokens, max(1, each.tokens)) for each in scene]

    def send(at: int) -> None:
        replica = scene[at].replica
        way.send(replica, batches[replica].submit, asked[at])

    for at, each in enumerate(scene):
        agenda.at(each.sent_s, send, at)
    agenda.run(_OVER_S)
    back_s = timing.bus_s + timing.relay_s
    return [first_s[one] - each.sent_s + back_s for one, each in zip(asked, scene, strict=True)]
