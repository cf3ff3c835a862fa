"""The target of a store: saved, found beside it, and what its preset wants of texts and installation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cems_workbench.cli.options import chosen_config
from cems_workbench.config import preset, with_values
from cems_workbench.config.forms.targets import SYSTEMS, completed
from cems_workbench.jobs import targets
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline.evidence import Request
from cems_workbench.pipeline.gather import gather_lists
from cems_workbench.pipeline.mismatches import lacking, mismatches, mismatches_noted
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.settings import TARGET_FILE, SavedTarget, Settings, saved_target, settings_for
from cems_workbench.sources.source import SourceInfo

WRITER = "processor/recollection-writer.ts"


@pytest.fixture
def resources(tmp_path: Path) -> Iterator[Resources]:
    opened = open_resources(Settings(store=tmp_path / "data" / "store"))
    long = Memory("long", content="the roof was mended in spring " * 120, title="Roof")
    opened.store.add(ParsedInput("x", "jsonl", memories=(long, Memory("short", content="we moved to Gera"))))
    opened.refresh()
    yield opened
    opened.close()


def test_the_target_of_a_store_decides_its_preset_unless_one_is_named(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CEMS_WORKBENCH_PRESET", raising=False)
    path = resources.store.path
    assert settings_for(path).preset == "workbench" and chosen_config(None, None, None, path).name == "workbench"
    (line, changed) = targets.choose(
        resources.store, SYSTEMS["mem0"], "mem0_keyword", {"lists.vector.scale": "inverse_l2"}
    )
    assert line == "runs in mem0: ranked with preset mem0_keyword, of mem0ai 2.2.1, where none is named"
    assert "embedded again" in changed
    config = chosen_config(None, None, ["assembly.limit=7"], path)
    assert (config.name, config.assembly.limit, config.lists.vector.scale) == ("mem0_keyword", 7, "inverse_l2")
    assert chosen_config("engram_head", None, None, path).lists.vector.scale == "cosine", "of another target"
    monkeypatch.setenv("CEMS_WORKBENCH_PRESET", "qmd")
    assert settings_for(path).preset == "qmd"


def test_words_of_an_installation_beside_the_store_are_found_and_their_absence_is_said(
    resources: Resources, tmp_path: Path
) -> None:
    engram, config = SYSTEMS["engram"], preset("engram_head").config
    assert lacking(config) == [
        "preset engram_head ranks without the words of engram: --set lists.fts5.stop_words=FOLDER/processor/"
        "recollection-writer.ts#STOP_WORDS, or connect with FOLDER beside the store"
    ]
    checkout = tmp_path / "data" / "claude-memory" / WRITER
    checkout.parent.mkdir(parents=True)
    checkout.write_text("const STOP_WORDS = new Set(['the', 'was']);\n")
    (line, *_) = targets.choose(resources.store, engram, "engram_head", {}, [resources.store.path.parent])
    assert line.endswith(f"read from it: {checkout}#STOP_WORDS")
    complete = completed(config, saved_target(resources.store.path))
    assert complete.lists.fts5.stop_words == f"{checkout}#STOP_WORDS"
    (edited,) = lacking(complete)
    assert edited.startswith(
        f"preset engram_head is of engram 10a2fe6, and {checkout} is edited, or of another version"
    )
    (missing,) = lacking(preset("openclaw").config, resources.store.path)
    assert missing.startswith(
        "preset openclaw ranks without the words of OpenClaw: --set lists.fts5.stop_words=FOLDER/node_modules"
    )
    words = tmp_path / "data" / "node_modules" / "mem0ai" / "dist" / "oss" / "index.js"
    words.parent.mkdir(parents=True)
    words.write_text("const STOP_WORDS = new Set(['the', 'was']);\n")
    (package := words.parents[2] / "package.json").write_text('{"version": "3.4.0"}')
    (other,) = lacking(preset("mem0_npm").config, resources.store.path)
    assert f"is of mem0ai 3.3.1, and {package} says 3.4.0" in other
    for without_version in ("[]", "null", '"3.4.0"', '{"version": 3}'):
        package.write_text(without_version)
        (other,) = lacking(preset("mem0_npm").config, resources.store.path)
        assert f"{words} is edited, or of another version" in other
    own = with_values(config, {"lists.fts5.stop_words": "/mine.txt"})
    assert completed(own, saved_target(resources.store.path)) == own


def test_texts_that_the_target_embeds_otherwise_are_a_line_wherever_its_preset_ranks(resources: Resources) -> None:
    config = preset("mem0").config
    (line,) = mismatches(config, resources)
    assert line == (
        "preset mem0: mem0 embeds a memory whole, and 1 memories are searched in chunks here; without the title, which "
        "1 memories have in their text here: import --preset mem0 embeds them so"
    )
    evidence = gather_lists(Request("roof"), config, resources)
    assert mismatches_noted(evidence.notes) == [line]
    assert mismatches(preset("workbench").config, resources) == []
    targets.choose(resources.store, SYSTEMS["mem0"], "mem0", {})
    resources.refresh()
    assert mismatches(config, resources) == [] and resources.store.chunks.statistics().chunks == 0


@pytest.mark.parametrize(
    ("kind", "named", "expected"),
    [
        ("engram", "", ("engram", "engram_head", {})),
        ("chroma", "mem0", ("mem0", "mem0", {"lists.vector.scale": "inverse_l2"})),
        ("qdrant", "mem0_keyword", ("mem0", "mem0_keyword", {})),
        ("langgraph", "", ("langgraph", "langgraph", {})),
        ("table", "", None),
    ],
)
def test_the_kind_of_a_source_names_its_target(kind: str, named: str, expected: object) -> None:
    found = targets.of_probe(SourceInfo(kind, kind, 1, 1, 3, preset=named))
    assert (found and (found[0].name, *found[1:])) == expected


def test_a_store_that_cannot_be_written_says_so(resources: Resources) -> None:
    file = resources.store.path / TARGET_FILE
    file.mkdir()
    (line, *_) = targets.choose(resources.store, SYSTEMS["mem0"], "mem0", {})
    assert line.startswith("runs in mem0, which could not be saved with the store: ") and str(file) in line


def test_a_target_that_is_not_known_here_changes_nothing(resources: Resources) -> None:
    saved = SavedTarget("of_a_later_version", "mem0", {"assembly.limit": 3})
    assert completed(preset("mem0").config, saved) == preset("mem0").config
