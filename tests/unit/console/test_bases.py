import pytest

from services.console.core.bases import UnclearBase, only_base
from shared.messages.pools import pool_id

B, C = ({"base_model_hash": digit * 64, "name": f"model-{digit}"} for digit in "bc")


def replica(base: dict[str, str], *, ready: bool = True, merged: str | None = None) -> dict[str, object]:
    return {"ready": ready, "pool_id": pool_id(base["base_model_hash"], 16, merged)}


def test_the_only_base_model_is_meant_with_or_without_a_replica() -> None:
    assert only_base([B], []) == "b" * 64


def test_of_several_the_one_with_a_ready_replica_is_meant() -> None:
    assert only_base([B, C], [replica(C), replica(C, merged="f" * 64), replica(B, ready=False)]) == "c" * 64


def test_two_that_are_served_are_named_with_their_hashes() -> None:
    with pytest.raises(UnclearBase, match="ready replicas of 2 base models") as unclear:
        only_base([B, C], [replica(B), replica(C)])
    assert str(unclear.value).splitlines()[1:] == [f"  {'b' * 64}  model-b", f"  {'c' * 64}  model-c"]


def test_none_that_is_served_leaves_all_to_choose_from() -> None:
    with pytest.raises(UnclearBase, match="no ready replica, but knows 2 base models"):
        only_base([B, C], [])
    with pytest.raises(UnclearBase, match="knows no base model yet"):
        only_base([], [])
