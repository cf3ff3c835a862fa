"""Lexical engines beyond our own: Lucene, SQLite's FTS5, sparse BM25 vectors, PostgreSQL's ts_rank_cd (docs/internals/extending.md)."""
