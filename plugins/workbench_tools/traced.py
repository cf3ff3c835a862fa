"""From the spans of one trace to its queries, each with the lists and stages that it went through.

A query is an outermost span that has one and that lists or stages are below, directly or within spans that are neither; below a TOOL or an
AGENT each retrieval is a separate query. Siblings ran in the order of their ends.

- A RETRIEVER without others below it is a list; one with several below it joins them, and with one below it is a stage of what that
  found. A span that returns just what the only one below it does is no stage.
- A stage reads what was recorded as its input; else what is below it returned; else, if it joins lists or returned what the span before
  it did not have, everything that no stage has read yet, otherwise what the span before it returned.
- A list with lists below it that does not rank (`workbench.stage.ranked` false) only says which candidates these pass on.
- The documents of the query's own span are what was returned. Without them that is what the last stage, or the only list, returned.

What contradicts itself is taken, and named at its stage in `warnings`. `remarks` are what is no contradiction: a stage returned the parents
of its candidates. `own_ids` is what a stage did not join, since its lists have separate ids for the same texts. `asked` is what a list or a
reranker was given where that is another text than the query: neither it in other letters or spaces, nor with more around it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from cems_workbench.errors import one_line
from cems_workbench.formats.base.records import NameOf, TracedDocument, TracedQuery, derived_id, memory_id_of
from cems_workbench.platform.typed_json import reader
from cems_workbench.records import RecordedStages
from workbench_tools.spans import NOT_IN_TRACE, SEARCHERS, Documents, Span, lacking_line, moment_of

READ = reader(RecordedStages)
LISTS = "lists"
"""Where warnings of lists stand: the stage that holds them."""
BOUNDARIES = frozenset({"TOOL", "AGENT"})
MAX_PARENTS = 200
"""Spans above one another; deeper ones are taken as roots."""
Hits = list[tuple[str, float | None]]


@dataclass(slots=True)
class _Source:
    """Something that a stage can read: a list, several that pass on candidates together, or what a stage returned."""

    hits: Hits
    number: int
    """Of a stage its place; of lists -1."""
    lists: frozenset[int] = frozenset()
    """The places of the lists."""
    unknown: bool = False
    """Whether it did not record what it found."""

    @property
    def is_list(self) -> bool:
        return self.number < 0


@dataclass(slots=True)
class _Node:
    span: Span
    children: list[_Node] = field(default_factory=list)
    orphan: bool = False
    twice: bool = False
    """Another span of the trace has its id."""


def queries_of(spans: Sequence[Span], name_of: NameOf | None = None) -> Iterator[TracedQuery]:
    """The queries of one trace, in the order in which they began; `name_of` gives the memory of a document."""
    roots = _trees(spans)
    found = [query for root in roots for query in _outermost(root)]
    found.sort(key=lambda node: (node.span.start is None, node.span.start or 0, node.span.row))
    for node in found:
        yield _Reading(node, name_of or memory_id_of).query()


def _trees(spans: Sequence[Span]) -> list[_Node]:
    nodes: dict[str, _Node] = {}
    for span in spans:
        known = nodes.setdefault(span.span_id, _Node(span))
        # An exporter may write a span twice; another one with its id is left out, and named.
        if known.span is not span and replace(span, row=known.span.row) != known.span:
            known.twice = True
    roots, lost = [], dict[str, list[_Node]]()
    for node in nodes.values():
        parent = node.span.parent_id
        if not parent:
            roots.append(node)
        elif parent not in nodes or _in_a_circle(node, nodes):
            lost.setdefault(parent, []).append(node)
            node.orphan = True
        else:
            nodes[parent].children.append(node)
    for orphans in lost.values():
        if len(roots) == 1 and not roots[0].orphan:
            roots[0].children += orphans
        elif len(orphans) == 1:
            roots += orphans
        else:  # their parent was not exported, and they are one pipeline all the same
            roots.append(_Node(_stand_in(orphans), orphans, True))
    for node in nodes.values():
        node.children.sort(key=lambda child: child.span.ended)
        if node.span.query is None:  # the first attribute that a tracer drops; the inner call has the words too
            words = next((each.span.query for each in node.children if _is_same_call(each, node)), None)
            node.span = node.span if words is None else replace(node.span, query=words)
    return roots


def _in_a_circle(node: _Node, nodes: Mapping[str, _Node]) -> bool:
    at = node
    for _ in range(MAX_PARENTS):
        above = nodes.get(at.span.parent_id) if at.span.parent_id else None
        if above is None:
            return False
        if above is node:
            return True
        at = above
    return True


def _stand_in(orphans: Sequence[_Node]) -> Span:
    first = min(orphans, key=lambda node: node.span.ended).span
    asked = next(
        (node.span.query for node in sorted(orphans, key=lambda node: node.span.ended) if node.span.query), None
    )
    empty: dict[str, Any] = dict.fromkeys(
        ("ms", "error", "qid", "output", "input", "stage_name", "stage_kind", "problem")
    )
    about: dict[str, Any] = {"parent_id": "", "name": "results", "kind": "CHAIN", "query": asked, "dropped": {}}
    return replace(first, span_id=first.parent_id, **about, **empty)


def _outermost(node: _Node) -> Iterator[_Node]:
    stages = _has_stages(node)
    if not stages:
        return
    if node.span.kind not in BOUNDARIES and node.span.query and not _behind_boundaries(node):
        yield node
        return
    for child in node.children:
        yield from _outermost(child)


def _has_stages(node: _Node) -> bool:
    return node.span.has_documents or any(map(_has_stages, node.children))


def _is_same_call(child: _Node, node: _Node) -> bool:
    """Whether a span is just the inner half of the one around it, as LlamaIndex's `_retrieve` is: a search that recorded no results."""
    span = child.span
    silent = span.output is None and span.input is None and span.stage_kind is None and span.error is None
    searches = span.kind == node.span.kind and span.kind in SEARCHERS and node.span.output is not None
    return silent and searches and len(node.children) == 1 and not any(map(_has_stages, child.children))


