"""The house as it is meant to be: every layer, from the most special to the most general, and what it may import."""

from __future__ import annotations

from tests.support.architecture.layers import Layer

_ANY = None
PLAIN = frozenset({"msgspec"})
"""What anybody may import."""

PURE = (
    "shared.hashing", "shared.nearest", "shared.expressions", "shared.lora_names", "shared.lora_terms",
    "shared.latencies", "shared.ttft_by_customer", "shared.json_values",
)  # fmt: skip
"""What cores may import besides messages."""

SERVICES = ("gateway", "registry", "placement", "autoscaler", "replica_worker")

LAYERS = (
    Layer("shared.messages", own=("shared.messages",), others=PLAIN),
    Layer("shared.contracts", own=("shared.contracts", "shared.messages"), others=PLAIN),
    Layer("shared.hashing", own=(), others=frozenset({"numpy"})),
    Layer("shared.nearest", own=("shared.hashing",), others=frozenset({"numpy"})),
    Layer("shared.bus", own=("shared.bus", "shared.contracts", "shared.messages"), others=PLAIN | {"nats"}),
    Layer("shared.store", own=("shared.store",), others=PLAIN | {"boto3", "botocore", "urllib3"}),
    Layer(
        "shared.runtime",
        own=("shared.runtime",),
        others=PLAIN | {"opentelemetry", "prometheus_client", "uvicorn", "uvloop"},
    ),
    # Services of which only one may act agree on it over the bus, by their own clocks.
    Layer(
        "shared.leadership",
        own=("shared.leadership", "shared.bus", "shared.contracts", "shared.messages", "shared.runtime.clock"),
        others=PLAIN,
    ),
    # What pipelines and the console hold in hand.
    Layer(
        "shared.pipeline",
        own=("shared.pipeline", "shared.bus", "shared.contracts", "shared.messages"),
        others=PLAIN | {"httpx"},
    ),
    # The one place in shared/ that computes: worker and console must merge to the same numbers.
    Layer(
        "shared.merging",
        own=("shared.merging", "shared.base_model", "shared.lora_names"),
        others=PLAIN | {"torch", "safetensors"},
    ),
    Layer("shared.expressions", own=(), others=frozenset({"re2"})),
    Layer("shared.lora_terms", own=("shared.expressions", "shared.lora_names"), others=PLAIN),
    Layer("shared.ttft_by_customer", own=("shared.latencies", "shared.messages"), others=PLAIN),
    Layer("shared.base_model", own=("shared.chat_templates", "shared.messages"), others=PLAIN),
    Layer("shared", own=("shared.messages",), others=PLAIN),
    Layer(r"services\.\w+\.core", own=("{service}.core", "shared.messages", *PURE), others=PLAIN),
    Layer(r"services\.\w+\.io", own=("{service}.core", "{service}.io", "shared"), others=_ANY),
    # The engine is a house within the worker: it knows its port, and nothing of tiers, buses or texts.
    Layer(
        r"services\.replica_worker\.engine",
        own=(
            *(
                "services.replica_worker.engine",
                "shared.base_model",
                "shared.json_values",
                "shared.lora_names",
                "shared.merging",
            ),
            *("shared.messages", "shared.runtime"),
        ),
        others=PLAIN | {"torch", "safetensors", "numpy", "numba", "llvmlite", "triton", "vllm", "llguidance"},
    ),
    Layer(
        r"services\.replica_worker\.text",
        own=("services.replica_worker.text", "shared.chat_templates", "shared.messages"),
        others=PLAIN | {"tokenizers", "jinja2"},
    ),
    # Tiers move adapters for whoever asks, and know of no request and no bus.
    Layer(
        r"services\.replica_worker\.tiers",
        own=(
            *(f"services.replica_worker.{name}" for name in ("tiers", "core", "io", "engine.port", "engine.watch")),
            *("shared.messages", "shared.runtime", "shared.store"),
        ),
        others=PLAIN,
    ),
    # `lorafleet up` hands over to the supervisor, `lorafleet plan` to the planner, `lorafleet load` to the driver.
    Layer(
        r"services\.console",
        own=("services.console", "shared", "infra", "loadtest.capacity", "loadtest.driver", "loadtest.workloads"),
        others=_ANY,
    ),
    Layer(r"services\.\w+", own=("{service}", "shared"), others=_ANY),
    Layer("services", own=()),
    Layer("infra", own=("infra", "shared"), others=_ANY),
    # Speaks public HTTP, and judges canaries as everybody does.
    Layer(r"loadtest\.driver", own=("loadtest", "infra.adapters.marked", "shared.messages"), others=_ANY),
    # They start fleets of their own.
    Layer(
        r"loadtest\.(bench|isolation\w*|registrations\w*|calibration|twin_validation)",
        own=("loadtest", "infra", "shared.messages"),
        others=_ANY,
    ),
    # The benchmark of engines drives ours by its port, and adapters through the tiers below it.
    Layer(
        r"loadtest\.(engine|gpu)_\w+",
        own=(
            *("loadtest", "infra", *(f"services.replica_worker.{name}" for name in ("core", "engine", "io"))),
            *("shared.base_model", "shared.messages", "shared.store"),
        ),
        others=_ANY,
    ),
    # Our front door, with workers behind it that are several to a process.
    Layer(
        r"loadtest\.(gateway_bench|fleet_live)",
        own=("loadtest", "infra", "services.replica_worker", "shared"),
        others=_ANY,
    ),
    # A whole worker on a bus in memory, to measure what it decides and not what is around it.
    Layer(
        r"loadtest\.(thrash|one_replica|cold_\w+|throttled_store)",
        own=("loadtest", "services.replica_worker", "shared"),
        others=_ANY,
    ),
    # Speaks the fleet's messages, and decides nothing that a core decides.
    Layer(
        r"loadtest\.twin",
        own=(
            *("loadtest.twin", "loadtest.workloads", "shared.messages", "shared.hashing", "shared.contracts"),
            *(f"services.{name}.core" for name in SERVICES),
        ),
        others=PLAIN | {"numpy"},
    ),
    Layer(r"loadtest\.registry_\w+", own=("loadtest", "infra", "services.registry", "shared"), others=_ANY),
    Layer(
        "loadtest",
        own=("loadtest", "shared.messages", "shared.hashing", *(f"services.{name}.core" for name in SERVICES)),
        others=_ANY,
    ),
    Layer("tests", own=("tests", "services", "shared", "infra", "loadtest"), others=_ANY),
)
