"""Lucene's full-text search, computed without a JVM: the words of its standard analyzer, its BM25, its fuzzy clauses."""
