"""Embedders, cross-encoders and language models."""
