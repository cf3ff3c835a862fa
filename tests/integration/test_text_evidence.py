"""Text evidence on the real store: the parts of BM25 are those of the lists that a search returns."""

from __future__ import annotations

import numpy as np
import pytest

from cems_workbench.analysis.text_evidence import embedder_room, lexical_evidence, read_until
from cems_workbench.pipeline.resources import Resources
from tests.thoroughly import THOROUGH, partly, some

pytestmark = [pytest.mark.models]


@partly
def test_the_parts_of_every_hit_sum_to_its_raw_score(resources: Resources) -> None:
    lexical, memories = resources.indexes.lexical, resources.store.memories.read()
    checked = 0
    for query in some(resources.store.queries.read(), 12):
        for memory_id, score in lexical.search(query.query, 25):
            texts = resources.store.indexes.texts([memory_id])[memory_id]
            found = lexical_evidence(lexical, query.query, memories[memory_id], texts)
            assert found.score == pytest.approx(score, rel=1e-6, abs=1e-6), (query.query, memory_id)
            assert sum(map(found.share, found.terms)) == pytest.approx(1, abs=1e-6)
            assert all(term.tf > 0 for term in found.matched)
            assert all(term.tf == 0 for term in found.unmatched)
            checked += 1
    assert checked > (1200 if THOROUGH else 100)


def test_the_heat_has_the_cosines_that_the_score_was_made_of(resources: Resources) -> None:
    reader, query = resources.late_interaction(), "how do we roll back a failed deploy?"
    text = "Frontend rollback: pick the previous hash; no deploy is needed."
    found, score = reader.cosines(query, text), reader.score(query, [text])[0]
    assert found.cosine.shape == (len(found.query), len(found.text))
    assert score.raw == pytest.approx(float(found.idf @ found.cosine.max(axis=1) / found.idf.sum()), abs=1e-6)
    assert score.detail is not None
    met = [found.text[place] for place in np.argmax(found.cosine, axis=1)]
    assert [entry["text"] for entry in score.detail["alignment"]] == met


def test_the_embedder_reads_as_far_as_its_room_goes(resources: Resources) -> None:
    room = embedder_room(resources.embedder)
    assert room is not None
    long = "the deploy of the gateway failed again and was rolled back " * 60
    cut = read_until(long, room)
    assert cut is not None
    head, more = long[:cut], long[: cut + 10]
    assert room.count(head) <= room.tokens < room.count(f"{more} gateway")
    vectors = resources.embedder.encode([long, f"{head} an end that is never read"])
    assert float(vectors[0] @ vectors[1]) > 0.999
