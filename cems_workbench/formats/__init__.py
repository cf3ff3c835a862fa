"""Reading files of other systems into records, and writing them: one module per format, and the choice between them.

Readers never raise anything but InputError, and that only when a whole file is unusable. A row that cannot be used is
a RowError in the result; every other row is kept.
"""

from cems_workbench.formats import (
    beam,
    beir,
    cells,
    cems_export,
    cems_feedback,
    facts_jsonl,
    judgments_csv,
    judgments_jsonl,
    locomo,
    longmemeval,
    memories_csv,
    memories_jsonl,
    messages_jsonl,
    qrels,
    quepid_book,
    queries_jsonl,
    ratings_csv,
    relations_jsonl,
    trec_run,
)
from cems_workbench.formats.datasets import DATASETS, DataSet, Exported, write_dataset
from cems_workbench.formats.reader import FORMATS, Reader
from cems_workbench.formats.reading import detect, read, read_path
from cems_workbench.formats.writing import FORMS, Written, write_judgments

__all__ = [
    "DATASETS",
    "FORMATS",
    "FORMS",
    "DataSet",
    "Exported",
    "Reader",
    "Written",
    "beam",
    "beir",
    "cells",
    "cems_export",
    "cems_feedback",
    "detect",
    "facts_jsonl",
    "judgments_csv",
    "judgments_jsonl",
    "locomo",
    "longmemeval",
    "memories_csv",
    "memories_jsonl",
    "messages_jsonl",
    "qrels",
    "quepid_book",
    "queries_jsonl",
    "ratings_csv",
    "read",
    "read_path",
    "relations_jsonl",
    "trec_run",
    "write_dataset",
    "write_judgments",
]
