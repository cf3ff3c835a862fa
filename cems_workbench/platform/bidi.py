"""Characters that turn the text round them: embeddings, overrides and isolates of direction, which show it in another order than it has.

The command line and the pages show a replacement character for each. Letters of scripts that run from right to left need none of them, and
the marks U+200E and U+200F, which order numbers and signs beside such letters, stay.
"""

from __future__ import annotations

import re

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
BIDI_CONTROLS = "[\u202a-\u202e\u2066-\u2069]"
"""A regular expression of any of them."""
_TURNS = re.compile(BIDI_CONTROLS)


def neutralise(text: str) -> str:
    """The text with a replacement character for each that would show it in another order."""
    return _TURNS.sub(REPLACEMENT, text)
