"""What vLLM makes of our prepared adapters, against the library everybody trains with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from tests.support.engine_subject import Subject
from tests.support.random_adapter import RandomAdapter, write_adapter

PROMPT = tuple(3 + 7 * i % 250 for i in range(48))
TOP = 20

ADAPTERS = {
    "plain": RandomAdapter(seed=1, std=0.25),
    "smallest rank": RandomAdapter(seed=2, rank=1, std=0.25),
    "largest rank": RandomAdapter(seed=3, rank=16, std=0.25),
    "c45 rslora": RandomAdapter(seed=4, use_rslora=True, std=0.15),
    "c50 patterns": RandomAdapter(
        seed=5, std=0.25, rank_pattern={"q_proj": 16, "down_proj": 4}, alpha_pattern={"q_proj": 5.0, "up_proj": 3.0}
    ),
    "two modules": RandomAdapter(seed=6, targets=("q_proj", "v_proj"), alpha=7.0, std=0.5),
    "c63a a float32 file": RandomAdapter(seed=7, dtype=torch.float32, std=0.25),
}


def reference(model_folder: Path, folder: Path, adapter: RandomAdapter, path: Path) -> torch.Tensor:
    """Log-probabilities [vocabulary] after PROMPT, by transformers and PEFT in fp32."""
    folder.mkdir()
    shutil.copy(path, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": adapter.rank, "lora_alpha": adapter.alpha,
        "target_modules": list(adapter.targets), "use_rslora": adapter.use_rslora,
        "rank_pattern": dict(adapter.rank_pattern), "alpha_pattern": dict(adapter.alpha_pattern),
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config))
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32), folder)
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([PROMPT])).logits[0, -1]
    return torch.log_softmax(logits, dim=-1)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT asks transformers for it
@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS.keys())
async def test_c11_the_next_token_is_as_likely_as_peft_says(
    subject: Subject, tiny_folder: Path, tmp_path: Path, adapter: RandomAdapter
) -> None:
    path, spec = write_adapter(tmp_path, adapter, subject.info.base_model_hash)
    expected = reference(tiny_folder, tmp_path / "peft", adapter, path)
    await subject.engine.load(0, await subject.engine.read(path, spec))
    found = await subject.engine.probe(PROMPT, 0, top=TOP)
    base = await subject.engine.probe(PROMPT, -1, top=TOP)
    actual = torch.tensor(found.logprobs)
    tolerance, share = (2e-3, 0.0) if subject.info.dtype == "float32" else (0.1, 0.05)
    torch.testing.assert_close(actual, expected[list(found.token_ids)], atol=tolerance, rtol=share)
    if subject.info.dtype == "float32":
        assert found.token_ids == tuple(torch.topk(expected, TOP).indices.tolist())
    distance = (torch.tensor(base.logprobs) - expected[list(base.token_ids)]).abs().max()
    assert distance > 3 * tolerance, "the adapter does so little that this run proves nothing"
