"""Time as far as somebody spoke in it: our own deafness must not look like everybody's death.

If all replicas fall silent in the same moment, it is likely that we no longer hear, and a placement that
declares a whole fleet lost takes it away from gateways that still reach it. So silence counts only while
anybody at all is heard. If nobody has been heard for the whole grace, all are declared lost, but nobody is
forgotten: there is no one else to give the adapters to.
"""

from __future__ import annotations

import msgspec


class ListeningPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`patience_s` is how much of a common silence counts against each replica."""

    patience_s: float = 3.0
    all_lost_after_s: float = 30.0
    all_lost_s: float = 7.0
    """What a common silence that long counts as: more than a lost replica's, less than a forgotten one's."""


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """`last_s` is when anybody was heard; `deaf_s` is the time that does not count."""

    last_s: float
    deaf_s: float = 0.0

    def heard(self, now_s: float, policy: ListeningPolicy) -> Listening:
        """After a report at `now_s`."""
        uncounted_s = max(0.0, now_s - self.last_s - policy.patience_s)
        return Listening(last_s=now_s, deaf_s=self.deaf_s + uncounted_s)

    def time_s(self, now_s: float, policy: ListeningPolicy) -> float:
        """The time to judge silences by."""
        silence_s = now_s - self.last_s
        counted_s = silence_s if silence_s <= policy.patience_s else policy.patience_s
        if silence_s > policy.all_lost_after_s:
            counted_s = policy.all_lost_s
        return self.last_s - self.deaf_s + counted_s

    def real_s(self, now_s: float) -> float:
        """The same scale without the limit: for telling people how old a report is."""
        return now_s - self.deaf_s


def policy_for(lost_after_s: float, lost_grace_s: float) -> ListeningPolicy:
    """Two report intervals less than what makes a replica lost (or half of it, if that is more): when
    hearing comes back, everybody has the time to be heard again."""
    return ListeningPolicy(
        patience_s=max(lost_after_s - 2.0, lost_after_s / 2.0),
        all_lost_after_s=lost_grace_s,
        all_lost_s=lost_after_s + 0.001,
    )
