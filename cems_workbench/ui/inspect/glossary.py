"""What the names on the page mean: the stages, the lists, and the factors. Every tooltip on one of them is from here."""

from __future__ import annotations

STAGES = {
    "query": "What the words of the query signal, and how it was routed.",
    "expansion": "Query variants that were searched, and the strong-signal probe.",
    "lists": "Ranked lists that take part, cut to their depth and normalised.",
    "threshold": "Cuts list hits below a similarity threshold, before fusion.",
    "fusion": "Many lists become one score.",
    "filter": "Drops candidates whose fused score is too low.",
    "rerank": "A model's second opinion on the first candidates.",
    "adjust": "Factors for priority, age, pin, project and feedback.",
    "gap": "Drops what is far below the top.",
    "dedup": "Drops near-duplicates of better ranked memories.",
    "assembly": "The results, within the limit and the token budget.",
    "judge": "Relevance judgments beside the results; never changes the ranking.",
}

SOURCES = {
    "vector": "Nearest by meaning: cosine of the embeddings.",
    "lexical": "Nearest by words: BM25.",
    "recency": "The candidates, newest first.",
    "access": "The candidates, most often accessed first.",
    "relations": "Neighbours of the first hits in the relation graph.",
}

RAW = {
    "vector": "Cosine of query and memory.",
    "lexical": "BM25 score.",
    "recency": "When the memory was created, in seconds since 1970.",
    "access": "How often it was accessed.",
    "relations": "Strength of the relation that led to it.",
}

FACTORS = {
    "priority": "The memory's own priority.",
    "time_decay": "Below 1 the older the memory is.",
    "pinned": "For pinned memories only.",
    "project": "Same, other or no project, against the project of the query.",
    "feedback": "Share of relevant among the votes it was given, once there are enough.",
}


def about(name: str) -> str:
    """What a stage or a list is; the number after a list's name is that of the query variant it searched."""
    if name in STAGES:
        return STAGES[name]
    source, _, variant = name.partition(":")
    searched = "" if not variant else " 0: the query as it is." if variant == "0" else f" {variant}: variant {variant}."
    return SOURCES.get(source, "") + searched
