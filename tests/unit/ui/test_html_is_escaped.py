"""No tag, attribute or entity in the name of a memory, query or list reaches the page.

Each view is drawn twice, once with hostile text and once with harmless text of the same length, and must have the same tags
and attributes both times; and the hostile text must be readable in it, letter for letter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.analysis.proposed_edges import ProposedEdge
from cems_workbench.analysis.ranks import RankComparison
from cems_workbench.analysis.supersession_signals import Signals, Span
from cems_workbench.analysis.text_evidence import Match
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.evaluation.labelling.queue import Card
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Trace, Variant, replay
from cems_workbench.pipeline.stages.expansion import StrongSignal
from cems_workbench.pipeline.stages.query import DetectorMatch
from cems_workbench.records import Memory, Query
from cems_workbench.store import IndexState, LearnedPair
from cems_workbench.ui.inspect.baseline import against_html, lost_results_html
from cems_workbench.ui.inspect.results import results_html, strip_html, warnings_html
from cems_workbench.ui.inspect.searched import path_html
from cems_workbench.ui.inspect.tables import alignment_html
from cems_workbench.ui.inspect.toolbar import pair_html
from cems_workbench.ui.inspect.views.contributions import contributions_figure
from cems_workbench.ui.inspect.views.query import corrections_html, probe_html, signals_html, spans_html
from cems_workbench.ui.inspect.views.rerank import model_html
from cems_workbench.ui.kit import tables
from cems_workbench.ui.kit.html import render
from cems_workbench.ui.label.card import card_html
from cems_workbench.ui.memories.page import facts_html
from cems_workbench.ui.memories.store import indexes_html
from workbench_inspect.diversity import matrix_html, pairwise
from workbench_inspect.text_evidence import Edge, marked_html
from workbench_supersession.review import pair_html as superseded_html

NOW = datetime(2026, 9, 1, tzinfo=UTC)
ATTACK = "\"'><script>alert(1)</script><img/src=x/onerror=alert(2)>&lt;&amp;</div><!--"
NASTY = st.lists(
    st.sampled_from(
        [
            "<script>",
            "</script>",
            "<b>",
            "</div>",
            "</td>",
            '"',
            "'",
            "&",
            "&lt;",
            "&#60;",
            "<",
            ">",
            "<!--",
            "-->",
            "<img/src=x/onerror=y>",
            "]]>",
            "<?",
            'x"/onload="',
            "a",
            "é",
        ]
    ),
    min_size=1,
    max_size=8,
).map("".join)


class Reading(HTMLParser):
    """The tags with their attributes' names, and the text, as a browser would see them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, ...]] = []
        self.text = ""
        self.values: list[str] = []
        self.feed(str(html))  # a part of Markup would be Markup, and escape what it is added to
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))
        self.values += [value or "" for _, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}",))

    def handle_comment(self, data: str) -> None:
        self.tags.append(("comment",))

    def handle_decl(self, decl: str) -> None:
        self.tags.append(("declaration",))

    def handle_pi(self, data: str) -> None:
        self.tags.append(("instruction",))

    def handle_data(self, data: str) -> None:
        self.text += data


@lru_cache(maxsize=8)
def trace(text: str) -> Trace:
    """A replay in which every text that can come from outside is `text`, and every stage has something to say; drawn by many views."""
    ids = [f"{i}{text}" for i in range(4)]
    now = datetime(2026, 9, 1, tzinfo=UTC)
    memories = {
        key: Memory(
            key,
            f"content {text}",
            title=f"title {text}",
            category=text,
            project=text,
            author=text,
            session=text,
            tags=(text,),
            created_at=now if i else None,
            importance="high",
        )
        for i, key in enumerate(ids)
    }
    lists = (
        RankedList(f"vector {text}", "vector", 0, tuple(Hit(key, 0.9 - 0.1 * i) for i, key in enumerate(ids))),
        RankedList(f"lexical {text}", "lexical", 0, (Hit(ids[1], 3.0),)),
    )
    scores = {ids[0]: ModelScore(None, text, f"error {text}"), ids[1]: ModelScore(0.7, text)}
    evidence = Evidence(
        query=text,
        memories=memories,
        variants=(Variant(text),),
        lists=lists,
        as_of=now,
        project=text,
        model_scores={text: scores},
        embeddings={key: [1.0, 0.0] for key in ids[2:]},
        notes={
            "warnings": {"lists": [f"note {text}"], "rerank": [text]},
            "query": {"route": "hybrid", "route_reason": text},
        },
    )
    changes = {
        "rerank.backend": "late_interaction",
        "rerank.model": text,
        "rerank.depth": 3,
        "dedup.enabled": True,
        "rerank.below_depth": "below",
        "fusion.importance_bonus_ranks": 10,
        "fusion.top_rank_bonus.mode": "best_rank",
    }
    return replay(evidence, with_values(PipelineConfig(), changes))


