"""The page's command line: parsed by the command line's own readers, it gives the config and the request."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.config import PipelineConfig, parse_assignment, preset, preset_names, with_values
from cems_workbench.pipeline.gather import Request
from cems_workbench.ui.inspect.share import search_command

sys.path.insert(0, str(Path(__file__).parents[2] / "property"))
from strategies import configs


def read(command: str) -> tuple[PipelineConfig, dict[str, list[str]], str]:
    """The config, the options and the query that the shell would hand to `search`."""
    words = shlex.split(command)
    assert words[:4] == ["python", "-m", "cems_workbench", "search"]
    options: dict[str, list[str]] = {}
    rest = words[4:]
    while rest and rest[0] != "--" and rest[0].startswith("--"):
        name, separator, value = rest.pop(0).partition("=")
        options.setdefault(name, []).append(value if separator or name == "--only-project" else rest.pop(0))
    rest = rest[1:] if rest[0] == "--" else rest
    assert len(rest) == 1
    changes = dict(parse_assignment(text) for text in options.get("--set", ()))
    return with_values(preset(options["--preset"][0]).config, changes), options, rest[0]


@given(configs(), st.sampled_from(preset_names()), st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_every_config_and_query_comes_back(config: PipelineConfig, name: str, query: str) -> None:
    query = query.replace("\0", "x")
    found, _, words = read(search_command(Request(query), name, config))
    assert with_values(found, {"name": config.name}) == config
    assert words == query


def test_the_command_of_an_untouched_preset_is_short() -> None:
    assert search_command(Request("where do we eat?"), "cems", preset("cems").config) == (
        "python -m cems_workbench search --preset cems 'where do we eat?'"
    )


def test_everything_that_was_asked_is_in_the_command() -> None:
    moment = datetime(2026, 9, 1, 12, 30, tzinfo=UTC)
    request = Request("--now; rm -rf '$HOME'", "org/a b", None, True, ("--x", "it's"))
    config = with_values(preset("cems").config, {"expansion.backend": "manual", "rerank.query": 'what\'s "up"\n🚀'})
    command = search_command(request, "cems", config, as_of=moment, off=(2, 1), store=Path("/tmp/a store"))
    found, options, query = read(command)
    assert found == config
    assert query == request.query
    assert options["--project"] == ["org/a b"]
    assert "--only-project" in options
    assert options["--as-of"] == ["2026-09-01T12:30:00+00:00"]
    assert options["--variant"] == ["--x", "it's"]
    assert options["--without-variant"] == ["1", "2"]
    assert options["--store"] == ["/tmp/a store"]
    assert "--set expansion.backend=manual" in command


@pytest.mark.parametrize(
    "text", ["null", "true", "no", "12", "1e3", "~", "", "a: b", "#x", "\u0085", "\u2028", "\x7f", "'"]
)
def test_texts_that_yaml_would_read_otherwise_come_back(text: str) -> None:
    config = with_values(preset("cems").config, {"rerank.instruction": text})
    assert read(search_command(Request("q"), "cems", config))[0] == config
