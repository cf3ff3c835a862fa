"""Any history of adds, edits and deletes of the lexical index gives what an index made anew of what is there gives, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cems_workbench.progress import silent
from cems_workbench.store import Filter
from cems_workbench.store.search import lexical_index, lexical_segment
from cems_workbench.store.search.directory import Manifest, segments_of
from cems_workbench.store.search.entries import Document
from cems_workbench.store.search.lexical_index import LexicalIndex, TextRank
from cems_workbench.store.search.tokenizer import tokenize
from tests.thoroughly import EXAMPLES

WORDS = ("alpha", "beta", "gamma", "delta", "running", "runs", "getUserById", "v1.2.3", "the", "Zürich")
WHERE = (Filter(), Filter("p", only_project=True), Filter(scope="shared"), Filter("q", True, "personal"))
texts = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
parts = st.lists(texts, max_size=3).map(lambda found: tuple(enumerate(found)))
ids = st.sampled_from([f"m{number}" for number in range(12)] + ["ä", "m1\x1f2"])
documents = st.builds(
    Document, ids, texts, st.sampled_from([None, "p", "q"]), st.sampled_from(["personal", "shared"]), parts
)
changes = st.tuples(st.lists(documents, max_size=6, unique_by=lambda each: each.id), st.lists(ids, max_size=3))


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Segments are merged early, in several blocks, and the best are looked for as among many."""
    monkeypatch.setattr(lexical_segment, "FANOUT", 2)
    monkeypatch.setattr(lexical_segment, "MAX_TOKENS", 25)
    monkeypatch.setattr(lexical_segment, "BLOCK_POSTINGS", 5)
    monkeypatch.setattr(lexical_index, "BLOCK_TEXTS", 2)
    yield


def opened(home: Path, manifest: Manifest, hidden: frozenset[str] = frozenset()) -> LexicalIndex:
    return LexicalIndex.open(home, segments_of(manifest), hidden)


def anew(home: Path, live: dict[str, Document]) -> LexicalIndex:
    return opened(home, lexical_segment.update(home, (), (), iter(live.values()), len(live), 1, silent))


def standing(index: LexicalIndex, query: str, name: str, where: Filter) -> TextRank | None:
    """Where a memory stands, read off all hits."""
    hits = index.search_chunks(query, 1_000, where)
    place = next((place for place, (memory_id, _, _) in enumerate(hits) if memory_id == name), None)
    if place is None:
        return None
    _, score, chunk = hits[place]
    return TextRank(len({memory_id for memory_id, _, _ in hits[:place]}) + 1, score, chunk, place + 1)


def by_bm25s(live, query, k1=1.5, b=0.75):
    """All hits with the scores that bm25s has in its own index, in our order."""
    import bm25s

    rows = [
        (each.id, number, tokenize(text))
        for each in live.values()
        for number, text in each.chunks or ((None, each.text),)
    ]
    numbers: dict[str, int] = {}
    terms = [[numbers.setdefault(term, len(numbers)) for term in found] for _, _, found in rows]
    if not numbers:
        return []
    built = bm25s.BM25(method="lucene", k1=k1, b=b)
    built.index((terms, numbers), create_empty_token=False, show_progress=False)
    data, places, starts = (built.scores[name] for name in ("data", "indices", "indptr"))
    scores = np.zeros(len(rows), np.float32)
    for term in sorted(tokenize(query)):
        if term in numbers:
            posting = slice(starts[numbers[term]], starts[numbers[term] + 1])
            np.add.at(scores, places[posting], data[posting])
    hits = [(name, float(score), number) for (name, number, _), score in zip(rows, scores, strict=True) if score > 0]
    return sorted(hits, key=lambda hit: (-hit[1], hit[0], -1 if hit[2] is None else hit[2]))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(changes, min_size=1, max_size=8), st.lists(texts, min_size=1, max_size=3))
def test_any_history_scores_as_an_index_made_anew(history, asked):
    live: dict[str, Document] = {}
    manifest: Manifest | None = None
    with TemporaryDirectory() as folder:
        home = Path(folder) / "grown"
        for put, removed in history:
            new = {each.id: each for each in put if each.id not in removed}
            changed = sorted({*new, *removed})
            live = {name: each for name, each in live.items() if name not in changed} | new
            manifest = lexical_segment.update(
                home, segments_of(manifest), changed, iter(new.values()), len(new), 1, silent
            )
        assert manifest is not None
        grown, fresh = opened(home, manifest), anew(Path(folder) / "fresh", live)
        assert (grown.document_count, grown.mean_length) == (fresh.document_count, fresh.mean_length)
        assert manifest.rows == grown.document_count
        assert (dict(grown.words), dict(grown.vocabulary)) == (dict(fresh.words), dict(fresh.vocabulary))
        for query in asked:
            assert grown.search_chunks(query, 100) == by_bm25s(live, query)
            for k1, b in ((1.2, 0.75), (0.0, 0.0), (3.0, 1.0)):
                assert grown.weighted(k1, b).search_chunks(query, 100) == by_bm25s(live, query, k1, b)
            for k in (1, 2, 5):
                for where in WHERE:
                    assert grown.search_chunks(query, k, where) == fresh.search_chunks(query, k, where)
            for name in live:
                terms = tokenize(query)
                for where in WHERE[:2]:
                    assert grown.rank_of(query, name, where) == standing(grown, query, name, where)
                assert grown.chunk_contributions(name, terms) == fresh.chunk_contributions(name, terms)
            some = frozenset([*live][::3])
            without = opened(home, manifest, some)
            for name in live:
                assert without.rank_of(query, name) == standing(without, query, name, WHERE[0])
        gone = {name for _, removed in history for name in removed} - live.keys()
        assert all(grown.chunk_contributions(name, ["alpha"]) == {} for name in gone)


def test_files_of_what_is_merged_or_gone_are_removed(tmp_path: Path) -> None:
    manifest: Manifest | None = None
    for number in range(20):
        document = Document(f"m{number % 7}", f"word{number} alpha", None, "personal")
        manifest = lexical_segment.update(
            tmp_path, segments_of(manifest), [document.id], iter([document]), 1, number, silent
        )
    assert manifest is not None
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", "verified.json", *manifest.files}
    assert len(manifest.segments) < 6
    names = [f"m{number}" for number in range(7)]
    manifest = lexical_segment.update(tmp_path, segments_of(manifest), names, iter(()), 0, 99, silent)
    assert (manifest.rows, list(manifest.segments)) == (0, [])
    assert opened(tmp_path, manifest).search("alpha", 5) == []


def test_a_first_page_of_equal_scores_stands_by_id_over_all_segments(tmp_path: Path) -> None:
    manifest: Manifest | None = None
    for number in (5, 3, 9, 1, 7):
        rows = [Document(f"m{number}{letter}", "same words", None, "personal") for letter in "ab"]
        manifest = lexical_segment.update(tmp_path, segments_of(manifest), [], iter(rows), 2, number, silent)
    assert manifest is not None
    assert [name for name, _ in opened(tmp_path, manifest).search("same", 5)] == ["m1a", "m1b", "m3a", "m3b", "m5a"]
