"""Query variants: typed by hand, from the dictionary, or by pseudo-relevance feedback.

`manual` uses what the user typed. `dictionary` replaces a word of the query by its entry (ACE: "wired" became "architecture
system integration layer connected storage", which pulled a vague question towards architecture notes). `feedback` is
RM3: the first lexical hits vote for words,

    p(w | R) = sum_d p(w | d) * score(d) / sum score,        p(w | d) = count of w in d / length of d

and the best words that the query lacks are added to it. It needs no LLM. At most `max_expansions` variants are used.

Source: ACE (`_QUERY_EXPANSIONS`); Abdul-Jaleel et al. 2004 (RM3); PIPELINE.md, "expansion".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from cems_workbench.config.understanding import ExpansionConfig
from cems_workbench.errors import InputError
from cems_workbench.pipeline.evidence import Variant
from cems_workbench.records import Memory, indexed_text
from cems_workbench.store.tokenizer import tokenize

SHIPPED: Mapping[str, str] = {"wired": "architecture system integration layer connected storage"}
"""ACE's own entry, kept because of what it does."""

FEEDBACK_DOCUMENTS = 10
FEEDBACK_WORDS = 8
_WORD = re.compile(r"[^\W_][\w.\-/]*[^\W_]|[^\W_]")


def expansions(
    query: str,
    config: ExpansionConfig,
    typed: Sequence[str],
    dictionary: Mapping[str, str],
    hits: Sequence[tuple[Memory, float]],
) -> tuple[list[Variant], list[str]]:
    """The variants to search beside the query, and what has to be said about them.

    `hits` are the first lexical hits with their scores, for `feedback`.
    """
    if config.backend == "manual":
        texts = [text for text in dict.fromkeys(text.strip() for text in typed) if text and text != query]
        empty = "expansion is manual, and nothing was typed"
    elif config.backend == "dictionary":
        texts = replaced(query, dictionary)
        empty = "no word of the query is in the expansion dictionary"
    elif config.backend == "feedback":
        words = feedback_words(query, hits)
        texts = [f"{query} {' '.join(words)}"] if words else []
        empty = "feedback found no further word: the query has too few lexical hits"
    else:
        return [], []
    said = [] if texts else [empty]
    if len(texts) > config.max_expansions:
        said.append(f"{len(texts)} expansions were found; the first {config.max_expansions} are used")
    return [Variant(text, "expansion") for text in texts[: config.max_expansions]], said


def replaced(query: str, dictionary: Mapping[str, str]) -> list[str]:
    """One variant per query word that has an entry, with the word replaced by it, in the order of the words."""
    lowered = {word.lower(): entry for word, entry in dictionary.items()}
    found = []
    for match in _WORD.finditer(query):
        entry = lowered.get(match.group().lower())
        if entry:
            found.append(f"{query[: match.start()]}{entry}{query[match.end() :]}")
    return list(dict.fromkeys(found))


def feedback_words(query: str, hits: Sequence[tuple[Memory, float]]) -> list[str]:
    """The words with the largest p(w | R) that the query lacks, at most `FEEDBACK_WORDS`, ties by word.

    Words are compared by their stem and shown in the form they have most often; stopwords and bare numbers are left out.
    """
    total = sum(score for _, score in hits)
    if total <= 0:
        return []
    weight: dict[str, float] = {}
    forms: dict[str, Counter[str]] = {}
    for memory, score in hits:
        words = [match.group().lower() for match in _WORD.finditer(indexed_text(memory))]
        for word in words:
            stems = tokenize(word)
            if len(stems) != 1 or word.isdigit() or len(word) < 3:
                continue
            weight[stems[0]] = weight.get(stems[0], 0.0) + score / total / len(words)
            forms.setdefault(stems[0], Counter())[word] += 1
    known = set(tokenize(query))
    best = sorted((stem for stem in weight if stem not in known), key=lambda stem: (-weight[stem], stem))
    return [min(forms[stem], key=lambda form: (-forms[stem][form], form)) for stem in best[:FEEDBACK_WORDS]]


def read_dictionary(path: Path) -> dict[str, str]:
    """The shipped entries with the user's file over them: a YAML mapping of word to replacement. Raises InputError."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return dict(SHIPPED)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: not readable as a YAML mapping of word to replacement: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(
        isinstance(key, str) and isinstance(text, str) for key, text in values.items()
    ):
        raise InputError(f"{path}: expected a mapping of word to replacement, both text")
    return {key.strip(): text.strip() for key, text in values.items() if key.strip() and text.strip()}


def write_dictionary(path: Path, entries: Mapping[str, str]) -> None:
    """Write the user's entries, which from now on stand for the whole dictionary; the file appears whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(yaml.safe_dump(dict(entries), allow_unicode=True, sort_keys=True), encoding="utf-8")
    partial.replace(path)