def spans(text: str) -> str:
    half = len(text) // 2
    matches = [
        DetectorMatch(f"d {text}", f"s {text}", half, len(text), cuts_word=False),
        DetectorMatch("temporal", text, 0, half, cuts_word=False),
    ]
    return spans_html(text, matches)


def grades(trace: Trace) -> dict[str, int]:
    return {key: i for i, key in enumerate(trace.evidence.memories)}


def followed(trace: Trace, which: int) -> str:
    return sorted(trace.evidence.memories)[which]


def results(text: str) -> str:
    shown = trace(text)
    return results_html(shown, grades(shown), followed(shown, 1))


def memory(text: str) -> Memory:
    """A memory that is `text` in every field."""
    return Memory(
        f"id {text}",
        f"content {text}",
        title=f"title {text}",
        category=text,
        project=text,
        author=text,
        session=text,
        tags=(text,),
        created_at=datetime(2026, 9, 1, tzinfo=UTC),
        source_ref=text,
    )


def card(text: str, query: str) -> str:
    """A card to label; `query` decides which words are marked, and therefore is another than `text` where that is in the memory."""
    return card_html(Card("queue", Query("q1", query, project=text), memory(text)), 7, NOW)


def superseded(text: str) -> str:
    signals = Signals(1.0, 0.0, 0.0, 0.0, 0.0, (text,), (), (Span("title", 0, 1),))
    edge = ProposedEdge("n", "o", 0.5, 2.0, "2 days later", {"cosine": 0.5}, signals)
    return superseded_html(edge, memory(text), memory(text), 1)


LABEL_AND_MEMORIES: dict[str, Callable[[str], str]] = {
    "card": lambda text: card(text, "Zq"),
    "superseded": superseded,
    "query of a card": lambda text: card_html(Card("queue", Query("q1", text), Memory("m1", "0")), 7, NOW),
    "facts": lambda text: facts_html(memory(text)),
    "title": lambda text: render("memories/title.html", id=text, title=text),
    "text": lambda text: render("memories/text.html", content=text),
    "deleted": lambda text: render("memories/undo.html", id=text),
    "indexes": lambda text: indexes_html([IndexState(f"vectors {text}", 1, 2, True, 3, text)]),
    "folder": lambda text: render("memories/open_folder.html", path=text),
    "embedder": lambda text: render("memories/embedder.html", model=text, meaning=text),
    "empty panel": lambda text: render("kit/empty.html", title=text, text=text),
}


def gone(text: str) -> str:
    """Against a baseline that is called `text`, and has results that only it ranks."""
    shown = trace(text)
    none = replay(shown.evidence, with_values(shown.config, {"assembly.limit": 1}))
    against = RankComparison(text, none, shown)
    return against_html(against) + lost_results_html(against) + results_html(none, {}, None, against)


def tokens(text: str) -> str:
    entries = [{"query": text, "text": f"##{text}", "idf": 2.0, "cosine": 0.5}]
    return alignment_html(ModelScore(0.5, detail={"alignment": entries}))


def similar(text: str) -> str:
    shown = trace(text)
    ids = sorted(shown.evidence.memories)
    return matrix_html(shown, pairwise(shown.evidence, ids), 0.5)


def marked(text: str) -> str:
    edges = [Edge(1, text, text)]
    return marked_html(f"a{text}", [Match(0, 1, ("a",))], {"a": text}, (0, 1), edges)


CORRECTION = {"similarity": 0.9}
INSPECT: dict[str, Callable[[str], str]] = {
    "signals": lambda text: signals_html("of the query", [DetectorMatch(text, text, 0, 2, cuts_word=True)]),
    "corrections": lambda text: corrections_html(
        [{"typo": text, "correction": text, "source": text, **CORRECTION}], text
    ),
    "gone": gone,
    "tokens": tokens,
    "similar": similar,
    "marked": marked,
    "model": lambda text: model_html(trace(text)),
    "pair": lambda text: pair_html(LearnedPair(text, text, 2, *[datetime(2026, 9, 1, tzinfo=UTC)] * 2)),
    "variant": lambda text: render("inspect/variant.html", variant=Variant(text)),
}

