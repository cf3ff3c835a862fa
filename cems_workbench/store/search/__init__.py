"""The derived indexes: words and vectors."""
