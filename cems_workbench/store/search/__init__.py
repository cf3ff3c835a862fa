"""The two indexes that are derived from the memories, and can be rebuilt from them: words (BM25) and vectors (Chroma)."""

TS_RANK_VERSION = "postgres-18-english-2"
"""Of the index of `postgres`. Changes when the same text gives other lexemes, or the index other files."""
