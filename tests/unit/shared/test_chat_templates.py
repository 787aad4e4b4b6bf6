"""Which template of a folder counts, and how it has tools called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.chat_templates import Templates, read_templates, tool_parser_of
from tests.support.tiny_model import CHAT_TEMPLATE
from tests.support.tool_templates import BRACKETED_CALLS, HERMES, KEYED_CALLS, LLAMA3, NO_TOOLS, XML_CALLS


@pytest.mark.parametrize(
    ("template", "parser"),
    [
        (HERMES, "hermes"),
        (LLAMA3, "llama3_json"),
        (XML_CALLS, ""),
        (KEYED_CALLS, ""),
        (BRACKETED_CALLS, ""),
        (NO_TOOLS, ""),
        (CHAT_TEMPLATE, ""),
        ("", ""),
    ],
)
def test_the_form_of_a_call_is_read_from_the_template(template: str, parser: str) -> None:
    assert tool_parser_of(template) == parser


def test_a_file_counts_before_the_config_and_lists_are_understood(tmp_path: Path) -> None:
    assert read_templates(tmp_path) is None
    config = tmp_path / "tokenizer_config.json"
    config.write_text("{}")
    assert read_templates(tmp_path) is None
    config.write_text(json.dumps({"chat_template": "old"}))
    assert read_templates(tmp_path) == Templates(default="old")
    several = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    config.write_text(json.dumps({"chat_template": several}))
    assert read_templates(tmp_path) == Templates(default="a", tool_use="b")
    (tmp_path / "chat_template.jinja").write_text("new")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("new too")
    assert read_templates(tmp_path) == Templates(default="new", tool_use="new too")


@pytest.mark.parametrize(("text", "sentence"), [("{", "is not JSON"), ("[]", "is not a JSON object")])
def test_a_broken_config_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(text)
    with pytest.raises(ValueError, match=rf"tokenizer_config.json {sentence}"):
        read_templates(tmp_path)
