"""Random memories, queries, judgments and relations with hostile texts and ids, times of every zone and long texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import strategies as st

from cems_workbench.records import Judgment, Memory, Query, Relation

HOSTILE = [
    "=1+1",
    "'=x",
    "''@a",
    "-2",
    "+",
    "\t=",
    "a,b",
    'say "so"',
    '"',
    "a\nb",
    "a\r\nb",
    "\rx",
    " x ",
    "\ufeffx",
    "query",
    "ＡＢ",
    "＝1",
    "x\u2028y",
    "é\u0301🙂",
    "null",
    "{}",
    "[1",
    "true",
    "007",
    "x" * 20_000,
    "a/b",
    "D1:1",
    "->-> 1",
    "[shared image: x]",
    "A: b",
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
WORDS = (TEXT | st.sampled_from(HOSTILE)).filter(lambda text: bool(text.strip()))
IDS = (TEXT | st.sampled_from([one for one in HOSTILE if len(one) < 50]) | st.integers(-9, 99).map(str)).filter(
    lambda text: bool(text.strip()) and not any(ord(c) < 32 or ord(c) == 127 for c in text)
)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-11))])
TIMES = st.none() | st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=ZONES)
WORD = st.none() | WORDS
COUNTS = st.integers(0, 2**62)
MEMORIES = st.builds(
    Memory,
    IDS,
    WORDS,
    WORD,
    WORD,
    WORD,
    WORD,
    WORD,
    st.lists(TEXT | st.just(""), max_size=3).map(tuple),
    st.floats(1, 2),
    st.booleans(),
    st.sampled_from(["low", "normal", "high"]),
    TIMES,
    TIMES,
    COUNTS,
    COUNTS,
    COUNTS,
    st.sampled_from(["personal", "shared"]),
    WORD,
)
QUERIES = st.builds(Query, IDS, WORDS, WORD, TIMES, WORD)
RELATIONS = st.builds(Relation, IDS, IDS, WORDS, st.floats(0, 1)).filter(lambda one: one.source_id != one.target_id)


def judgments(qids: st.SearchStrategy[str], ids: st.SearchStrategy[str]) -> st.SearchStrategy[Judgment]:
    """Judgments of these queries and memories, by anybody."""
    kinds = st.sampled_from(["human", "model"])
    return st.builds(Judgment, qids, ids, st.integers(-2, 3), st.sampled_from(["human", "Ann"]), kinds, TIMES, WORD)
