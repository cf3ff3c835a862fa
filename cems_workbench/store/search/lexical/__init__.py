"""Lexical search: BM25 over segments."""
