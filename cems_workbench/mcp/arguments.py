"""Arguments of the tools, with their bounds and the description that an agent reads. An empty text means "not given"."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

MOST_QUERY, MOST_NAME, MOST_TEXT, MOST_PAGE = 20_000, 500, 100_000, 100

QueryText = Annotated[
    str, Field(min_length=1, max_length=MOST_QUERY, description="The query, in the words that failed.")
]
MemoryId = Annotated[
    str, Field(min_length=1, max_length=MOST_NAME, description="Id of a memory; find_memories finds it by its text.")
]
MemoryNamed = Annotated[
    str,
    Field(min_length=1, max_length=MOST_QUERY, description="Id of a memory, or a piece of its text that no other has."),
]
FollowedId = Annotated[str, Field(max_length=MOST_NAME, description="Id of a memory to follow; empty for none.")]
ConfigName = Annotated[
    str,
    Field(
        max_length=MOST_NAME,
        description="A preset, a config saved in the store (overview lists them), or the path of a config file; empty: the default.",
    ),
]
Changes = Annotated[
    dict[str, Any] | None,
    Field(
        max_length=60,
        description='New values by parameter, such as {"fusion.k": 30, "rerank.backend": "none"}; parameters lists them.',
    ),
]
SaidText = Annotated[
    str,
    Field(min_length=1, max_length=MOST_TEXT, description="What the agent said, one sentence or more."),
]
ForQuery = Annotated[
    str, Field(max_length=MOST_QUERY, description="The query it was asked; empty: only look for support.")
]
Project = Annotated[
    str,
    Field(
        max_length=MOST_NAME,
        description="Project of the query, org/repo; adjust.project of the config decides its effect.",
    ),
]
OnlyProject = Annotated[bool, Field(description="Search only memories of that project.")]
AsOf = Annotated[
    str, Field(max_length=60, description="Time of the query, ISO 8601, from which ages are computed; empty: now.")
]
Variants = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MOST_QUERY)]] | None,
    Field(max_length=10, description="Additional query variants to search."),
]
Traced = Annotated[
    str,
    Field(
        max_length=MOST_NAME,
        description="A query set of external traces: explain the stages recorded there instead of searching.",
    ),
]
Explain = Annotated[
    bool, Field(description="Also rank and score of each candidate in every list and stage, and what they are made of.")
]
Limit = Annotated[int, Field(ge=1, le=MOST_PAGE, description="Rows to give.")]
Offset = Annotated[int, Field(ge=0, le=1_000_000_000, description="Rows to skip: next_offset of the previous page.")]
QuerySet = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MOST_NAME,
        description="A query set of the store, `all` for every query, or the path of an evidence file.",
    ),
]
Measures = Annotated[str, Field(max_length=MOST_NAME, description="Measures, such as `hit@5 nDCG@10`.")]
Queries = Annotated[
    int,
    Field(ge=0, le=1_000_000, description="Measure a fixed sample of this many judged queries; 0: all."),
]
Cutoff = Annotated[int, Field(ge=1, le=1_000_000, description="A memory below this rank counts as lost.")]
OwnCutoff = Annotated[
    int, Field(ge=0, le=1_000_000, description="A memory below this rank counts as lost; 0: the config's result limit.")
]
Seconds = Annotated[
    int, Field(ge=1, le=600, description="Time limit for searching queries in this call; the next call resumes.")
]
