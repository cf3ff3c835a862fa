"""Typo correction within a search: correct, learn what was corrected, and let the LLM look at it afterwards.

A correction is accepted by being searched with; with `auto_learn` it is learned then. With `validate` and an LLM each newly learned
pair is asked about in the background, and forgotten, and never learned again, when the answer is no.

Source: ACE retrieval precision (auto-learning typo correction with background validation); PIPELINE.md, "query".
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from cems_workbench.config.understanding import TypoCorrection
from cems_workbench.errors import WorkbenchError
from cems_workbench.models import prompts
from cems_workbench.pipeline.asking import Asker
from cems_workbench.pipeline.lexicon import technical_terms
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.typos import CorrectedQuery, correct


def corrected(query: str, config: TypoCorrection, resources: Resources, llm: Asker | None) -> CorrectedQuery:
    """The query to search with; what was replaced is learned when the config says so."""
    if not config.enabled:
        return CorrectedQuery(query)
    before = resources.store.learned_pairs()
    lexicon = technical_terms(resources.technical_terms_path)
    found = correct(query, resources.store.vocabulary(), before, config, lexicon)
    if found.corrections and config.auto_learn:
        pairs = [(correction.typo, correction.correction) for correction in found.corrections]
        known = {(pair.typo, pair.correction) for pair in before}
        learned = resources.store.learn_pairs(pairs, config.max_learned)
        fresh = [pair for pair in learned if pair not in known]
        if fresh and config.validate_ and llm is not None:
            threading.Thread(target=validate, args=(fresh, resources, llm), name="typo-validation", daemon=True).start()
    return found


def validate(pairs: Sequence[tuple[str, str]], resources: Resources, llm: Asker) -> None:
    """Ask about each pair; one that the model refuses is forgotten for good. What cannot be asked stays learned."""
    for typo, correction in pairs:
        try:
            if not llm.ask(prompts.correction(typo, correction)):
                resources.store.refuse_pair(typo, correction)
        except WorkbenchError:
            return
