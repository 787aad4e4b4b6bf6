"""Why an adapter cannot be had. Raised where it is found out, turned into an answer at the door."""

from __future__ import annotations


class AdapterFailed(Exception):
    """The adapter itself is at fault: its bytes, its base, its effect. Trying again here changes nothing.

    `elsewhere`: another replica may still have a good copy. `lost`: what is wrong with the stored object itself,
    "corrupt", or "" if nothing is known to be.
    """

    def __init__(self, reason: str, *, elsewhere: bool = True, lost: str = "") -> None:
        super().__init__(reason)
        self.elsewhere = elsewhere
        self.lost = lost


class EffectWrong(AdapterFailed):
    """What stands in its slot does not do, or is not, what it should. `expected` and `found` are for people."""

    def __init__(self, reason: str, *, expected: str, found: str) -> None:
        super().__init__(reason)
        self.expected = expected
        self.found = found


class AdapterUnavailable(Exception):
    """Its surroundings are at fault: the store, the disk, no room. Trying again later may work.

    `lost`: "missing" if the store answers that it has no such object.
    """

    def __init__(self, reason: str, *, retry_after_s: float | None = 1.0, lost: str = "") -> None:
        super().__init__(reason)
        self.lost = lost
        self.retry_after_s = retry_after_s
