"""Vector search: exact, over quantized vectors, or by Chroma's HNSW graph."""
