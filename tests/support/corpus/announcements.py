"""Wrong by what is announced, whatever the file."""

from __future__ import annotations

from tests.support.adapter_files import Recipe, tensors_of
from tests.support.corpus.bad import Bad, each, faults

_TENSORS = tuple(tensors_of(Recipe()))

ANNOUNCEMENTS: dict[str, Bad] = {
    "c46 rank 0": Bad(faults=faults(("rank_invalid", "rank")), recipe=Recipe(rank=0)),
    "c46 rank -1": Bad(faults=faults(("rank_invalid", "rank"), *each("shape_invalid", _TENSORS)), said={"rank": -1}),
    "c46 rank 17 where 16 is the largest": Bad(faults=faults(("rank_too_high", "rank")), recipe=Recipe(rank=17)),
    "c46 rank 64 where 16 is the largest": Bad(faults=faults(("rank_too_high", "rank")), recipe=Recipe(rank=64)),
    "rank of another file": Bad(faults=faults(*each("shape_invalid", _TENSORS)), said={"rank": 8}),
    "c50 rank 64 in a pattern": Bad(
        faults=faults(("rank_too_high", "rank_pattern['q_proj']")), recipe=Recipe(rank_pattern={"q_proj": 64})
    ),
    "c50 rank 0 in a pattern": Bad(
        faults=faults(("rank_invalid", "rank_pattern['q_proj']")), recipe=Recipe(rank_pattern={"q_proj": 0})
    ),
    "c50 a pattern of ranks that the file does not have": Bad(
        faults=faults(*each("shape_invalid", (name for name in _TENSORS if "layers.0.self_attn" in name))),
        said={"rank_pattern": {r"layers\.0\..*": 8, "mlp.down_proj": 4}},
        # Its first key means layer 0 of both modules.
        tensors={name: one for name, one in tensors_of(Recipe(rank=8)).items() if "layers.0.mlp" in name},
    ),
    "alpha 0": Bad(faults=faults(("alpha_invalid", "alpha")), said={"alpha": 0.0}),
    "alpha below 0 in a pattern": Bad(
        faults=faults(("alpha_invalid", "alpha_pattern['q_proj']")), said={"alpha_pattern": {"q_proj": -1.0}}
    ),
    "c49 another base's hash": Bad(
        faults=faults(("base_model_unknown", "base_model_hash")),
        said={"base_model_hash": "0" * 64},
        config={"base_model_name_or_path": "corpus-base"},
    ),
    "c49 a path for a hash": Bad(
        faults=faults(("base_model_invalid", "base_model_hash")), said={"base_model_hash": "/models/corpus-base"}
    ),
    "a checksum of other bytes": Bad(faults=faults(("checksum_mismatch", "checksum")), said={"checksum": "0" * 64}),
    "a checksum in capitals": Bad(
        faults=faults(("checksum_invalid", "checksum"), ("checksum_mismatch", "checksum")),
        said={"checksum": "A" * 64},
    ),
    "c54 an id that is a path": Bad(
        faults=faults(("adapter_id_invalid", "adapter_id")), said={"adapter_id": "../../etc"}
    ),
    "c54 an id with a NUL": Bad(faults=faults(("adapter_id_invalid", "adapter_id")), said={"adapter_id": "a\0b"}),
    "c54 an id of 4 kB": Bad(faults=faults(("adapter_id_invalid", "adapter_id")), said={"adapter_id": "x" * 4096}),
    "an unknown tenant": Bad(faults=faults(("tenant_unknown", "tenant_id")), said={"tenant_id": "globex"}),
    "a tenant that cannot be": Bad(faults=faults(("tenant_invalid", "tenant_id")), said={"tenant_id": "Acme"}),
    "a version of two lines": Bad(faults=faults(("version_invalid", "version")), said={"version": "1\n2"}),
    "c62 an alias in capitals": Bad(faults=faults(("alias_invalid", "alias")), said={"alias": "acme/Support"}),
    "c62 an alias of another tenant": Bad(faults=faults(("alias_foreign", "alias")), said={"alias": "globex/support"}),
    "an evaluator that is none": Bad(
        faults=faults(("evaluated_by_invalid", "evaluated_by")), said={"evaluated_by": "nobody at all"}
    ),
    "a predecessor and a data set that cannot be": Bad(
        faults=faults(("predecessor_invalid", "predecessor_id"), ("dataset_uri_invalid", "dataset_uri")),
        said={"predecessor_id": "a/../b", "dataset_uri": "s3://a\0b"},
    ),
    "a predecessor that there is not": Bad(
        faults=faults(("predecessor_unknown", "predecessor_id")), said={"predecessor_id": "nobody"}
    ),
}
