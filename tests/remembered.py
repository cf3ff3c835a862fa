"""What the packaged models gave: a pair, or a short text, that several tests of a worker ask for is run once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from cems_workbench.models.minilm_embedder import Network
from cems_workbench.models.minilm_judge import Weights
from cems_workbench.models.protocol import Float32, PairScore

MOST_IDS = 40
"""Of a text whose vectors are kept: 60 KB."""
run_pair, run_texts = Weights.pair, Network.read
_pairs: dict[tuple[Any, ...], PairScore] = {}
_texts: dict[tuple[Any, ...], Float32] = {}


def pair(weights: Weights, query: Sequence[int], text: str) -> PairScore:
    """`Weights.pair`; a session that is kept as part of a key stays the one that was asked."""
    key = (weights.session, weights.agreement, *query, text)
    if key not in _pairs:
        _pairs[key] = run_pair(weights, query, text)
    return _pairs[key]


def read(network: Network, texts: Sequence[Sequence[int]]) -> Float32:
    """`Network.read`; several texts at once are always run."""
    if len(texts) > 1 or len(texts[0]) > MOST_IDS:
        return run_texts(network, texts)
    key = (network.session, *texts[0])
    if key not in _texts:
        _texts[key] = run_texts(network, texts)
    return _texts[key].copy()


@contextmanager
def remembered_runs() -> Iterator[None]:
    """Not for tests of the models themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Weights, "pair", pair)
        patch.setattr(Network, "read", read)
        yield
