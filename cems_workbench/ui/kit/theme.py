"""Colours: the Okabe-Ito palette, safe for colour vision deficiencies; colour is never the only cue."""

from __future__ import annotations

LIST_COLOURS = ("#0072B2", "#E69F00", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#8C6D31", "#7B848D")
"""One per list, in the order of the evidence; repeats from the ninth list on."""

SOURCE_COLOURS = {
    "vector": ("#0072B2", "#56B4E9", "#2A4D8F", "#8EC7E8"),
    "lexical": ("#E69F00", "#D55E00", "#B8860B", "#F2C14E"),
    "hybrid": ("#0072B2", "#56B4E9", "#2A4D8F", "#8EC7E8"),
    "ts_rank": ("#E69F00", "#D55E00", "#B8860B", "#F2C14E"),
    "fts5": ("#E69F00", "#D55E00", "#B8860B", "#F2C14E"),
    "sparse": ("#E69F00", "#D55E00", "#B8860B", "#F2C14E"),
    "lucene": ("#E69F00", "#D55E00", "#B8860B", "#F2C14E"),
    "ts_rank_cd": ("#E69F00", "#D55E00", "#B8860B", "#F2C14E"),
    "source_hybrid": ("#6A5A8C", "#9C8CC0", "#4B3F66", "#BDB2D6"),
    "recency": ("#009E73",),
    "access": ("#CC79A7",),
    "relations": ("#7B848D",),
    "entities": ("#8C6D31",),
}
"""Shades per source; the n-th variant takes the n-th shade. Semantic sources are blue, lexical ones orange."""
DEFAULT_COLOURS = ("#8C6D31",)
"""For every other retriever, such as a plugin's."""

PART_COLOURS = {
    "importance bonus": "#8C6D31",
    "importance floor": "#A6611A",
    "score blend": "#6A5A8C",
}
"""Parts of the score after fusion that belong to no single list, by kind."""
OTHER_PART = "#7B848D"


def list_colour(source: str, variant: int | None) -> str:
    """The colour of a list: its source's colour, in the shade of its query variant."""
    shades = SOURCE_COLOURS.get(source, DEFAULT_COLOURS)
    return shades[(variant or 0) % len(shades)]
