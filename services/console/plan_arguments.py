"""The words of `lorafleet plan`."""

from __future__ import annotations

import argparse
from pathlib import Path

from services.console.leaves import plain

GB = 1e9

NUMBERS: tuple[tuple[str, str, float, str], ...] = (
    ("--adapters", "adapters", 1, "how many, one a customer"),
    ("--rate", "rate_per_s", 1, "requests a second at the peak"),
    ("--prompt", "prompt_tokens", 1, "tokens of a prompt, on average"),
    ("--output", "output_tokens", 1, "tokens of an answer, on average"),
    ("--rank", "rank", 1, "the adapters' rank"),
    ("--zipf", "zipf", 1, "skew of traffic: the k-th adapter's share is ~ 1 / k^ZIPF"),
    ("--objective", "objective_s", 1, "seconds to the first token that 95 of 100 requests may take"),
    ("--gpu-gb", "gpu_bytes", GB, "memory of a GPU"),
    ("--work-gb", "work_bytes", GB, "GPU memory for activations and fragments"),
    ("--rows", "rows", 1, "requests that a replica runs at once"),
    ("--context", "context_tokens", 1, "tokens of KV cache reserved for each"),
    ("--slot-cap", "slot_cap", 1, "slots at most"),
    ("--step-ms", "step_s", 1e-3, "one token for every row, with adapters"),
    ("--merged-step-ms", "merged_step_s", 1e-3, "the same for a merged copy"),
    ("--prefill", "prefill_tokens_per_s", 1, "prompt tokens a second of a replica"),
    ("--chunk", "chunk_tokens", 1, "prompt tokens of one step at most"),
    ("--replica-rate", "replica_tokens_per_s", 1, "output tokens a second of a replica, measured with its prompts"),
    ("--headroom", "headroom", 1, "replicas over those that are busy"),
    ("--owners", "owners", 1, "replicas that hold an adapter"),
    ("--hot", "hot_tokens_per_s", 1, "tokens a second of a customer that has risen"),
    ("--store-gb-s", "store_bytes_per_s", GB, "of the object store, for one replica"),
    ("--disk-gb-s", "disk_bytes_per_s", GB, "of a replica's disk"),
    ("--link-gb-s", "gpu_link_bytes_per_s", GB, "from RAM into a slot"),
    ("--base-gb-s", "base_bytes_per_s", GB, "at which the base model is loaded"),
    ("--price", "usd_per_gpu_hour", 1, "USD of a GPU hour"),
)
"""Flag, the question's field, what one of the flag is in the field's unit, and help."""

WHOLE = frozenset({"adapters", "rank", "rows", "context_tokens", "slot_cap", "chunk_tokens", "owners"})


def add_plan(commands: argparse._SubParsersAction) -> None:
    made = plain(commands, "plan", "plan", "how many GPUs a fleet takes, what they hold, and what that costs")
    source = made.add_mutually_exclusive_group(required=True)
    source.add_argument("--preset", metavar="NAME", help="fleet-a or fleet-b; other options change it")
    source.add_argument("--model", type=Path, metavar="FILE", help="a model's config.json, or its folder")
    made.add_argument("--targets", metavar="MODULES", help="target modules, as in q_proj,v_proj (default: all seven)")
    for flag, field, _, summary in NUMBERS:
        kind = int if field in WHOLE else float
        made.add_argument(flag, dest=field, type=kind, metavar="N" if kind is int else "X", help=summary)
    trial = made.add_argument_group("simulation")
    trial.add_argument("--simulate", action="store_true", help="find the smallest fleet that meets the objective")
    trial.add_argument("--minutes", type=float, default=5.0, help="of traffic for every size (default 5)")
    trial.add_argument("--seed", type=int, default=1, help="the same seed gives the same figures (default 1)")
    trial.add_argument("--trace", type=Path, metavar="CSV", help="take lengths from an Azure LLM inference trace")
    trial.add_argument(
        "--out", type=Path, default=Path("reports/plan"), metavar="FOLDER", help="for plan.png and .html"
    )
    made.add_argument("--explain", action="store_true", help="the formula beside each figure")
    made.add_argument("--json", action="store_true", help="print JSON instead of text")
    made.set_defaults(needs="plan")
