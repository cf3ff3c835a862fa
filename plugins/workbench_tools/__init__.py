"""Formats of other tools: Quepid, the Search Relevance Workbench, RAGAS, Langfuse, notes, the MCP memory server, and CEMS."""