VIEWS: dict[str, Callable[[str], str]] = {
    **INSPECT,
    "strip": lambda text: strip_html(trace(text), 1.0),
    "warnings": lambda text: warnings_html(trace(text)),
    "results": results,
    "spans": spans,
    **{f"path {i}": lambda text, i=i: path_html(trace(text), followed(trace(text), i)) for i in range(4)},  # type: ignore[misc]
    **LABEL_AND_MEMORIES,
}


def test_hostile_text_draws_as_harmless_text_does(subtests: pytest.Subtests) -> None:
    for view in VIEWS:
        for text in [ATTACK, "&amp;", '" onmouseover="x', "</div></td></table>"]:
            with subtests.test(view=view, text=text):
                shown = Reading(VIEWS[view](text))
                assert shown.tags == Reading(VIEWS[view]("a" * len(text))).tags
                halves = [text] if view != "spans" else [text[: len(text) // 2], text[len(text) // 2 :]]
                for part in halves:
                    assert part in shown.text or any(part in value for value in shown.values)


@given(NASTY)
def test_no_text_changes_the_tags_of_any_view(text: str) -> None:
    for name, view in VIEWS.items():
        assert Reading(view(text)).tags == Reading(view("a" * len(text))).tags, name


def test_what_is_left_out_of_the_results_is_hostile_in_every_field() -> None:
    """The test would prove nothing if a field were not drawn."""
    html = results("Zq")
    for part in (
        "<code>0Zq</code>",
        "<b>title Zq</b>",
        "content Zq</div>",
        *(f'<span title="{name}">Zq</span>' for name in ("Category", "Project", "Author")),
    ):
        assert part in html, part
    assert "note Zq" in strip_html(trace("Zq")) and "note Zq" in warnings_html(trace("Zq"))


PROBE = StrongSignal(
    enabled=True,
    scale="saturating",
    raw_top=6.0,
    raw_second=1.0,
    top=6 / 7,
    second=0.5,
    threshold=0.85,
    gap=0.15,
    fires=True,
    short_of_threshold=0.0,
    short_of_gap=0.0,
)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "Fires"),
        ({"fires": False, "short_of_threshold": 0.25}, "Does not fire"),
        ({"enabled": False}, "Switched off"),
    ],
)
@pytest.mark.parametrize("scale", ["raw", "max", "saturating"])
def test_the_probe_says_its_verdict_and_the_distance(changes: dict[str, Any], verdict: str, scale: str) -> None:
    shown = Reading(probe_html(replace(PROBE, **changes, scale=scale)))
    assert {tag[0].strip("/") for tag in shown.tags} == {"div", "b", "table", "tr", "th", "td", "span"}
    assert f"Strong-signal probe {verdict}" in shown.text
    assert "6.0000 raw" in shown.text and "0.8571" in shown.text and "0.3571" in shown.text
    assert ("short by 0.2500" in shown.text) == ("short_of_threshold" in changes)


def test_the_probe_has_nothing_but_numbers_to_show() -> None:
    """A text where a number belongs is no record of a probe."""
    assert StrongSignal.read(asdict(PROBE)) == PROBE
    assert StrongSignal.read(asdict(PROBE) | {"raw_top": "<script>"}) is None


def test_labels_hovers_and_legend_of_the_contributions_have_no_tag() -> None:
    """Plotly reads a little HTML in texts; the only tag is the line break of a hover, which is ours."""
    figure = contributions_figure(trace(ATTACK))
    texts: list[str] = []
    for bar in figure.data:
        texts += [bar.name, *bar.y, *(hover.replace("<br>", "") for hover in bar.hovertext)]
    assert len(texts) > 20
    assert [text for text in texts if "<" in text or ">" in text] == []
    assert any("&lt;script&gt;" in text for text in figure.data[0].y)


def test_every_tooltip_that_a_page_takes_from_help_json_is_in_it() -> None:
    sources = [path.read_text("utf-8") for path in Path(tables.__file__).parents[1].rglob("*.py")]
    taken = {key for source in sources for key in re.findall(r'\bHELP\["([a-z_:]+)"\]', source)}
    assert len(taken) > 60 and taken <= set(tables.HELP)
