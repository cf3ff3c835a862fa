"""Formats of other tools: spans and traces of OpenInference, Quepid, the Search Relevance Workbench, RAGAS, Langfuse, notes, the MCP memory server, and CEMS."""
