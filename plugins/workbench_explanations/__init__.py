"""Explanations that live memory systems print: evidence that replays without store, model or access, and the formula behind its scores."""
