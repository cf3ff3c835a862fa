"""The shared golden cases: numbers computed independently of this project, reproduced to 1e-9."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.config import load_config
from cems_workbench.pipeline import Trace, read_bundle, replay

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT.parent / "shared" / "golden"
CASES = sorted(folder for folder in GOLDEN.iterdir()) if GOLDEN.is_dir() else []
TOLERANCE = 1e-9

pytestmark = pytest.mark.skipif(not CASES, reason="the shared golden cases are not beside the checkout")


def same(actual: Any, expected: Any, where: str) -> None:
    """Compare what the case states; the trace may say more."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            assert key in actual, f"{where}.{key} is missing"
            same(actual[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), f"{where}: {len(actual)} entries, expected {len(expected)}"
        for i, value in enumerate(expected):
            same(actual[i], value, f"{where}[{i}]")
    elif isinstance(expected, float) or (isinstance(expected, int) and not isinstance(expected, bool)):
        assert actual == pytest.approx(expected, rel=0, abs=TOLERANCE), where
    else:
        assert actual == expected, where


def assert_case(values: dict[str, Any], expected: dict[str, Any]) -> None:
    """Check a trace in its JSON form against a case's expected.json."""
    stages = {stage["name"]: stage for stage in values["stages"]}
    for name in ("fusion", "rerank", "adjust"):
        if name in expected:
            kept = [row for row in stages[name]["rows"] if row["kept"]]
            same(kept, expected[name], name)
    if "rerank_flagged" in expected:
        flagged = sorted(row["memory_id"] for row in stages["rerank"]["rows"] if row["flagged"])
        assert flagged == sorted(expected["rerank_flagged"])
    if "threshold" in expected:
        same(stages["threshold"], expected["threshold"], "threshold")
    if "duplicate_of" in expected:
        rows = stages["dedup"]["rows"]
        same(
            {row["memory_id"]: row["duplicate_of"] for row in rows if not row["kept"]},
            expected["duplicate_of"],
            "dedup",
        )
    same(values["results"], expected["results"], "results")
    assert values["tokens_used"] == expected["tokens_used"]
    assert values["skipped_for_budget"] == expected["skipped_for_budget"]


def trace_of(case: Path) -> Trace:
    return replay(read_bundle(case / "bundle.json"), load_config(case / "config.yaml"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_replay_reproduces_the_golden_numbers(case: Path) -> None:
    assert_case(trace_of(case).to_json(), json.loads((case / "expected.json").read_text()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_cases_in_one_batch_give_what_each_gives_alone(case: Path) -> None:
    """The query axis: a batch of every golden bundle under this config ranks each as a batch of one does."""
    from cems_workbench.pipeline.replay import run, single_table, to_table
    from cems_workbench.pipeline.stages import JUDGE

    config = load_config(case / "config.yaml")
    evidences = [read_bundle(folder / "bundle.json") for folder in CASES]
    batch = run(to_table(evidences), config).of(JUDGE).after
    for q, evidence in enumerate(evidences):
        alone = run(single_table(evidence), config).of(JUDGE).after
        assert batch.order(q).tolist() == alone.order(0).tolist()
        order = alone.order(0)
        assert batch.score[q, order] == pytest.approx(alone.score[0, order], rel=0, abs=1e-12)


def test_replay_from_the_command_line_reproduces_a_golden_case() -> None:
    case = GOLDEN / "rerank_seed_bands"
    command = [sys.executable, "-m", "cems_workbench", "replay", str(case / "bundle.json")]
    run = subprocess.run(
        [*command, "--config", str(case / "config.yaml"), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert_case(json.loads(run.stdout), json.loads((case / "expected.json").read_text()))
