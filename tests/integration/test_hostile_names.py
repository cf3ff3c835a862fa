"""A store whose every text acts on a terminal: no command lets it, and JSON keeps the values."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Command

pytestmark = pytest.mark.models
ESC = "\x1b]0;title\x07\x1b[31m\x9b2J\u202e\u2066"
SHOWN = "\u200d é 漢 🙂"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of memories, queries and judgments, and a config, with escapes in every text."""
    folder = tmp_path / f"in{ESC}"
    folder.mkdir()
    texts = {name: f"{name} {ESC} deploy {SHOWN}" for name in ("content", "title", "category", "project", "author")}
    rows = [{"id": f"m{n}{ESC[10:]}" if n == 2 else f"m{n}", "tags": [ESC], ESC: 1, **texts} for n in range(3)]
    (folder / f"memories{ESC}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + f'{{"{ESC}"')
    (folder / "queries.jsonl").write_text(json.dumps({"qid": "q1", "query": f"deploy {ESC}"}) + "\n")
    (folder / "judgments.jsonl").write_text(
        json.dumps({"qid": "q1", "memory_id": "m1", "grade": 3, "judge": "human:a"}) + "\n"
    )
    (tmp_path / "c.yaml").write_text(
        json.dumps({"name": f"mine {ESC}", "rerank": {"backend": "none"}, "judge": {"backend": "none"}})
    )
    (tmp_path / f"bad{ESC}.yaml").write_text(json.dumps({ESC: 1}))
    return folder


def test_no_command_writes_what_acts_on_a_terminal(command: Command, hostile: Path, tmp_path: Path) -> None:
    store, config, query = ("--store", tmp_path / "store"), tmp_path / "c.yaml", f"deploy {ESC}"
    evidence = tmp_path / "e.evidence"
    runs = (
        ("import", hostile, *store, "--query-set", "names"),
        ("config-history", "--add", config, *store),
        ("config-history", *store),
        ("search", query, "--config", config, "--project", ESC, *store),
        ("why", query, "m1", "--config", config, *store),
        ("search", query, "--config", tmp_path / f"bad{ESC}.yaml", *store),
        ("search", query, "--set", f"{ESC}=1", *store),
        ("gather", "names", "--out", evidence, "--config", config, *store),
        ("evaluate", evidence, "--config", config, *store),
        ("replay", tmp_path / f"none{ESC}"),
        ("judgments", "--query-set", ESC, *store),
        ("search", query, "--json", "--config", config, *store),
    )
    said = []
    for run in runs:
        finished = command(*run)
        said.append(finished.out + finished.err)
        acting = {c for c in said[-1] if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\u200d"}
        assert not acting and "Traceback" not in said[-1], (run[0], acting, said[-1])
    assert SHOWN in said[3] and ESC in json.loads(said[-1])["query"]
