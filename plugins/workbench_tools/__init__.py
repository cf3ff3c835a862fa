"""Formats of other tools: spans and traces, Quepid, the Search Relevance Workbench, RAGAS, ranx, notes, memory libraries, and CEMS."""
