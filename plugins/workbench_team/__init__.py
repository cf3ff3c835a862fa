"""The team's tables in PostgreSQL, and the push of a store's own rows to them (docs/use/team.md)."""