def _behind_boundaries(node: _Node) -> bool:
    if node.span.has_documents:
        return False
    return all(
        child.span.kind in BOUNDARIES or _behind_boundaries(child) for child in node.children if _has_stages(child)
    )


class _Reading:
    """The lists and stages of one query, read from its tree."""

    def __init__(self, root: _Node, name_of: NameOf) -> None:
        self.root = root
        self.name_of = name_of
        self.lists: list[dict[str, Any]] = []
        self.stages: list[dict[str, Any]] = []
        self.kept: set[str] | None = None
        self.unknown = False
        self.grouped: set[str] = set()
        self.names: set[str] = {LISTS}
        self.warnings: dict[str, list[str]] = {}
        self.known: set[str] = set()
        """Every memory that a list brought or a stage returned so far."""
        self.contents: dict[str, TracedDocument] = {}
        self.by_content: dict[str, str] = {}
        self.named: dict[str, str] = {}
        """By the id of a document with a text its memory."""
        self.parents: dict[str, str] = {}
        """By memory the id of its parent."""
        self.texts: list[dict[str, str]] = []
        """Of each list by text the id that it has there."""
        self.remarks: dict[str, list[str]] = {}
        self.own_ids: dict[str, Any] = {}
        self.read: dict[str, dict[str, str]] = {}
        self.asked: dict[str, str] = {}

    def query(self) -> TracedQuery:
        span = self.root.span
        left = self._span(self.root, [])
        if not self.lists and self.stages:
            self._list_of_what_was_read()
        if not self.stages or (span.error is not None and not span.output):
            self._finish(left)
        recorded: dict[str, Any] = {"lists": self.lists, "stages": self.stages}
        if self.kept is not None:
            everything = {key for one in self.lists for key, _ in one["hits"]}
            recorded["kept"] = sorted(self.kept | (everything - self.grouped))
        if self.unknown:
            recorded["unknown"] = True
        qid = span.qid or derived_id("traced", span.trace_id, span.span_id)
        asked_at = moment_of(span.start)
        said = self.warnings, self.contents, self.remarks, self.own_ids, self.asked, self.read
        return TracedQuery(span.row, qid, span.query or "", asked_at, READ(recorded), *said)

    def _span(self, node: _Node, around: list[_Source]) -> list[_Source]:
        """Read a span; returns what a later sibling can read, `around` being what was there before."""
        span = node.span
        inner: list[_Source] = []
        outer = around
        if node.twice:
            self._warn(None, f"{_shown(self._name_of_span(span))}: two spans have its id; the first in the file counts")
        for child in node.children:
            if _is_same_call(child, node):
                continue
            if inner:
                inner = self._span(child, inner)
            else:
                had = outer
                now = self._span(child, outer)
                # What the child brought is inside; what it took of the outside is gone there.
                inner = [one for one in now if all(one is not other for other in had)]
                outer = [one for one in had if any(one is other for other in now)]
        if not span.has_documents:
            if span.error is not None and node is not self.root:
                self._warn(LISTS, f"{_shown(span.name)} ended in an error{_words(span.error)}")
            return [*outer, *inner]
        output = None if span.output is None else self._hits(span.output, span)
        if node.orphan:
            self._warn(None, f"{_shown(self._name_of_span(span))}: the span around it is not in the file")
        if not inner and self._is_list(span, outer):
            return [*outer, self._list(span, output)]
        if inner and output is None and span.stage_kind is None:
            return [*outer, *inner]
        if inner and output is not None:
            if span.stage_kind == "list" and not span.ranked and all(one.is_list for one in inner):
                self.grouped |= {key for one in inner for key, _ in one.hits}
                self.kept = (self.kept or set()) | {key for key, _ in output}
                return [*outer, _Source(output, -1, frozenset().union(*(one.lists for one in inner)))]
            same = len(inner) == 1 and [key for key, _ in inner[0].hits] == [key for key, _ in output]
            if span.stage_kind is None and same:
                return [*outer, *inner]
        if node is self.root and output is None:
            return [*outer, *inner]
        return self._stage(span, output, inner, outer)

    def _is_list(self, span: Span, outer: Sequence[_Source]) -> bool:
        if span.stage_kind is not None:
            return span.stage_kind == "list"
        if span.kind == "RETRIEVER":
            return span.input is None
        return span.kind != "RERANKER" and not outer and span.input is None

    def _list(self, span: Span, output: Hits | None) -> _Source:
        name = self._unique(self._name_of_span(span))
        said = self._said(span)
        if output is None:
            said.append("recorded no results")
        said += _order_problem(output or [])
        for line in said:
            self._warn(LISTS, f"{name}: {line}")
        left_out = sorted(key for key, _ in output or [] if key in span.dropped)
        hits = [list(hit) for hit in output or []]
        self.lists.append({"name": name, "hits": hits} | ({"left_out": left_out} if left_out else {}))
        # By text the id; what lacks one of them is left out
        self.texts.append(
            {one.content: one.id for one in (span.output or ()) if one.content is not None and one.id is not None}
        )
        self._keep_texts(name, span.output)
        silent = output is None and span.error is None
        if lacking := "recorded no results" if silent else _lacking(span.output, span):
            self.lists[-1]["lost"] = lacking
        self._compare_query(name, span)
        self.known |= {key for key, _ in output or []}
        return _Source(output or [], -1, frozenset({len(self.lists) - 1}), output is None)

    def _keep_texts(self, name: str, documents: Documents | None) -> None:
        named = {one.id: one.content for one in documents or () if one.id is not None and one.content is not None}
        self.read[name] = {self.named[key]: text for key, text in named.items()}

    def _compare_query(self, name: str, span: Span) -> None:
        """Keep the text that a list or a reranker was given, if it is not the query, nor a document that it read."""
        asked, given = _folded(self.root.span.query), _folded(span.query)
        if asked and given and asked not in given and all(_folded(one.content) != given for one in span.input or ()):
            self.asked[name] = one_line(span.query or "", 80)

    def _stage(self, span: Span, output: Hits | None, inner: list[_Source], outer: list[_Source]) -> list[_Source]:
        name = self._unique(self._name_of_span(span))
        # What joins other lists is no list, whatever it is called.
        given = None if span.stage_kind == "list" else span.stage_kind
        kind = given or {"RERANKER": "rerank"}.get(span.kind) or ("fusion" if len(inner) > 1 else "other")
        said = self._said(span)
        read = None if span.input is None else self._hits(span.input, span)
        self._keep_texts(name, span.input)
        there = inner or outer
        taken = self._taken(kind, there, read, output)
        before = read if read is not None else _joined(taken)
        if output is None:
            said.append("recorded no results: what it read is taken as what it returned")
            output = before
        strangers = [key for key, _ in read or [] if key not in self.known]
        if strangers and self.lists:
            said.append(f"{_count(strangers, 'candidate')} of its input that no list brought, such as {strangers[0]}")
        had = {key for key, _ in before}
        brought = [key for key, _ in output if key not in self.known and key not in had]
        if self._are_parents(name, brought, had):
            brought = []
        if brought and self.lists:
            said.append(f"{_count(brought, 'candidate')} that no list brought, such as {brought[0]}")
        elsewhere = [key for key, _ in output if key not in had and key in self.known]
        if elsewhere:
            said.append(f"{_count(elsewhere, 'candidate')} not among its input, such as {elsewhere[0]}")
        said += _order_problem(output) if span.ranked else []
        stage: dict[str, Any] = {"name": name, "kind": kind, "output": [list(hit) for hit in output]}
        if not self._reads_what_is_there(taken, read):
            stage["input"] = [list(hit) for hit in before]
            if read is None and len(taken) > 1:
                stage["joined"] = True
        if not span.ranked:
            stage["ranked"] = False
        dropped = {key: why for key, why in span.dropped.items() if key in had}
        if dropped:
            stage["dropped"] = {key: list(why) for key, why in dropped.items()}
        if span.ms is not None:
            stage["ms"] = round(span.ms, 3)
        self.stages.append(stage)
        if kind == "rerank":
            self._compare_query(name, span)
        if said:
            self.warnings.setdefault(name, []).extend(said)
        self.known |= {key for key, _ in output}
        self._find_own_ids(name, taken, span.output or ())
        left = [one for one in there if all(one is not other for other in taken)]
        returned = _Source(output, len(self.stages) - 1)
        return [*(outer if inner else []), *left, returned]

    def _taken(self, kind: str, there: list[_Source], read: Hits | None, output: Hits | None) -> list[_Source]:
        """What of what is there the stage reads."""
        if read is not None:
            keys = {key for key, _ in read}
            whole = [one for one in there if keys <= {key for key, _ in one.hits}]
            return whole[-1:] or [one for one in there if any(key in keys for key, _ in one.hits)] or there[-1:]
        if kind == "fusion" or not there:
            return there
        last = there[-1]
        if output:
            had = {key for key, _ in last.hits}
            return [last] if all(key in had for key, _ in output) else there
        return there if last.is_list else [last]

    def _reads_what_is_there(self, taken: Sequence[_Source], read: Hits | None) -> bool:
        """Whether the input is what the stage before left, of the first stage what all lists found."""
        if self.stages:
            whole = len(taken) == 1 and taken[0].number == len(self.stages) - 1
        else:
            whole = len(frozenset().union(*(one.lists for one in taken))) == len(self.lists)
        if read is None:
            return whole
        return whole and len(taken) == 1 and [key for key, _ in read] == [key for key, _ in taken[0].hits]

    def _are_parents(self, stage: str, brought: Sequence[str], had: Collection[str]) -> bool:
        """Whether all that the stage brought are parents of what it read; then a remark says so."""
        ids = {key: (key, self.contents[key].id if key in self.contents else None) for key in brought}
        named = {key: [kid for kid in had if self.parents.get(kid) in ids[key]] for key in brought}
        how, found = "metadata names them", named
        if not all(named.values()):
            how, found = "text is in theirs", {key: [kid for kid in had if self._holds(key, kid)] for key in brought}
        if not brought or not all(found.values()):
            return False
        kids = len({kid for own in found.values() for kid in own})
        who = "it returned is the parent" if len(brought) == 1 else "it returned are the parents"
        line = f"{_count(brought, 'candidate')} that {who} of {kids} of its input, whose {how}"
        self.remarks.setdefault(stage, []).append(f"{line}, such as {brought[0]} of {found[brought[0]][0]}")
        return True

    def _holds(self, key: str, kid: str) -> bool:
        whole, part = (self.contents[one].content if one in self.contents else None for one in (key, kid))
        return bool(whole and part and whole != part and part in whole)

    def _find_own_ids(self, stage: str, taken: Sequence[_Source], output: Documents) -> None:
        """Whether a stage that reads several lists returned texts several times, because each list has a separate id for them."""
        joined = [self.texts[i] for i in sorted(frozenset[int]().union(*(one.lists for one in taken)))]
        if self.own_ids or len(joined) < 2:
            return
        ids: dict[str, dict[str, None]] = {}
        found = Counter(text for one in joined for text in one)
        for one in joined:
            for text, name in one.items():
                ids.setdefault(text, {})[name] = None
        returned = Counter(
            text for text, _ in dict.fromkeys((one.content, one.id) for one in output if one.content and one.id)
        )
        if not any(count > 1 and len(ids.get(text, ())) > 1 for text, count in returned.items()):
            return
        shared = [text for text, count in found.items() if count > 1]
        apart = [text for text in shared if len(ids[text]) == found[text]]
        if apart:
            self.own_ids = {"stage": stage, "texts": len(shared), "apart": len(apart), "ids": list(ids[apart[0]])}

    def _list_of_what_was_read(self) -> None:
        """Without a list, what the first stage read, or else returned, stands for one."""
        first = self.stages[0]
        hits = first.pop("input", None) or first["output"]
        first.pop("joined", None)
        name = self._unique(f"input of {first['name']}")
        self.lists.append({"name": name, "hits": [list(hit) for hit in hits]})
        self._warn(
            LISTS, f'no list was traced: what {first["name"]} read is taken as one; trace a search with kind="list"'
        )

    def _finish(self, left: Sequence[_Source]) -> None:
        """A last stage for a query whose own span has no documents and whose lists no stage read, or that failed."""
        span = self.root.span
        name = self._unique("results" if span.has_documents else _shown(span.name))
        hits: Hits = []
        if span.error is not None:
            self._warn(name, f"the query ended in an error{_words(span.error)} and returned nothing")
        elif len(left) == 1:
            hits = left[0].hits
            self.unknown = left[0].unknown
        else:
            self.unknown = True
            self._warn(name, "no stage joined the lists, and the query has no documents: what it returned is unknown")
        self.stages.append({"name": name, "kind": "other", "output": [list(hit) for hit in hits]})

    def _hits(self, documents: Documents, span: Span) -> Hits:
        found: dict[str, float | None] = {}
        twice = []
        first: dict[str, str | None] = {}
        for rank, document in enumerate(documents, 1):
            if document.id is None and document.content is None:
                found[f"{NOT_IN_TRACE}{rank} of {_shown(self._name_of_span(span))}"] = document.score
                continue
            # DSPy's outer span has the texts alone, the ids are those of the model that it called.
            inner = self.by_content.get(document.content or "") if document.id is None else None
            if document.content is None and document.id is not None:
                # The id alone, of a document that had its text before.
                inner = self.named.get(document.id)
            key = inner or self.name_of(document)
            if document.content is not None and document.id is not None:
                self.named.setdefault(document.id, key)
            if document.parent is not None and document.parent != document.id:
                self.parents.setdefault(key, document.parent)
            if key in found:
                twice.append((key, document.id))
                continue
            found[key], first[key] = document.score, document.id
            if document.content is not None and key not in self.contents:
                self.contents[key] = document
                self.by_content.setdefault(document.content, key)
        if twice:
            key, other = twice[0]
            ids = "" if other == first[key] else f", as {first[key]} and as {other}"
            self._warn(None, f"{_shown(self._name_of_span(span))}: {key} is in it twice{ids}; its first rank counts")
        return list(found.items())

    def _name_of_span(self, span: Span) -> str:
        return _shown(span.stage_name or span.name)

    def _said(self, span: Span) -> list[str]:
        error = "" if span.error is None else f"ended in an error{_words(span.error)}"
        problem = "" if span.problem is None else one_line(span.problem, 300)
        return [line for line in (error, problem, _lacking(span.output, span)) if line]

    def _warn(self, stage: str | None, line: str) -> None:
        self.warnings.setdefault(stage or LISTS, []).append(line)

    def _unique(self, name: str) -> str:
        number, free = 1, name
        while free in self.names:
            number += 1
            free = f"{name} {number}"
        self.names.add(free)
        return free


