"""What tools take: each argument with its bounds and the words that an agent reads. An empty text is "not given"."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

MOST_QUERY, MOST_NAME, MOST_TEXT, MOST_PAGE = 20_000, 500, 100_000, 100

QueryText = Annotated[
    str, Field(min_length=1, max_length=MOST_QUERY, description="What is looked for, in the words that failed.")
]
MemoryId = Annotated[
    str, Field(min_length=1, max_length=MOST_NAME, description="Id of a memory; find_memories finds it by its words.")
]
FollowedId = Annotated[
    str, Field(max_length=MOST_NAME, description="Id of a memory whose rank is to be followed; empty for none.")
]
ConfigName = Annotated[
    str,
    Field(
        max_length=MOST_NAME,
        description="A preset, a config kept in the store (overview names them), or the path of a config file; empty: the default.",
    ),
]
Changes = Annotated[
    dict[str, Any] | None,
    Field(
        max_length=60,
        description='New values by parameter, such as {"fusion.k": 30, "rerank.backend": "none"}; parameters lists them.',
    ),
]
Project = Annotated[
    str, Field(max_length=MOST_NAME, description="The query's own project, org/repo; what it does is the config's.")
]
OnlyProject = Annotated[bool, Field(description="Search that project's memories only.")]
AsOf = Annotated[
    str, Field(max_length=60, description="Moment of the query, ISO 8601, to which ages are counted; empty: now.")
]
Expand = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MOST_QUERY)]] | None,
    Field(max_length=10, description="Further wordings of the query, searched beside it."),
]
Limit = Annotated[int, Field(ge=1, le=MOST_PAGE, description="Rows to give.")]
Offset = Annotated[int, Field(ge=0, le=1_000_000_000, description="Rows to pass over: next_offset of the page before.")]
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
    Field(ge=0, le=1_000_000, description="Measure this many of the judged queries, drawn alike each time; 0: all."),
]
Seconds = Annotated[
    int, Field(ge=1, le=600, description="The longest to search queries for now; a later call goes on after that.")
]
