"""What replicas say about themselves and to this gateway, brought into order and passed on."""

from __future__ import annotations

from services.gateway.conversation import Desk
from services.gateway.conversations import Conversations
from services.gateway.core.frames import AskReplay, FrameOrder, Ordered
from services.gateway.core.stream import Phase, Stream
from shared.messages.generation import Frame, Replayed
from shared.messages.reports import ReplicaReport

_FORGET_S = 600.0
_HELD_UP_S = 1.0
"""Between two ticks; they are ten times closer when all is well."""


class Replicas:
    def __init__(self, desk: Desk, conversations: Conversations) -> None:
        self._desk = desk
        self._conversations = conversations
        self._orders: dict[str, FrameOrder] = {}
        self._ticked_at_s = desk.clock.now_s()

    def on_report(self, report: ReplicaReport) -> None:
        """A new incarnation knows nothing of what the one before it was asked."""
        self._desk.fleet.on_report(report, self._desk.clock.now_s())

        def is_lost(stream: Stream) -> bool:
            return stream.incarnation != report.incarnation

        self._conversations.break_off(
            report.replica_id, f"Replica {report.replica_id} restarted.", is_lost, died=True
        )  # fmt: skip

    def on_frame(self, frame: Frame) -> None:
        lag_s = self._desk.clock.wall_s() - frame.written_at_s
        order = self._orders.get(frame.replica_id)
        if order is None:
            order = self._orders[frame.replica_id] = FrameOrder(frame.replica_id)
        self._pass_on(order, order.on_frame(frame))
        self._desk.fleet.on_heard(frame.replica_id, self._desk.clock.now_s())
        if frame.written_at_s:
            self._desk.records.frame(lag_s)

    def tick(self, *, hearing: bool) -> None:
        """Streams of replicas that fell silent are lost; so is, after a while, all memory of them.

        While this gateway itself hears nothing, because the bus is away or its own loop was held up, nobody's
        silence says anything.
        """
        now_s = self._desk.clock.now_s()
        held_up = now_s - self._ticked_at_s > _HELD_UP_S
        self._ticked_at_s = now_s
        if held_up or not hearing:
            self._desk.fleet.on_deaf(now_s)
            return
        for replica_id in self._conversations.replicas():
            if self._desk.fleet.is_silent(replica_id, now_s):
                self._conversations.break_off(
                    replica_id, f"Replica {replica_id} fell silent.", lambda _: True, died=True
                )  # fmt: skip
        for replica_id in self._desk.fleet.forget_older_than(now_s - _FORGET_S):
            self._orders.pop(replica_id, None)

    def _pass_on(self, order: FrameOrder, ordered: Ordered) -> None:
        for frame in ordered.deliver:
            self._conversations.on_chunks(frame.replica_id, frame.chunks)
        if ordered.ask is not None:
            self._ask_again(order, ordered.ask)
        if ordered.broken:
            incarnation = order.incarnation
            reason = f"Tokens of replica {order.replica_id} are lost: {ordered.broken}."

            def is_concerned(stream: Stream) -> bool:
                return stream.incarnation == incarnation and stream.phase is not Phase.ASKED

            self._conversations.break_off(order.replica_id, reason, is_concerned, died=False)

    def _ask_again(self, order: FrameOrder, ask: AskReplay) -> None:
        self._desk.records.asked_replay()

        def on_replayed(answer: Replayed | str) -> None:
            if isinstance(answer, Replayed):
                self._pass_on(order, order.on_replayed(ask, answer))
            else:
                self._pass_on(order, order.on_replay_failed(ask, answer))

        self._desk.post.replay(ask, on_replayed)
