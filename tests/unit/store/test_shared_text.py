"""Queries in the envelope of their messages are named on import (CortexReach/memory-lancedb-pro PR#579, 2026-04-11)."""

from __future__ import annotations

import pytest

from cems_workbench.records import ParsedInput, Query
from cems_workbench.store import Store
from cems_workbench.store.query_matching import envelope_notes

ENVELOPE = 'Message: {{"id": "{0}", "sender": "U0{0}", "channel": "#ops", "thread": null, "mentioned": true}}\nFrom: ops@acme\n\n'
ASKED = ["which port does the database use", "are the keys in the vault", "say who is on call", "name the release"]


def test_an_import_names_what_its_queries_begin_with(store: Store) -> None:
    queries = tuple(Query(f"q{n}", ENVELOPE.format(7) + text) for n, text in enumerate(ASKED))
    (note,) = store.add(ParsedInput("log.jsonl", "t", queries=queries)).notes
    size = len(ENVELOPE.format(7))
    assert note == (
        f"4 queries begin with the same {size} characters, {ENVELOPE.format(7)[:40] + '…'!r}: if that is the envelope of a message, "
        'take it off, or give what is to be searched as "searched"'
    )


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([ENVELOPE.format(n) + text for n, text in enumerate(ASKED, 1)], ["4 queries begin", "but for numbers"]),
        ([f"{text}\n\n{ENVELOPE.format(7)}" for text in ASKED], ["4 queries end"]),
        ([*(ENVELOPE.format(7) + text for text in ASKED), "how", "what", "why"], ["4 queries begin"]),
        ([ENVELOPE.format(7) + ASKED[0], ENVELOPE.format(7) + ASKED[1]], ["2 queries begin"]),
        ([ENVELOPE.format(7) + ASKED[0], *ASKED], []),
        ([f"what is the port of the {name}" for name in ("database", "cache", "proxy", "queue")], []),
        ([ENVELOPE.format(7) + ASKED[0]] * 3, []),
        ([], []),
    ],
)
def test_only_what_half_of_the_queries_share_is_an_envelope(texts: list[str], said: list[str]) -> None:
    notes = envelope_notes(texts)
    assert len(notes) == bool(said) and all(part in notes[0] for part in said)
