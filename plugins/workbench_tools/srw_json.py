"""Judgments as JSON for the OpenSearch Search Relevance Workbench, as `PUT _plugins/_search_relevance/judgments` takes them.

    {"name", "description", "type": "IMPORT_JUDGMENT", "judgmentRatings": [{"query", "ratings": [{"docId", "rating": "3.0"}]}]}

A query is named by its words, and a rating is text: the importer casts it to String and reads it as a float. What is written is read as
`quepid-json`, which has every JSON form of judgments by words.

Source: RestPutJudgmentAction.java, ImportJudgmentsProcessor.java and TextValidationUtil.java of opensearch-project/search-relevance at
d8be5d1, June 2025.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import Format, JudgmentWriter
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput
from workbench_tools import quepid_json

NAME = "srw-json"
TITLE = "Judgments of the CEMS Workbench"
"""Without quotes, backslashes and < >, which the importer refuses in a name."""


def write(judgments: Iterable[Judgment], words: Mapping[str, str]) -> str:
    """The judgments as one document; `words` are those of each qid. The judge is not written: there must be one grade per pair."""
    rated: dict[str, list[dict[str, Any]]] = {}
    for each in judgments:
        rated.setdefault(words[each.qid], []).append({"docId": each.memory_id, "rating": f"{each.grade}.0"})
    ratings = [{"query": query, "ratings": rows} for query, rows in rated.items()]
    document = {"name": TITLE, "description": TITLE, "type": "IMPORT_JUDGMENT", quepid_json.RATINGS: ratings}
    return f"{json.dumps(document, ensure_ascii=False, indent=1)}\n"


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; raises InputError as `quepid_json.read` does."""
    return replace(quepid_json.read(path, progress), format=NAME)


def sniff(sample: Sample) -> bool:
    """Never: `quepid-json` recognises all JSON of judgments by words."""
    return False


FORMAT = Format(
    NAME,
    "OpenSearch judgments as JSON to import there (read as quepid-json)",
    order=3,
    sniff=sniff,
    read=read,
    suffixes=(".json",),
    judgments=JudgmentWriter(write, by_words=True, judges=False, place=5),
    place=25,
    shape="one object with judgmentRatings",
)
