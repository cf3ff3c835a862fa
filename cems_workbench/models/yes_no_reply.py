"""What one reply to a yes-or-no question says, as a probability of yes.

    p = exp(yes) / (exp(yes) + exp(no))        over the logprobs of the two answers

Source: the memory-agent document; PIPELINE.md, "rerank", llama_server.
"""

from __future__ import annotations

import math
import reprlib
from typing import Any

from cems_workbench.models.protocol import PairScore


class _NoScore(Exception):
    """The reply has no score: "cause: what happened", with a cause from `CAUSES`."""


def score_of_reply(reply: Any) -> PairScore:
    """The score of one decoded chat completion, with `detail["outcome"]`, or the cause why it has none.

    Over the first generated token and the likeliest tokens in its place, compared trimmed and in lower case, the
    first match of each:

    - yes and no seen: p = exp(yes) / (exp(yes) + exp(no)), "yes and no"
    - else the generated token is yes or no: 1 or 0, "generated token"
    - else one of them seen: 0.8, "only yes seen"; 0.2, "only no seen"
    - else 0.5, "uncertain"

    Without logprobs the answer's text is read: it begins with yes or no: 1 or 0, "text prefix"; else 0.5, "uncertain".
    A reply with no answer in it, or with a logprob that is no finite number, is flagged.

    Source: PIPELINE.md, "rerank"; the memory-agent document. There, logprobs of −0.1 for yes and −2.5 for no give more
    than 0.8, and −3.0 and −0.1 less than 0.2.
    """
    try:
        choices = _typed(reply, "choices", list)
        if not choices:
            raise _NoScore("empty reply: no choices")
        if _typed(choices[0], "logprobs", dict, optional=True) is None:
            p, outcome = _from_text(_typed(_typed(choices[0], "message", dict), "content", str, optional=True) or "")
        else:
            p, outcome = _from_logprobs(choices[0]["logprobs"])
    except _NoScore as failure:
        return PairScore(None, str(failure))
    return PairScore(p, detail={"outcome": outcome})


def _from_text(text: str) -> tuple[float, str]:
    answer = text.strip().lower()
    if not answer:
        raise _NoScore("empty reply: neither logprobs nor text")
    if answer.startswith(("yes", "no")):
        return float(answer.startswith("yes")), "text prefix"
    return 0.5, "uncertain"


def _from_logprobs(logprobs: dict[str, Any]) -> tuple[float, str]:
    tokens = _typed(logprobs, "content", list, optional=True)
    if not tokens:
        raise _NoScore("empty reply: no token was generated")
    generated = _trimmed(tokens[0])
    seen: dict[str, float] = {}
    for entry in _typed(tokens[0], "top_logprobs", list, optional=True) or []:
        seen.setdefault(_trimmed(entry), _logprob(entry))
    if "yes" in seen and "no" in seen:
        return _sigmoid(seen["yes"] - seen["no"]), "yes and no"
    if generated in ("yes", "no"):
        return float(generated == "yes"), "generated token"
    if "yes" in seen:
        return 0.8, "only yes seen"
    if "no" in seen:
        return 0.2, "only no seen"
    return 0.5, "uncertain"


def _sigmoid(difference: float) -> float:
    """exp(yes) / (exp(yes) + exp(no)) of yes − no, without overflow."""
    small = math.exp(-abs(difference))
    return (1.0 if difference >= 0 else small) / (1.0 + small)


def _trimmed(entry: Any) -> str:
    token: str = _typed(entry, "token", str)
    return token.strip().lower()


def _logprob(entry: dict[str, Any]) -> float:
    """llama.cpp writes −inf as the lowest float and NaN as null."""
    value = entry.get("logprob")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise _NoScore(f"not a number: the logprob of {entry['token']!r} is {one_line(value)}")
    try:
        number = math.nan if value is None else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _NoScore(f"not finite: the logprob of {entry['token']!r} is {one_line(value)}")
    return number


def _typed(parent: Any, key: str, kind: type, optional: bool = False) -> Any:
    """parent[key] of the given type, or None where that is optional. Raises _NoScore for any other shape."""
    value = parent.get(key) if isinstance(parent, dict) else None
    if isinstance(value, kind) or (optional and value is None and isinstance(parent, dict)):
        return value
    raise _NoScore(f"bad reply: {key} is not a {kind.__name__} in {one_line(parent)}")


def one_line(value: object) -> str:
    """Whatever a server sent or an error says, on one line of at most 120 characters, however deep or long it is."""
    shown = str(value) if isinstance(value, str | BaseException) else reprlib.repr(value)
    words = " ".join(shown.split()) or f"an empty {type(value).__name__}"
    return words if len(words) <= 120 else words[:119] + "…"
