"""The wordpiece tokenizer that both packaged networks read with, parsed once per process."""

from __future__ import annotations

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=2)
def tokenizer_of(described: bytes) -> Any:
    """The `tokenizers.Tokenizer` of a tokenizer.json, without its padding and truncation; threads may share it.

    Raises what `tokenizers` raises.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(described.decode())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def framing_tokens(tokenizer: Any) -> tuple[int, int]:
    """The ids of [CLS] and [SEP]. Raises ValueError if it has none."""
    first, last = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    if first is None or last is None:
        raise ValueError("tokenizer.json has no [CLS] and [SEP]")
    return first, last
