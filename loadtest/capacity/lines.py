"""A plan as groups of figures, each with its formula worked out: what `lorafleet plan` prints."""

from __future__ import annotations

from loadtest.capacity import rates, size_lines
from loadtest.capacity.figures import Figure, Group, count, digits, line, said
from loadtest.capacity.plan import Plan
from loadtest.workloads import popularity
from loadtest.workloads.shape import Zipf

HOURS_PER_MONTH = 730


def groups(plan: Plan) -> tuple[Group, ...]:
    return (
        Group("One adapter", (*size_lines.matrices(plan), *size_lines.adapter(plan))),
        Group("All adapters", size_lines.all_adapters(plan)),
        Group("GPU memory", size_lines.memory(plan)),
        Group("One replica", _replica(plan)),
        Group("The fleet", (*_fleet(plan), *_traffic(plan))),
        Group("What each replica holds", _held(plan)),
        Group("Loading an adapter", _loads(plan)),
        Group("First token on an idle replica", _first_tokens(plan)),
        Group("Cost", _costs(plan)),
    )


def _replica(plan: Plan) -> tuple[Figure, ...]:
    asked = plan.question
    if asked.replica_tokens_per_s is not None:
        rate = asked.replica_tokens_per_s
        return (
            line("replica_tokens_per_s", "output", rate, "tokens/s", "as measured at the objective, prompts included"),
        )
    step, merged = said(asked.step_s, "s"), said(asked.merged_step_s, "s")
    return (
        line(
            "replica_tokens_per_s", "output with adapters", plan.replica_tokens_per_s, "tokens/s",
            f"{asked.rows} requests ÷ {step} a token",
        ),
        line(
            "merged_tokens_per_s", "output of a merged copy", rates.tokens_per_s(asked.rows, asked.merged_step_s),
            "tokens/s", f"{asked.rows} requests ÷ {merged} a token",
        ),
        line(
            "unmerged_overhead", "what adapters cost a step", asked.step_s / asked.merged_step_s - 1, "share",
            f"{step} ÷ {merged} − 1",
        ),
        line("prefill_tokens_per_s", "prompts", asked.prefill_tokens_per_s, "tokens/s", "as measured"),
    )  # fmt: skip


def _fleet(plan: Plan) -> tuple[Figure, ...]:
    asked = plan.question
    rate, busy = f"{digits(asked.rate_per_s)} requests/s", plan.decoding + plan.prefilling
    output, prompts = count(plan.output_tokens_per_s), count(plan.prompt_tokens_per_s)
    return (
        line("output_tokens_per_s", "output", plan.output_tokens_per_s, "tokens/s",
              f"{rate} × {digits(asked.output_tokens)} tokens"),
        line("prompt_tokens_per_s", "prompts", plan.prompt_tokens_per_s, "tokens/s",
              f"{rate} × {digits(asked.prompt_tokens)} tokens"),
        line("decoding", "busy with output", plan.decoding, "replicas",
              f"{output} ÷ {count(plan.replica_tokens_per_s)} tokens/s"),
        line("prefilling", "busy with prompts", plan.prefilling, "replicas",
              "in the measured rate" if asked.replica_tokens_per_s else
              f"{prompts} ÷ {count(asked.prefill_tokens_per_s)} tokens/s"),
        line("busy", "busy in all", busy, "replicas", f"{digits(plan.decoding)} + {digits(plan.prefilling)}"),
        line("replicas", "replicas", plan.replicas, "", f"⌈{digits(busy)} × {digits(asked.headroom)} headroom⌉"),
        line("utilisation", "utilisation", plan.utilisation, "share", f"{digits(busy)} ÷ {plan.replicas}"),
        line("moved_share", "placements that move when one joins or leaves", 1 / plan.replicas, "share",
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
        line("top_share", f"share of the first {top} adapters", float(shares[:top].sum()), "share", skew),
        line("filling", "adapters that fill a replica of their own", int((own >= replica).sum()), "",
              f"{skew}: the first one has {count(float(own[0]))} of {count(replica)} tokens/s"),
        line("distinct", "different adapters in a full batch", rates.distinct(shares, asked.rows), "",
              f"{skew}, {asked.rows} requests"),
        line("hot_owners", f"owners of a customer with {count(hot)} tokens/s",
              rates.owners_for(hot, replica, asked.owners), "", f"⌈{count(hot)} ÷ {count(replica)}⌉"),
    )  # fmt: skip


def _held(plan: Plan) -> tuple[Figure, ...]:
    asked, size = plan.question, said(plan.adapter_bytes, "bytes")
    ram = plan.owned * plan.adapter_bytes
    return (
        line("owned", "adapters", plan.owned, "",
              f"⌈{count(asked.adapters)} × {asked.owners} owners ÷ {plan.replicas} replicas⌉"),
        line("ram_bytes", "host RAM", ram, "bytes", f"{count(plan.owned)} × {size}"),
        line("disk_bytes", "disk", ram + plan.base_bytes, "bytes",
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
        line(name, label, rates.load_s(size, link), "s", f"{said(size, 'bytes')} ÷ {said(link, 'bytes')}/s")
        for name, label, size, link in hops
    )
    warm_s = plan.owned * lines[0].value
    filling = line("warm_s", "all that a new replica owns", warm_s, "s", f"{count(plan.owned)} × {lines[0].text}")
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
        line(f"ttft_{tier}_s", f"adapter {where}", prompt_s + steps * asked.step_s + sum(loads), "s",
              " + ".join([f"prompt {said(prompt_s, 's')}", f"{steps} × step {said(asked.step_s, 's')}",
                          *(f"load {said(load, 's')}" for load in loads)]))
        for tier, where, loads in ways
    )  # fmt: skip


def _costs(plan: Plan) -> tuple[Figure, ...]:
    asked, price = plan.question, plan.question.usd_per_gpu_hour
    alone = asked.adapters * price
    per_million = rates.usd_per_million_tokens(plan.usd_per_hour, plan.output_tokens_per_s)
    return (
        line("usd_per_hour", "this fleet", plan.usd_per_hour, "USD/h", f"{plan.replicas} × {digits(price)} USD/h"),
        line("dedicated_usd_per_hour", "a GPU for every adapter", alone, "USD/h",
              f"{count(asked.adapters)} × {digits(price)} USD/h"),
        line("times_cheaper", "times cheaper", asked.adapters / plan.replicas, "",
              f"{count(asked.adapters)} ÷ {plan.replicas}"),
        line("usd_per_month", "this fleet in a month", plan.usd_per_hour * HOURS_PER_MONTH, "USD",
              f"{HOURS_PER_MONTH} h × {count(plan.usd_per_hour)} USD/h"),
        line("dedicated_usd_per_month", "a GPU for every adapter in a month", alone * HOURS_PER_MONTH, "USD",
              f"{HOURS_PER_MONTH} h × {count(alone)} USD/h"),
        line("usd_per_million_tokens", "a million output tokens", per_million, "USD",
              f"{count(plan.usd_per_hour)} USD/h ÷ ({count(plan.output_tokens_per_s)} tokens/s × 3,600 s)"),
    )  # fmt: skip