def _lacking(documents: Documents | None, span: Span) -> str:
    """Which documents of a list the trace lacks, and why; empty if it has all that the span says of."""
    if span.lost is None or documents is None:
        return ""
    gone = sum(one.id is None and one.content is None for one in documents)
    return lacking_line(gone, len(documents), one_line(span.lost, 300))


def _folded(text: str | None) -> str:
    return " ".join((text or "").casefold().split())


def _joined(taken: Sequence[_Source]) -> Hits:
    if len(taken) == 1:
        return taken[0].hits
    return [(key, None) for key in dict.fromkeys(key for one in taken for key, _ in one.hits)]


def _order_problem(hits: Hits) -> list[str]:
    """A line where scores are neither falling nor rising with the ranks."""
    scores = [score for _, score in hits if score is not None]
    if len(scores) < len(hits):
        return []
    pairs = list(pairwise(scores))
    if all(one >= other for one, other in pairs) or all(one <= other for one, other in pairs):
        return []
    place = next(i for i, (one, other) in enumerate(pairs) if one < other)
    (first, low), (second, high) = hits[place], hits[place + 1]
    return [f"its ranks are not those of its scores: {first} ({low:.4g}) is before {second} ({high:.4g})"]


def _count(keys: Sequence[str], what: str) -> str:
    return f"{len(keys)} {what}" if len(keys) == 1 else f"{len(keys)} {what}s"


def _shown(name: str) -> str:
    return one_line(name, 80).strip() or "span"


def _words(message: str) -> str:
    return f" ({one_line(message, 200)})" if message else ""
