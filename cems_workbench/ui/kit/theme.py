"""Colours. They are Okabe and Ito's, told apart by every common colour vision; none is the only sign."""

from __future__ import annotations

LIST_COLOURS = ("#0072B2", "#E69F00", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#8C6D31", "#7B848D")
"""One per list, in the order of the evidence; the ninth list starts over, told apart by its name."""

SOURCE_COLOURS = {
    "vector": ("#0072B2", "#56B4E9", "#2A4D8F", "#8EC7E8"),
    "lexical": ("#E69F00", "#D55E00", "#B8860B", "#F2C14E"),
    "hybrid": ("#0072B2", "#56B4E9", "#2A4D8F", "#8EC7E8"),
    "ts_rank": ("#E69F00", "#D55E00", "#B8860B", "#F2C14E"),
    "recency": ("#009E73",),
    "access": ("#CC79A7",),
    "relations": ("#7B848D",),
}
"""Shades per source; the n-th variant takes the n-th shade. What finds by meaning is blue, what finds by words is orange."""
ADDED_COLOURS = ("#8C6D31",)
"""The color of every added retriever."""


def list_colour(source: str, variant: int | None) -> str:
    """The colour of a list: a shade per query variant of its source's colour."""
    shades = SOURCE_COLOURS.get(source, ADDED_COLOURS)
    return shades[(variant or 0) % len(shades)]
