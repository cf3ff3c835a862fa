"""PostgreSQL's `to_tsvector`, `to_tsquery` and `ts_rank` with the configuration `english`, computed without a server; inverted_index.py has
`ts_rank_cd`.

    ts_rank = ( sum over the query's terms t of (0.1 + s(n_t) - 0.1) / 1.64493406685 ) / number of terms
    s(n)    = 0.1/1² + 0.1/2² + … + 0.1/n²,  t stands n_t times in the text (255 at most); 1.64493406685 is π²/6

with the default weights and normalisation, for a query whose outermost operator is OR; for AND and phrases see `_rank_of_pairs`.
Neither length nor rarity counts. The arithmetic is the server's, single precision where it uses that, so that what ties there ties here.

CEMS asks for the OR of a query's lexemes, and has them parsed a second time: `HBR-4417` is `'hbr' | '-4417'`, `re-rank` is
`'re-rank' <-> 're' <-> 'rank' | 're' | 'rank'`. A lexeme with a port or a bracket (`host.org:80`) is no query to the server, and
the search fails there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np

from pg_text_search.parser import Kind, stem, tokens

STEMMED = frozenset({Kind.ASCIIWORD, Kind.WORD, Kind.HWORD_PART, Kind.HWORD_ASCIIPART, Kind.ASCIIHWORD, Kind.HWORD})
WITHOUT_DICTIONARY = frozenset({Kind.TAG, Kind.PROTOCOL, Kind.ENTITY})
"""Tokens that leave no lexeme and take no position."""

MAX_TOKEN_BYTES = 2_046
"""A longer token leaves no lexeme and takes no position."""
LAST_POSITION = 16_383
MAX_POSITIONS = 255

_STOP_WORDS = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its itself they
them their theirs themselves what which who whom this that these those am is are was were be been being have has had having do does
did doing a an the and but if or because as until while of at by for with about against between into through during before after
above below to from up down in out on off over under again further then once here there when where why how all any both each few
more most other some such no nor not only own same so than too very s t can will just don should now
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""The 127 of `english.stop`."""

Lexemes = dict[str, tuple[int, ...]]
"""Lexeme → its positions, ascending from 1."""
TextConfig = Literal["english", "simple"]
"""english: Snowball stems without stop words; simple: words in lower case, all of them."""


class TsQueryError(ValueError):
    """Text that `to_tsquery` refuses."""


def lexemes(text: str, config: TextConfig = "english") -> Lexemes:
    """What `to_tsvector(config, text)` holds."""
    found: dict[str, list[int]] = {}
    for lexeme, position in _placed(text, config):
        if lexeme is not None:
            positions = found.setdefault(lexeme, [])
            position = min(position, LAST_POSITION)
            if len(positions) < MAX_POSITIONS and (not positions or positions[-1] < position):
                positions.append(position)
    return {lexeme: tuple(positions) for lexeme, positions in found.items()}


