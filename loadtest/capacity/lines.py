"""A plan as groups of figures, each with its formula worked out: what `lorafleet plan` prints."""

from __future__ import annotations

from loadtest.capacity import rates, sizes
from loadtest.capacity.figures import Figure, Group, count, digits, said
from loadtest.capacity.plan import Plan
from loadtest.workloads import popularity
from loadtest.workloads.shape import Zipf

HOURS_PER_MONTH = 730


def groups(plan: Plan) -> tuple[Group, ...]:
    return (
        Group("One adapter", (*_matrices(plan), *_adapter(plan))),
        Group("All adapters", _all_adapters(plan)),
        Group("GPU memory", _memory(plan)),
        Group("One replica", _replica(plan)),
        Group("The fleet", (*_fleet(plan), *_traffic(plan))),
        Group("What each replica holds", _held(plan)),
        Group("Loading an adapter", _loads(plan)),
        Group("First token on an idle replica", _first_tokens(plan)),
        Group("Cost", _costs(plan)),
    )


def _line(name: str, label: str, value: float, unit: str, worked: str) -> Figure:
    return Figure(name=name, label=label, value=value, unit=unit, worked=worked)


def _matrices(plan: Plan) -> tuple[Figure, ...]:
    """One line for each size that there is among the target modules."""
    asked, alike = plan.question, dict[int, list[str]]()
    for target in asked.targets:
        alike.setdefault(sum(asked.model.sides(target)), []).append(target)
    return tuple(
        _line(
            f"{targets[0].removesuffix('_proj')}_values",
            f"values of {', '.join(target.removesuffix('_proj') for target in targets)}{', each' * (len(targets) > 1)}",
            sizes.matrix_values(asked.rank, *asked.model.sides(targets[0])),
            "",
            f"rank {asked.rank} × ({' + '.join(map(count, asked.model.sides(targets[0])))})",
        )
        for targets in alike.values()
    )


def _adapter(plan: Plan) -> tuple[Figure, ...]:
    asked, model = plan.question, plan.question.model
    layer = sizes.layer_values(model, asked.rank, asked.targets)
    values = sizes.adapter_values(model, asked.rank, asked.targets)
    inputs, outputs = model.sides("q_proj")
    return (
        _line("layer_values", "values of a layer", layer, "", f"all {len(asked.targets)} target modules"),
        _line("adapter_values", "values of the adapter", values, "", f"{model.layers} layers × {count(layer)}"),
        _line("adapter_bytes", "size", plan.adapter_bytes, "bytes", f"{count(values)} × {model.value_bytes} bytes"),
        _line(
            "update_share",
            "arithmetic beside q's own",
            sizes.update_share(model, asked.rank),
            "share",
            f"rank {asked.rank} × ({count(inputs)} + {count(outputs)}) ÷ ({count(inputs)} × {count(outputs)})",
        ),
    )


def _all_adapters(plan: Plan) -> tuple[Figure, ...]:
    asked = plan.question
    number = count(asked.adapters)
    size, base = said(plan.adapter_bytes, "bytes"), said(plan.base_bytes, "bytes")
    return (
        _line("adapters_bytes", "size", asked.adapters * plan.adapter_bytes, "bytes", f"{number} × {size}"),
        _line("merged_bytes", "size as merged copies", asked.adapters * plan.base_bytes, "bytes", f"{number} × {base}"),
    )  # fmt: skip


def _memory(plan: Plan) -> tuple[Figure, ...]:
    asked, model = plan.question, plan.question.model
    token = sizes.kv_token_bytes(model)
    parts = (asked.gpu_bytes, plan.base_bytes, plan.kv_bytes, asked.work_bytes)
    values = count(sizes.base_values(model))
    size = said(plan.adapter_bytes, "bytes")
    wide = 4 * plan.adapter_bytes
    return (
        _line("base_bytes", "base model", plan.base_bytes, "bytes", f"⌈{values} × {model.value_bytes} bytes⌉ GB"),
        _line(
            "kv_token_bytes", "KV cache of a token", token, "B",
            f"2 × {model.layers} layers × {model.kv_heads} KV heads × {model.head} × {model.value_bytes} bytes",
        ),
        _line(
            "kv_bytes", "KV cache", plan.kv_bytes, "bytes",
            f"{count(token)} B × {asked.rows} requests × {count(asked.context_tokens)} tokens",
        ),
        _line("room_bytes", "room for adapters", plan.room_bytes, "bytes",
              " − ".join(said(part, "bytes") for part in parts)),
        _line("fitting", "adapters that fit", plan.fitting, "", f"⌊{said(plan.room_bytes, 'bytes')} ÷ {size}⌋"),
        _line("slots", "slots", plan.slots, "", f"at most {asked.slot_cap}"),
        _line("slots_bytes", "size of all slots", plan.slots * plan.adapter_bytes, "bytes", f"{plan.slots} × {size}"),
        _line(
            "wide_slots_bytes", f"the same padded to rank {4 * asked.rank}", plan.slots * wide, "bytes",
            f"{plan.slots} × {said(wide, 'bytes')}: why ranks have pools of their own",
        ),
    )  # fmt: skip


