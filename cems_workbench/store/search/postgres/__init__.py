"""PostgreSQL's full-text search, computed without a server."""
