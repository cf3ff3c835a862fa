"""Reading files of other systems into records: one module per format, and the choice between them.

Readers never raise anything but InputError, and that only when a whole file is unusable. A row that cannot be used is
a RowError in the result; every other row is kept.
"""

from cems_workbench.formats import (
    beir,
    cells,
    cems_export,
    facts_jsonl,
    locomo,
    memories_csv,
    memories_jsonl,
    messages_jsonl,
    qrels,
    queries_jsonl,
    relations_jsonl,
)
from cems_workbench.formats.reader import FORMATS, Reader
from cems_workbench.formats.reading import detect, read, read_path

__all__ = [
    "FORMATS",
    "Reader",
    "beir",
    "cells",
    "cems_export",
    "detect",
    "facts_jsonl",
    "locomo",
    "memories_csv",
    "memories_jsonl",
    "messages_jsonl",
    "qrels",
    "queries_jsonl",
    "read",
    "read_path",
    "relations_jsonl",
]
