"""Memories in PostgreSQL: of a CEMS server (`cems`), of mem0 (`mem0`), or in a table of one's own (`table`)."""
