"""Memories in PostgreSQL: tables of a CEMS server (`cems`), of mem0 (`mem0`), or any other (`table`)."""
