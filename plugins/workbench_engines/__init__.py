"""Lexical engines beyond our own: Lucene, FTS5 of SQLite, and sparse BM25 vectors (docs/internals/extending.md)."""