def _placed(text: str, config: TextConfig = "english") -> Iterator[tuple[str | None, int]]:
    """(lexeme, position) of each token that has one; the lexeme of a stop word is None."""
    position = 0
    for kind, token in tokens(text):
        if kind in WITHOUT_DICTIONARY or (len(token) > MAX_TOKEN_BYTES // 4 and len(token.encode()) > MAX_TOKEN_BYTES):
            continue
        position += 1
        lexeme: str | None = lower(token)
        if config == "english" and kind in STEMMED:
            lexeme = None if lexeme in STOP_WORDS else stem(lexeme)
        yield lexeme, position


def lower(token: str) -> str:
    """Lower case character by character, as the server has it: no final sigma, one letter for one letter."""
    if token.isascii():
        return token.lower()
    return "".join(small if len(small := letter.lower()) == 1 else small[0] for letter in token)


@dataclass(frozen=True, slots=True)
class Term:
    """One lexeme of a query; `prefix` finds all that begin with it. `weights` not empty: only positions of those weights."""

    lexeme: str
    prefix: bool = False
    weights: str = ""

    @property
    def findable(self) -> bool:
        """Whether a text without weights, which all count as D, can have it."""
        return not self.weights or "D" in self.weights


@dataclass(frozen=True, slots=True)
class Phrase:
    """Terms that must occur at these distances from the first one (0 for itself)."""

    terms: tuple[Term, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Combined:
    """`operator` is "&" or "|"."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Not:
    """The other way round."""

    node: Node


Node = Term | Phrase | Combined | Not


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A tsquery; `node` is None when nothing but stop words was asked, which finds nothing."""

    node: Node | None

    @property
    def terms(self) -> tuple[Term, ...]:
        """The distinct terms in the order in which the server adds up their ranks: by bytes."""
        # Reversed, so that the first of equal terms stays.
        unique = {term.lexeme: term for term in reversed(list(_terms(self.node)))}
        return tuple(sorted(unique.values(), key=lambda term: term.lexeme.encode()))

    @property
    def alternatives(self) -> tuple[Node, ...] | None:
        """The nodes that are joined by OR at the top, when there is nothing but terms and phrases below; else None."""
        found: list[Node] = []
        pending = [self.node] if self.node is not None else []
        while pending:
            node = pending.pop()
            if isinstance(node, Combined) and node.operator == "|":
                pending += [node.left, node.right]
            elif isinstance(node, Term | Phrase):
                found.append(node)
            else:
                return None
        return tuple(found)

    @property
    def ranks_pairs(self) -> bool:
        """Whether the outermost operator asks for all its terms, which is ranked by their distances."""
        conjunction = isinstance(self.node, Phrase) or (isinstance(self.node, Combined) and self.node.operator == "&")
        return conjunction and len(self.terms) > 1

    def __str__(self) -> str:
        """As the server writes it, but for brackets."""
        return "" if self.node is None else _written(self.node)


def _terms(node: Node | None) -> Iterator[Term]:
    match node:
        case Term():
            yield node
        case Phrase():
            yield from node.terms
        case Combined():
            yield from _terms(node.left)
            yield from _terms(node.right)
        case Not():
            yield from _terms(node.node)


def _written(node: Node) -> str:
    match node:
        case Term():
            flags = "*" * node.prefix + node.weights
            return f"'{node.lexeme}'" + (f":{flags}" if flags else "")
        case Phrase():
            steps = [later - earlier for earlier, later in zip(node.offsets, node.offsets[1:], strict=False)]
            written = _written(node.terms[0])
            for step, term in zip(steps, node.terms[1:], strict=True):
                written += f" <{'-' if step == 1 else step}> {_written(term)}"
            return written
        case Combined():
            return f"{_written(node.left)} {node.operator} {_written(node.right)}"
        case Not():
            return f"!{_written(node.node)}"


def or_query(query: str) -> TextQuery:
    """What CEMS searches for: the OR of the lexemes of `query`, each parsed once more.

    Raises TsQueryError when a lexeme reads as syntax that the server refuses.
    """
    # By bytes, as PostgreSQL sorts them.
    asked = sorted(lexemes(query), key=str.encode)
    if any(SYNTAX.search(lexeme) for lexeme in asked):
        return ts_query(" | ".join(asked))
    nodes = [node for lexeme in asked if (node := _operand(lexeme, False, "")) is not None]
    return TextQuery(joined("|", nodes))


def plain_query(text: str, config: TextConfig = "english", operator: Literal["&", "|"] = "&") -> TextQuery:
    """`plainto_tsquery(config, text)`: all its lexemes joined by AND; or joined by OR instead."""
    asked = dict.fromkeys(lexeme for lexeme, _ in _placed(text, config) if lexeme is not None)
    return TextQuery(joined(operator, [Term(lexeme) for lexeme in asked]))


SYNTAX = re.compile(r"[&|!()<>:'\\\s]")
TS_TOKEN = re.compile(
    r"\s*(?:(?P<operator>[&|!()])|(?P<operand>(?:\\.|[^\s&|!():\\'<])(?:\\.|[^\s&|!():\\])*)(?P<flags>:[a-dA-D*]*)?)"
)


def ts_query(text: str) -> TextQuery:
    """`to_tsquery('english', text)` for what a joined query can be: operands, flags, brackets, & | and !.

    Raises TsQueryError for what the server refuses, and for quoted operands and phrase operators, which no lexeme brings.
    """
    read = _QueryReader(text)
    node = read.alternatives()
    if read.operator or read.operand:
        raise read.error()
    return TextQuery(node)


class _QueryReader:
    """Reads a query from left to right; a node that is None is one of stop words only, and falls out."""

    def __init__(self, text: str) -> None:
        self._text, self._place = text, 0
        self.operator: str = ""
        self.operand: str = ""
        self._flags = ""
        self._advance()

    def error(self) -> TsQueryError:
        return TsQueryError(f"PostgreSQL reads no query in {self._text!r}")

    def _advance(self) -> None:
        token = TS_TOKEN.match(self._text, self._place)
        if token is None:
            if self._text[self._place :].strip():
                raise self.error()
            self.operator = self.operand = self._flags = ""
            return
        self._place = token.end()
        self.operator, self.operand = token["operator"] or "", re.sub(r"\\(.)", r"\1", token["operand"] or "")
        self._flags = (token["flags"] or "")[1:].upper()

    def alternatives(self) -> Node | None:
        return self._joined("|", lambda: self._joined("&", self._single))

    def _joined(self, operator: str, read: Callable[[], Node | None]) -> Node | None:
        nodes = [read()]
        while self.operator == operator:
            self._advance()
            nodes.append(read())
        return joined(operator, [node for node in nodes if node is not None])

    def _single(self) -> Node | None:
        if self.operator == "!":
            self._advance()
            inner = self._single()
            return None if inner is None else Not(inner)
        if self.operator == "(":
            self._advance()
            inner = self.alternatives()
            if self.operator != ")":
                raise self.error()
            self._advance()
            return inner
        if not self.operand:
            raise self.error()
        weights = "".join(weight for weight in "ABCD" if weight in self._flags)
        node = _operand(self.operand, "*" in self._flags, weights)
        self._advance()
        return node


def joined(operator: str, nodes: Sequence[Node]) -> Node | None:
    """The nodes joined by one operator; None without any."""
    if not nodes:
        return None
    node = nodes[0]
    for right in nodes[1:]:
        node = Combined(operator, node, right)
    return node


def _operand(text: str, prefix: bool, weights: str) -> Node | None:
    """An operand parsed as text: one term, or the phrase of its lexemes; None when it has none."""
    found = [(Term(lexeme, prefix, weights), position) for lexeme, position in _placed(text) if lexeme is not None]
    if len(found) < 2:
        return found[0][0] if found else None
    first = found[0][1]
    return Phrase(tuple(term for term, _ in found), tuple(position - first for _, position in found))


WEIGHT = np.float32(0.1)
ZETA_2 = 1.64493406685
# In single precision, as the server, so that what ties there ties here.
_TOTALS = accumulate((WEIGHT / np.float32(n * n) for n in range(1, MAX_POSITIONS + 1)), initial=np.float32(0))
GAINS = np.array([float(WEIGHT + total - WEIGHT) / ZETA_2 for total in _TOTALS])
"""The contribution of a term that occurs n times in a text, before the division by the number of terms; float64, shape (256,)."""


def ts_rank(document: Mapping[str, tuple[int, ...]], query: TextQuery) -> float:
    """`ts_rank(document, query)`, exactly representable in single precision; 0 if no term occurs in it.

    As the server's, it does not ask whether the text matches: see `matches`.
    """
    terms = query.terms
    if not terms:
        return 0.0
    if query.ranks_pairs:
        return _rank_of_pairs(document, terms)
    rank = np.float32(0)
    for term in terms:
        for positions in _occurrences(document, term):
            # As the server: added in double, rounded to single precision after each term.
            rank = np.float32(float(rank) + GAINS[len(positions)])
    return float(rank / np.float32(len(terms)))


def _occurrences(document: Mapping[str, tuple[int, ...]], term: Term) -> Iterable[tuple[int, ...]]:
    if term.prefix:
        return [document[lexeme] for lexeme in sorted(document, key=str.encode) if lexeme.startswith(term.lexeme)]
    return [document[term.lexeme]] if term.lexeme in document else []


def _rank_of_pairs(document: Mapping[str, tuple[int, ...]], terms: tuple[Term, ...]) -> float:
    """The rank of a phrase or AND: 1 - product of (1 - sqrt(0.1 * 0.1 * nearness(distance))) over all pairs of two terms' places.

    nearness(d) = 1 / (1.005 + 0.05 * e^(d / 1.5 - 2)), nothing past 100. A query with such an operator outermost is one
    lexeme that is parsed into several, such as `a-wa`, which is what `a-was` leaves.
    """
    rank = np.float32(-1)
    seen: list[tuple[int, ...]] = []
    for term in terms:
        for here in _occurrences(document, term):
            for there in seen:
                for distance in (abs(a - b) for a in here for b in there if a != b):
                    pair = np.float32(math.sqrt(float(WEIGHT * WEIGHT * _nearness(distance))))
                    rank = pair if rank < 0 else np.float32(1.0 - (1.0 - float(rank)) * (1.0 - float(pair)))
            seen.append(here)
    # The server's value for terms without a pair.
    return float(rank) if rank > 0 else float(np.float32(1e-20))


def _nearness(distance: int) -> np.float32:
    if distance > 100:
        return np.float32(1e-30)
    return np.float32(1.0 / (1.005 + 0.05 * math.exp(float(np.float32(distance)) / 1.5 - 2)))


def matches(document: Mapping[str, tuple[int, ...]], query: TextQuery) -> bool:
    """`document @@ query`."""
    return query.node is not None and _matches(document, query.node)


def _matches(document: Mapping[str, tuple[int, ...]], node: Node) -> bool:
    match node:
        case Term():
            return node.findable and any(True for _ in _occurrences(document, node))
        case Phrase():
            return _stands(document, node)
        case Combined(operator="&"):
            return _matches(document, node.left) and _matches(document, node.right)
        case Combined():
            return _matches(document, node.left) or _matches(document, node.right)
        case Not():
            return not _matches(document, node.node)


def _stands(document: Mapping[str, tuple[int, ...]], phrase: Phrase) -> bool:
    starts: set[int] | None = None
    for term, offset in zip(phrase.terms, phrase.offsets, strict=True):
        if not term.findable:
            return False
        here = {position - offset for positions in _occurrences(document, term) for position in positions}
        starts = here if starts is None else starts & here
    return bool(starts)
