"""SQLite files as sources: read beside the program that owns them, without its extensions."""
