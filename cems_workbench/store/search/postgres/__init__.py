"""The full-text index of a store, built when a config asks for it: chunks and filters around the index of `pg_text_search`."""

VERSION = "postgres-18-english-1"
"""Changes when the same text gives other lexemes, or the index other files."""
