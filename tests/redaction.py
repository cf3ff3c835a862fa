"""What tests of redaction share: two traces compared number by number, and the words that must be gone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Evidence, bundle_from, replay

TOLERANCE = 1e-9
TEXTS = {"id", "content", "title", "tags", "source_ref", "project", "session", "author"}


def assert_same_numbers(before: Evidence, after: Evidence, config: PipelineConfig) -> None:
    """Every number, verdict and order of the two traces is the same; texts may differ, ids are those of the same place."""
    ids = dict(zip(sorted(before.memories), sorted(after.memories), strict=True))
    _same(replay(before, config).to_json(), replay(after, config).to_json(), ids, "trace")


def _same(old: Any, new: Any, ids: dict[str, str], where: str) -> None:
    if isinstance(old, dict):
        assert isinstance(new, dict), where
        if where.endswith(".causes"):  # by name, and names are texts
            assert sorted(old.values()) == sorted(new.values()), where
            return
        assert list(old) == list(new), where
        for key, value in old.items():
            _same(value, new[key], ids, f"{where}.{key}")
    elif isinstance(old, list):
        assert isinstance(new, list) and len(old) == len(new), where
        for i, value in enumerate(old):
            _same(value, new[i], ids, f"{where}[{i}]")
    elif isinstance(old, str):
        assert isinstance(new, str), where
        if re.search(r"(memory_id|duplicate_of|skipped_for_budget\[\d+\]|memory_ids\[\d+\])$", where):
            assert new == ids[old], where
    elif isinstance(old, float) and isinstance(new, float):
        assert math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=TOLERANCE), f"{where}: {old} became {new}"
    else:
        assert old == new and type(old) is type(new), f"{where}: {old!r} became {new!r}"


def telling_words(evidence: Evidence) -> set[str]:
    """Every word of four letters or more in the texts and names of an evidence, lower-cased."""
    texts = [evidence.query, evidence.project or "", *(variant.text for variant in evidence.variants)]
    for memory in evidence.memories.values():
        for name in TEXTS:
            value = getattr(memory, name)
            texts += list(value) if isinstance(value, tuple) else [value or ""]
    for models in (evidence.model_scores, evidence.judge_scores):
        texts += [score.chunk or "" for rows in models.values() for score in rows.values()]
    texts += evidence.questions.values()
    return {word.lower() for text in texts for word in re.findall(r"[^\W_]+", text) if len(word) >= 4}


def words_left(evidence: Evidence, words: set[str]) -> set[str]:
    """Which of `words` stand, whole, in the bundle of a redacted evidence; names of fields and dates are not looked at."""
    said = " ".join(_strings(bundle_from(evidence))).lower()
    return words & set(re.findall(r"[^\W_]+", said))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield re.sub(r"^\d{4}-\d\d-\d\dT[\d:.+]+$", "", value)
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)
