"""The directories that derived indexes are kept in."""