def _replica(plan: Plan) -> tuple[Figure, ...]:
    asked = plan.question
    if asked.replica_tokens_per_s is not None:
        rate = asked.replica_tokens_per_s
        return (
            _line("replica_tokens_per_s", "output", rate, "tokens/s", "as measured at the objective, prompts included"),
        )
    step, merged = said(asked.step_s, "s"), said(asked.merged_step_s, "s")
    return (
        _line(
            "replica_tokens_per_s", "output with adapters", plan.replica_tokens_per_s, "tokens/s",
            f"{asked.rows} requests ÷ {step} a token",
        ),
        _line(
            "merged_tokens_per_s", "output of a merged copy", rates.tokens_per_s(asked.rows, asked.merged_step_s),
            "tokens/s", f"{asked.rows} requests ÷ {merged} a token",
        ),
        _line(
            "unmerged_overhead", "what adapters cost a step", asked.step_s / asked.merged_step_s - 1, "share",
            f"{step} ÷ {merged} − 1",
        ),
        _line("prefill_tokens_per_s", "prompts", asked.prefill_tokens_per_s, "tokens/s", "as measured"),
    )  # fmt: skip


def _fleet(plan: Plan) -> tuple[Figure, ...]:
    asked = plan.question
    rate, busy = f"{digits(asked.rate_per_s)} requests/s", plan.decoding + plan.prefilling
    output, prompts = count(plan.output_tokens_per_s), count(plan.prompt_tokens_per_s)
    return (
        _line("output_tokens_per_s", "output", plan.output_tokens_per_s, "tokens/s",
              f"{rate} × {digits(asked.output_tokens)} tokens"),
        _line("prompt_tokens_per_s", "prompts", plan.prompt_tokens_per_s, "tokens/s",
              f"{rate} × {digits(asked.prompt_tokens)} tokens"),
        _line("decoding", "busy with output", plan.decoding, "replicas",
              f"{output} ÷ {count(plan.replica_tokens_per_s)} tokens/s"),
        _line("prefilling", "busy with prompts", plan.prefilling, "replicas",
              "in the measured rate" if asked.replica_tokens_per_s else
              f"{prompts} ÷ {count(asked.prefill_tokens_per_s)} tokens/s"),
        _line("busy", "busy in all", busy, "replicas", f"{digits(plan.decoding)} + {digits(plan.prefilling)}"),
        _line("replicas", "replicas", plan.replicas, "", f"⌈{digits(busy)} × {digits(asked.headroom)} headroom⌉"),
        _line("utilisation", "utilisation", plan.utilisation, "share", f"{digits(busy)} ÷ {plan.replicas}"),
        _line("moved_share", "placements that move when one joins or leaves", 1 / plan.replicas, "share",
              f"1 ÷ {plan.replicas}"),
    )  # fmt: skip


def _traffic(plan: Plan) -> tuple[Figure, ...]:
    """What the skew of traffic means for single customers."""
    asked, replica = plan.question, plan.replica_tokens_per_s
    shares = popularity.shares(Zipf(s=asked.zipf), asked.adapters)
    top = min(100, asked.adapters)
    own = shares * plan.output_tokens_per_s
    hot = asked.hot_tokens_per_s
    skew = f"Zipf {digits(asked.zipf)}"
    return (
        _line("top_share", f"share of the first {top} adapters", float(shares[:top].sum()), "share", skew),
        _line("filling", "adapters that fill a replica of their own", int((own >= replica).sum()), "",
              f"{skew}: the first one has {count(float(own[0]))} of {count(replica)} tokens/s"),
        _line("distinct", "different adapters in a full batch", rates.distinct(shares, asked.rows), "",
              f"{skew}, {asked.rows} requests"),
        _line("hot_owners", f"owners of a customer with {count(hot)} tokens/s",
              rates.owners_for(hot, replica, asked.owners), "", f"⌈{count(hot)} ÷ {count(replica)}⌉"),
    )  # fmt: skip


