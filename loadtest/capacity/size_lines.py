"""What adapters, the base model and the KV cache take, as figures with their formulas worked out."""

from __future__ import annotations

from loadtest.capacity import sizes
from loadtest.capacity.figures import Figure, count, line, said
from loadtest.capacity.plan import Plan


def matrices(plan: Plan) -> tuple[Figure, ...]:
    """One line for each size that there is among the target modules."""
    asked, alike = plan.question, dict[int, list[str]]()
    for target in asked.targets:
        alike.setdefault(sum(asked.model.sides(target)), []).append(target)
    return tuple(
        line(
            f"{targets[0].removesuffix('_proj')}_values",
            f"values of {', '.join(target.removesuffix('_proj') for target in targets)}{', each' * (len(targets) > 1)}",
            sizes.matrix_values(asked.rank, *asked.model.sides(targets[0])),
            "",
            f"rank {asked.rank} × ({' + '.join(map(count, asked.model.sides(targets[0])))})",
        )
        for targets in alike.values()
    )


def adapter(plan: Plan) -> tuple[Figure, ...]:
    asked, model = plan.question, plan.question.model
    layer = sizes.layer_values(model, asked.rank, asked.targets)
    values = sizes.adapter_values(model, asked.rank, asked.targets)
    inputs, outputs = model.sides("q_proj")
    return (
        line("layer_values", "values of a layer", layer, "", f"all {len(asked.targets)} target modules"),
        line("adapter_values", "values of the adapter", values, "", f"{model.layers} layers × {count(layer)}"),
        line("adapter_bytes", "size", plan.adapter_bytes, "bytes", f"{count(values)} × {model.value_bytes} bytes"),
        line(
            "update_share",
            "arithmetic beside q's own",
            sizes.update_share(model, asked.rank),
            "share",
            f"rank {asked.rank} × ({count(inputs)} + {count(outputs)}) ÷ ({count(inputs)} × {count(outputs)})",
        ),
    )


def all_adapters(plan: Plan) -> tuple[Figure, ...]:
    asked = plan.question
    number = count(asked.adapters)
    size, base = said(plan.adapter_bytes, "bytes"), said(plan.base_bytes, "bytes")
    return (
        line("adapters_bytes", "size", asked.adapters * plan.adapter_bytes, "bytes", f"{number} × {size}"),
        line("merged_bytes", "size as merged copies", asked.adapters * plan.base_bytes, "bytes", f"{number} × {base}"),
    )  # fmt: skip


def memory(plan: Plan) -> tuple[Figure, ...]:
    asked, model = plan.question, plan.question.model
    token = sizes.kv_token_bytes(model)
    parts = (asked.gpu_bytes, plan.base_bytes, plan.kv_bytes, asked.work_bytes)
    values = count(sizes.base_values(model))
    size = said(plan.adapter_bytes, "bytes")
    wide = 4 * plan.adapter_bytes
    return (
        line("base_bytes", "base model", plan.base_bytes, "bytes", f"⌈{values} × {model.value_bytes} bytes⌉ GB"),
        line(
            "kv_token_bytes", "KV cache of a token", token, "B",
            f"2 × {model.layers} layers × {model.kv_heads} KV heads × {model.head} × {model.value_bytes} bytes",
        ),
        line(
            "kv_bytes", "KV cache", plan.kv_bytes, "bytes",
            f"{count(token)} B × {asked.rows} requests × {count(asked.context_tokens)} tokens",
        ),
        line("room_bytes", "room for adapters", plan.room_bytes, "bytes",
              " − ".join(said(part, "bytes") for part in parts)),
        line("fitting", "adapters that fit", plan.fitting, "", f"⌊{said(plan.room_bytes, 'bytes')} ÷ {size}⌋"),
        line("slots", "slots", plan.slots, "", f"at most {asked.slot_cap}"),
        line("slots_bytes", "size of all slots", plan.slots * plan.adapter_bytes, "bytes", f"{plan.slots} × {size}"),
        line(
            "wide_slots_bytes", f"the same padded to rank {4 * asked.rank}", plan.slots * wide, "bytes",
            f"{plan.slots} × {said(wide, 'bytes')}: why ranks have pools of their own",
        ),
    )  # fmt: skip
