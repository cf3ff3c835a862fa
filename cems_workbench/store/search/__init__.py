"""The two indexes that are derived from the memories, and can be rebuilt from them: words (BM25) and vectors (Chroma)."""
