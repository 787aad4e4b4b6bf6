"""What PEFT saves registers as it is, and then gives PEFT's own tokens on a replica's engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from transformers import PreTrainedModel

from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.tiers.ram import spec_of
from shared.base_model import base_model_hash
from shared.bus.memory import MemoryBroker
from shared.bus.port import Bus
from shared.contracts import catalog
from shared.lora_names import is_plain_name
from shared.lora_terms import Pattern
from shared.messages.adapters import AdapterRegistered
from shared.messages.desired import AdapterRecord, BaseModelRecord, ModuleShape
from shared.messages.identity import key_of
from shared.pipeline.folder import Identity, announcement, read_folder
from tests.support.parity import POLICY
from tests.support.peft_adapters import PEFT_ADAPTERS, TOKENS, PeftAdapter, base_model, tokens_of
from tests.support.registry_watch import eventually
from tests.support.registry_world import World, world
from tests.support.tiny_model import LAYERS, VOCABULARY_SIZE, module_shapes, tiny_model_once
from tests.support.token_log import TokenLog, greedy

# The two libraries' business with each other.
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:peft"),
]

PROMPTS = [[3 + (number * 37 + at * 11) % 250 for at in range(16)] for number in range(3)]
SLOT = 1


class Workshop(msgspec.Struct, frozen=True):
    """The tiny model in PEFT's hands and in an engine's, and a registry that knows it."""

    registry: World
    broker: MemoryBroker
    model: PreTrainedModel
    engine: TorchEngine
    log: TokenLog
    record: BaseModelRecord

    def announced(self, folder: Path) -> AdapterRegistered:
        """As a pipeline announces it, under the folder's name."""
        who = Identity(tenant_id="acme", adapter_id=folder.name, base_model_hash=self.record.base_model_hash)
        return announcement(read_folder(folder), who, folder.as_uri())

    async def registered(self, folder: Path) -> AdapterRecord:
        """The folder's adapter as replicas are told of it."""
        answer = await self.registry.post(self.announced(folder))
        assert answer.status_code == 201, answer.text
        return await self._told(folder.name)

    async def tokens(self, record: AdapterRecord) -> list[list[int]]:
        """Of the engine, with the file that the registry keeps."""
        stored = self.registry.folder / "store" / record.store_key
        await self.engine.load(SLOT, await self.engine.read(stored, spec_of(record)))
        names = [f"{record.adapter_id}-{len(self.log.steps)}-{at}" for at in range(len(PROMPTS))]
        for name, prompt in zip(names, PROMPTS, strict=True):
            self.engine.submit(greedy(name, prompt, SLOT, max_tokens=TOKENS))
        await self.log.until_ended(*names)
        return [self.log.token_ids(name) for name in names]

    async def _told(self, adapter_id: str) -> AdapterRecord:
        """Its record on the bus, once it is there."""
        state = self.broker.connect("replica_worker").state(catalog.ADAPTER)

        async def there() -> bool:
            return await state.get(key_of(adapter_id)) is not None

        await eventually(there)
        change = await state.get(key_of(adapter_id))
        assert change is not None
        assert change.value is not None
        return change.value


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workshop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    tiny, broker = tiny_model_once(tmp_path_factory), MemoryBroker()
    shapes = {
        name.split(".")[1]: ModuleShape(in_features=i, out_features=o) for name, (o, i) in module_shapes().items()
    }
    record = BaseModelRecord(
        base_model_hash=base_model_hash(tiny),
        name="tiny",
        layers=LAYERS,
        modules=shapes,
        rank_classes=(8, 32),
        max_context_tokens=2048,
        vocabulary_size=VOCABULARY_SIZE,
    )

    async def connect(service: str) -> Bus:
        return broker.connect(service)

    engine, log = TorchEngine(tiny, POLICY), TokenLog()
    await engine.start(log.on_step)
    async with world(tmp_path_factory.mktemp("good"), connect) as registry:
        await registry.prepare()
        url = f"/internal/base-models/{record.base_model_hash}"
        assert (await registry.admin.put(url, json=msgspec.to_builtins(record))).status_code == 201
        yield Workshop(registry, broker, base_model(tiny), engine, log, record)
    await engine.close()


@pytest.fixture(scope="module")
def without(workshop: Workshop) -> list[list[int]]:
    """The tokens of the base alone."""
    return tokens_of(workshop.model, None, PROMPTS)


@pytest.fixture
def saved(workshop: Workshop) -> Callable[[str, PeftAdapter], Path]:
    def save(adapter_id: str, adapter: PeftAdapter) -> Path:
        folder = workshop.registry.folder / "inbox" / adapter_id
        adapter.save(workshop.model, folder, seed=len(adapter_id))
        return folder

    return save


@pytest.mark.parametrize("number", range(len(PEFT_ADAPTERS)), ids=list(PEFT_ADAPTERS))
async def test_what_peft_saves_registers_and_gives_pefts_tokens(
    workshop: Workshop, saved: Callable[[str, PeftAdapter], Path], without: list[list[int]], number: int
) -> None:
    folder = saved(f"good-{number}", list(PEFT_ADAPTERS.values())[number])
    record = await workshop.registered(folder)
    names = (*record.target_modules, *record.rank_pattern, *record.alpha_pattern)
    assert all(is_plain_name(name) for name in names), names
    expected = tokens_of(workshop.model, folder, PROMPTS)
    assert expected != without, "this adapter does too little to prove anything"
    assert await workshop.tokens(record) == expected


async def test_a_pattern_that_is_resolved_wrongly_gives_other_tokens(
    workshop: Workshop, saved: Callable[[str, PeftAdapter], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: of several keys that match, the last counts."""
    folder = saved("planted", PeftAdapter(config={"alpha_pattern": {"q_proj": 90, r".*_proj": 2}}))
    honest = Pattern.keys_of
    monkeypatch.setattr(Pattern, "keys_of", lambda pattern, path: honest(pattern, path)[::-1])
    record = await workshop.registered(folder)
    assert await workshop.tokens(record) != tokens_of(workshop.model, folder, PROMPTS)


async def test_a_pipeline_may_announce_all_linear_itself(
    workshop: Workshop, saved: Callable[[str, PeftAdapter], Path]
) -> None:
    """PEFT writes the names that it stands for into adapter_config.json, which agree with it."""
    folder = saved("all", PEFT_ADAPTERS["all-linear"])
    said = msgspec.structs.replace(workshop.announced(folder), target_modules="all-linear")
    assert (await workshop.registry.post(said)).status_code == 201
    shown = (await workshop.registry.admin.get("/internal/adapters/all")).json()
    assert shown["target_modules"] == "all-linear"
    assert shown["applied"]["target_modules"] == sorted(workshop.record.modules)
