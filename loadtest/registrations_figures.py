"""The figures of `make bench-registrations`, from what was counted."""

from __future__ import annotations

from loadtest.registrations_run import Took
from loadtest.report import Figure


def processors(took: Took, killed_s: float = 0.0) -> dict[str, Figure]:
    """A registration's, and of the whole machine: what keeps all of its processors busy is not bound by the store."""
    spent = took.spent
    seconds = {"registry": spent.registry_s + killed_s, "command": spent.command_s, "store_server": spent.server_s}
    return {
        **{
            f"{name}_ms": Figure(value=round(used_s / took.count * 1000, 2), unit="ms of a processor")
            for name, used_s in seconds.items()
            if used_s is not None
        },
        "processors_busy": Figure(value=round(spent.busy_share, 3), unit="of all processors"),
    }


def rate(per_s: float) -> Figure:
    return Figure(value=round(per_s, 2), unit="a second")


def share(per_s: float, alone_per_s: float, target: str | None) -> Figure:
    return Figure(value=round(per_s / alone_per_s, 3), unit="", target=target)
