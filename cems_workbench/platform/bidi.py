"""Bidi controls: replaces directional embeddings, overrides and isolates, which can display text in a misleading order.

The marks U+200E and U+200F stay: right-to-left scripts need them next to numbers and punctuation.
"""

from __future__ import annotations

import re

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
BIDI_CONTROLS = "[\u202a-\u202e\u2066-\u2069]"
"""A regular expression that matches one control."""
_CONTROLS = re.compile(BIDI_CONTROLS)


def neutralise(text: str) -> str:
    """The text with each bidi control replaced by U+FFFD."""
    return _CONTROLS.sub(REPLACEMENT, text)
