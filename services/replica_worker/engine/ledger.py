"""What the event loop's side of an engine knows: which requests are live and what stands in which slot.

It is updated at the moment of a call, whatever step is under way, so an aborted request is silent from
then on, and a slot that has a request is never written.
"""

from __future__ import annotations

from collections import Counter

from services.replica_worker.engine.port import BASE_SLOT, EngineInfo, EngineRequest, StepToken
from services.replica_worker.engine.sequence import Sequence


class Ledger:
    def __init__(self, info: EngineInfo) -> None:
        self._info = info
        self._users_of_slot: Counter[int] = Counter()
        self.live: dict[str, Sequence] = {}
        self._digests: dict[int, str] = {BASE_SLOT: ""}

    @property
    def tokens_in_flight(self) -> int:
        """Context so far plus what may still be produced: always the prompt plus `max_tokens`."""
        requests = [sequence.request for sequence in self.live.values()]
        return sum(len(request.prompt_token_ids) + request.max_tokens for request in requests)

    def open(self, sequence: Sequence) -> None:
        """Raises ValueError for an id that is live: two streams under one name cannot be told apart."""
        request_id = sequence.request.request_id
        if request_id in self.live:
            raise ValueError(f"request {request_id} is already running")
        self.live[request_id] = sequence
        self.occupy(sequence.request.slot)

    def close(self, request_id: str) -> Sequence | None:
        """The sequence that was live under this id, if any; it is not live any more."""
        sequence = self.live.pop(request_id, None)
        if sequence is not None:
            self.vacate(sequence.request.slot)
        return sequence

    def settle(self, sequence: Sequence, token: StepToken) -> bool:
        """Whether this token is to be delivered; closes the request if it is its last."""
        if self.live.get(token.request_id) is not sequence:
            return False
        if token.finish or token.error:
            self.close(token.request_id)
        return True

    def occupy(self, slot: int) -> None:
        self._users_of_slot[slot] += 1

    def vacate(self, slot: int) -> None:
        self._users_of_slot[slot] -= 1

    def fill(self, slot: int, digest: str) -> None:
        """From now on requests may run on the slot, with this adapter."""
        self._digests[slot] = digest

    def empty(self, slot: int) -> str | None:
        """From now on no request may run on the slot. Returns the digest of what was in it, if anything was."""
        return self._digests.pop(slot, None)

    def digest_of(self, slot: int) -> str:
        """Of the adapter in a slot that is filled; "" for BASE_SLOT. Raises KeyError for an empty slot."""
        return self._digests[slot]

    def check_writable(self, slot: int) -> None:
        """Raises ValueError if the slot does not exist or a request is on it."""
        if not 0 <= slot < self._info.slots:
            raise ValueError(f"slot {slot} does not exist, there are {self._info.slots}")
        if self._users_of_slot[slot]:
            raise ValueError(f"slot {slot} has {self._users_of_slot[slot]} requests on it")

    def refusal(self, request: EngineRequest) -> str | None:
        """Why a request cannot run at all, or None. Never answers from the base for a missing adapter."""
        info, prompt = self._info, request.prompt_token_ids
        if request.slot not in self._digests:
            return f"slot {request.slot} holds no adapter"
        if not 0 < len(prompt) < info.max_context_tokens:
            return f"a prompt of {len(prompt)} tokens is outside 1 to {info.max_context_tokens - 1}"
        if not 0 <= min(prompt) <= max(prompt) < info.vocabulary_size:
            return f"a prompt token is outside the vocabulary of {info.vocabulary_size}"
        if request.max_tokens <= 0:
            return f"max_tokens is {request.max_tokens}"
        wanted = min(len(prompt) + request.max_tokens, info.max_context_tokens)
        if info.kv_tokens and wanted > info.kv_tokens:
            return f"prompt and answer of {wanted} tokens never fit the KV cache of {info.kv_tokens}"
        return None
