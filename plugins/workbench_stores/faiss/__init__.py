"""FAISS folders as sources: an index, and the memories that a library keeps beside it."""