def _held(plan: Plan) -> tuple[Figure, ...]:
    asked, size = plan.question, said(plan.adapter_bytes, "bytes")
    ram = plan.owned * plan.adapter_bytes
    return (
        _line("owned", "adapters", plan.owned, "",
              f"⌈{count(asked.adapters)} × {asked.owners} owners ÷ {plan.replicas} replicas⌉"),
        _line("ram_bytes", "host RAM", ram, "bytes", f"{count(plan.owned)} × {size}"),
        _line("disk_bytes", "disk", ram + plan.base_bytes, "bytes",
              f"{said(ram, 'bytes')} + base {said(plan.base_bytes, 'bytes')}"),
    )  # fmt: skip


def _loads(plan: Plan) -> tuple[Figure, ...]:
    asked = plan.question
    hops = (
        ("store_s", "from the object store", plan.adapter_bytes, asked.store_bytes_per_s),
        ("disk_s", "from disk", plan.adapter_bytes, asked.disk_bytes_per_s),
        ("ram_s", "from RAM into a slot", plan.adapter_bytes, asked.gpu_link_bytes_per_s),
        ("base_s", "the base model", plan.base_bytes, asked.base_bytes_per_s),
    )
    lines = tuple(
        _line(name, label, rates.load_s(size, link), "s", f"{said(size, 'bytes')} ÷ {said(link, 'bytes')}/s")
        for name, label, size, link in hops
    )
    warm_s = plan.owned * lines[0].value
    filling = _line("warm_s", "all that a new replica owns", warm_s, "s", f"{count(plan.owned)} × {lines[0].text}")
    return (*lines, filling)


def _first_tokens(plan: Plan) -> tuple[Figure, ...]:
    """A prompt, a step, and the way of the adapter before it."""
    asked = plan.question
    if asked.replica_tokens_per_s is not None:
        return ()
    prompt_s, steps = (
        asked.prompt_tokens / asked.prefill_tokens_per_s,
        rates.steps(asked.prompt_tokens, asked.chunk_tokens),
    )
    store_s, disk_s, slot_s = (
        rates.load_s(plan.adapter_bytes, link)
        for link in (asked.store_bytes_per_s, asked.disk_bytes_per_s, asked.gpu_link_bytes_per_s)
    )
    ways = (("gpu", "in a slot", ()), ("ram", "in RAM", (slot_s,)), ("disk", "on disk", (disk_s, slot_s)),
            ("remote", "in the object store", (store_s, slot_s)))  # fmt: skip
    return tuple(
        _line(f"ttft_{tier}_s", f"adapter {where}", prompt_s + steps * asked.step_s + sum(loads), "s",
              " + ".join([f"prompt {said(prompt_s, 's')}", f"{steps} × step {said(asked.step_s, 's')}",
                          *(f"load {said(load, 's')}" for load in loads)]))
        for tier, where, loads in ways
    )  # fmt: skip


def _costs(plan: Plan) -> tuple[Figure, ...]:
    asked, price = plan.question, plan.question.usd_per_gpu_hour
    alone = asked.adapters * price
    per_million = rates.usd_per_million_tokens(plan.usd_per_hour, plan.output_tokens_per_s)
    return (
        _line("usd_per_hour", "this fleet", plan.usd_per_hour, "USD/h", f"{plan.replicas} × {digits(price)} USD/h"),
        _line("dedicated_usd_per_hour", "a GPU for every adapter", alone, "USD/h",
              f"{count(asked.adapters)} × {digits(price)} USD/h"),
        _line("times_cheaper", "times cheaper", asked.adapters / plan.replicas, "",
              f"{count(asked.adapters)} ÷ {plan.replicas}"),
        _line("usd_per_month", "this fleet in a month", plan.usd_per_hour * HOURS_PER_MONTH, "USD",
              f"{HOURS_PER_MONTH} h × {count(plan.usd_per_hour)} USD/h"),
        _line("dedicated_usd_per_month", "a GPU for every adapter in a month", alone * HOURS_PER_MONTH, "USD",
              f"{HOURS_PER_MONTH} h × {count(alone)} USD/h"),
        _line("usd_per_million_tokens", "a million output tokens", per_million, "USD",
              f"{count(plan.usd_per_hour)} USD/h ÷ ({count(plan.output_tokens_per_s)} tokens/s × 3,600 s)"),
    )  # fmt: skip
