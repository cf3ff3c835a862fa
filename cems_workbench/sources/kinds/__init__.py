"""Kinds of sources, a module each: `address` finds them."""
