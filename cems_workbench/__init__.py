"""CEMS Workbench: inspect and tune memory retrieval, stage by stage."""

__version__ = "0.1.0"
