"""Wrong by which modules are meant: names that are none, expressions that nobody matches, or other modules."""

from __future__ import annotations

import numpy as np

from tests.support.adapter_files import Recipe, name_of
from tests.support.corpus.bad import Bad, faults

_FIELD = "target_modules"
_WITHOUT, _NOT_TARGETED = ("target_without_tensors", _FIELD), ("module_not_targeted", _FIELD)
_ENDLESS = r"((model|layers|\w|\.)*)*!"
"""Python's `re` would try every way to cut a name into pieces before it gave up."""

_OF_X = {
    f"base_model.model.model.layers.0.self_attn.x_proj.lora_{side}.weight": np.zeros(shape, np.float16)
    for side, shape in (("A", (4, 16)), ("B", (16, 4)))
}

TARGETS: dict[str, Bad] = {
    "no target": Bad(faults=faults(("targets_empty", _FIELD), _NOT_TARGETED), said={_FIELD: ()}),
    "a target twice": Bad(
        faults=faults(("targets_repeated", _FIELD)), said={_FIELD: ("q_proj", "down_proj", "q_proj")}
    ),
    "an expression in a list": Bad(
        faults=faults(("target_invalid", _FIELD), _WITHOUT, _NOT_TARGETED), said={_FIELD: ("q_proj", r".*\.down_proj")}
    ),
    "c07 a target that the base lacks": Bad(
        faults=faults(("module_unknown", _FIELD), _WITHOUT), said={_FIELD: ("q_proj", "down_proj", "c_attn")}
    ),
    "c07 tensors of a module that the base lacks": Bad(
        faults=faults(("module_unknown", _FIELD), *(("module_unknown", name) for name in _OF_X)),
        tensors=_OF_X,
        said={_FIELD: ("q_proj", "down_proj", "x_proj")},
    ),
    "c06 a target without tensors": Bad(faults=faults(_WITHOUT), said={_FIELD: ("q_proj", "down_proj", "v_proj")}),
    "c06 tensors of no target": Bad(
        faults=faults(_NOT_TARGETED),
        recipe=Recipe(targets=("q_proj", "down_proj", "v_proj")),
        said={_FIELD: ("q_proj", "down_proj")},
    ),
    "a bare name for an expression": Bad(faults=faults(_WITHOUT, _NOT_TARGETED), said={_FIELD: "q_proj"}),
    "an expression that means more than the file has": Bad(
        faults=faults(_WITHOUT), said={_FIELD: r".*\.(q|down|up)_proj"}
    ),
    "an expression that means less than the file has": Bad(faults=faults(_NOT_TARGETED), said={_FIELD: r".*\.q_proj"}),
    "an expression, and a layer of it without tensors": Bad(
        faults=faults(_WITHOUT), recipe=Recipe(layers=(0,)), said={_FIELD: r".*\.(q|down)_proj"}
    ),
    "all-linear, and a file with two modules": Bad(faults=faults(_WITHOUT), said={_FIELD: "all-linear"}),
    "no regular expression": Bad(faults=faults(("expression_invalid", _FIELD)), said={_FIELD: r".*\.(q|down_proj"}),
    "a look-ahead": Bad(faults=faults(("expression_not_served", _FIELD)), said={_FIELD: r".*\.(?!k)(q|down)_proj"}),
    "a back reference": Bad(
        faults=faults(("expression_not_served", _FIELD)), said={_FIELD: r".*\.((q|down)_proj|\1x)"}
    ),
    "an expression longer than any": Bad(
        faults=faults(("expression_not_served", _FIELD)), said={_FIELD: "|".join(["q_proj"] * 1000)}
    ),
    "an expression that would not end": Bad(faults=faults(_WITHOUT, _NOT_TARGETED), said={_FIELD: _ENDLESS}),
    "an exclusion that nobody matches": Bad(
        faults=faults(("expression_not_served", "exclude_modules"), _WITHOUT),
        said={_FIELD: r".*\.[a-z]+_proj"},
        config={"exclude_modules": r".*\.(?!q|down).*"},
    ),
    "c50 a pattern that would not end": Bad(
        faults=faults(("pattern_unused", f"rank_pattern[{_ENDLESS!r}]")), said={"rank_pattern": {_ENDLESS: 4}}
    ),
    "c50 a pattern that means nothing": Bad(
        faults=faults(("pattern_unused", "rank_pattern['k_proj']"), ("pattern_unused", "alpha_pattern['[kv]_proj']")),
        said={"rank_pattern": {"k_proj": 4}, "alpha_pattern": {"[kv]_proj": 4.0}},
    ),
    "c50 patterns that nobody matches": Bad(
        faults=faults(
            ("expression_not_served", "rank_pattern['(?<=self_attn.)q_proj']"),
            ("expression_invalid", "alpha_pattern['*_proj']"),
        ),
        said={"rank_pattern": {"(?<=self_attn.)q_proj": 4}, "alpha_pattern": {"*_proj": 4.0}},
    ),
    "a module that is missing in one half of one layer": Bad(
        faults=faults(("half_missing", name_of(1, "q_proj", "A"))), without=(name_of(1, "q_proj", "B"),)
    ),
}
