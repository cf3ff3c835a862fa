"""The windows of the packaged embedder."""

from __future__ import annotations

import pytest

from cems_workbench.models.chunking import cutter
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import titled


@pytest.mark.models
def test_no_window_is_cut_by_the_embedder(resources: Resources) -> None:
    embedder = resources.embedder
    assert isinstance(embedder, TokenEmbedder)
    title = "How the database was moved"
    content = "The migration of getUserById to PostgreSQL-18 took unexpectedly long; 日本語 too, naïvely. " * 60
    (pieces,) = cutter("embedder", embedder).cut([(title, content)])
    assert len(pieces) > 3
    assert embedder.truncated([titled(title, content)]) == [True]
    assert not any(embedder.truncated([titled(title, piece.text) for piece in pieces]))
    assert all(content[piece.start :].startswith(piece.text) for piece in pieces)
    assert pieces[-1].start + len(pieces[-1].text) == len(content)
