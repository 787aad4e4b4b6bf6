"""The words of `lorafleet evals` and `lorafleet pipelines`."""

from __future__ import annotations

import argparse
from pathlib import Path

from services.console.commands import evals, pipelines
from services.console.leaves import group, leaf, number


def add_evaluations(commands: argparse._SubParsersAction) -> None:
    _evals(group(commands, "evals", "what a version must pass before it is activated"))
    _pipelines(group(commands, "pipelines", "keys with which pipelines sign their own evaluations"))


def _evals(evaluations: argparse._SubParsersAction) -> None:
    made = leaf(evaluations, "set", evals.save, "give a tenant, or one adapter, an evaluation set")
    made.add_argument("file", type=Path, help="one case a line, as JSON")
    made.add_argument("--tenant", required=True)
    made.add_argument("--adapter", help="for this adapter alone, which may be still to come")
    made.add_argument("--minimum-score", type=number, help="from 0 to 1 (default 0.5)")
    made.add_argument("--epsilon", type=number, help="how much worse than its predecessor it may be (default 0.02)")
    listing = leaf(evaluations, "list", evals.listing, "all evaluation sets, the latest first")
    listing.add_argument("--tenant")
    show = leaf(evaluations, "show", evals.show, "an adapter's last evaluation: the verdict, and every case")
    show.add_argument("adapter_id")
    override = leaf(evaluations, "override", evals.override, "activate an adapter against its evaluation")
    override.add_argument("adapter_id")
    override.add_argument("--by", required=True, help="who decides")
    override.add_argument("--reason", required=True, help="why; at least 10 characters")
    post = leaf(evaluations, "post", evals.post, "post and sign the results of a pipeline's own evaluation")
    post.add_argument("adapter_id")
    post.add_argument("--key", required=True, type=Path, metavar="FILE", help="the private Ed25519 key, PEM")
    post.add_argument("--score", required=True, type=number, help="from 0 to 1")
    post.add_argument("--predecessor-score", type=number, help="of the version that it replaces")
    post.add_argument("--notes", default="")


def _pipelines(keys: argparse._SubParsersAction) -> None:
    add = leaf(keys, "add-key", pipelines.add_key, "believe what is signed with a key")
    add.add_argument("file", type=Path, help="an Ed25519 key, PEM; of a private one only the public half is sent")
    add.add_argument("--name", required=True)
    add.add_argument("--tenant", default="", help="only for this tenant's adapters")
    leaf(keys, "list", pipelines.listing, "all keys")
    leaf(keys, "revoke", pipelines.revoke, "believe a key no more").add_argument("key_id")
