"""Views of model output: judge, reranker health, threshold, query analysis, and learned typos."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset, with_values
from cems_workbench.models.minilm_judge import MODEL_ID, MiniLMJudge, available
from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.pipeline.stages.judge import BANDS
from cems_workbench.ui.kit import session

from .conftest import ROOT
from .inspect_page import (
    WIRED,
    config_of,
    configured,
    evidence_of,
    gathered,
    order,
    search,
    set_config,
    set_state,
    show,
)
from .pages import OpenPage, buttons, captions, html, table_with

PACKAGED = pytest.mark.skipif(not available(), reason="this checkout has no weights of the packaged cross-encoder")
JUDGED: dict[str, Any] = {"judge.backend": "late_interaction", "judge.threshold": 0.3, "judge.bands": [0.4, 0.3, 0.2]}
NOBODY: dict[str, Any] = {"rerank.backend": "llama_server", "rerank.depth": 12, "rerank.timeout_s": 2}


def notes(page: AppTest) -> str:
    return " ".join(element.proto.body for element in page.get("html") if "wb-notes" in element.proto.body)


def test_the_judge_scores_the_results_when_its_view_is_opened_and_changes_no_rank(open_page: OpenPage) -> None:
    page = search(configured(open_page(), JUDGED))
    before = order(page)
    assert not evidence_of(page).judge_scores
    page = show(page, "Judge")
    judged = table_with(page, "sigmoid")
    assert list(judged["memory"]) == before == order(page)
    assert judged["logit (raw)"].notna().all()
    assert [sign == "✓ yes" for sign in judged["relevant"]] == [raw > 0.3 for raw in judged["logit (raw)"]]
    assert set(evidence_of(page).judge_scores) == {"late_interaction"}
    assert "Judged by **late interaction" in captions(page)
    assert len(page.get("plotly_chart")) == 1


@PACKAGED
@pytest.mark.parametrize("name", ["cems", "ace"])
def test_by_default_the_packaged_cross_encoder_judges_with_logits_and_bands_of_its_own(
    open_page: OpenPage, name: str
) -> None:
    page = show(search(configured(open_page(), {}, name)), "Judge")
    judged, scale = table_with(page, "sigmoid"), MiniLMJudge().scale
    assert judged["logit (raw)"].notna().all()
    assert set(judged["band"]) <= set(BANDS)
    assert [sign == "✓ yes" for sign in judged["relevant"]] == [raw > scale.threshold for raw in judged["logit (raw)"]]
    assert [BANDS.index(band) for band in judged["band"]] == [
        sum(raw <= low for low in scale.bands) for raw in judged["logit (raw)"]
    ]
    assert f"Judged by **cross-encoder {MODEL_ID} (packaged with the workbench)**" in captions(page).replace("\\", "")
    assert f"(above {scale.threshold:g})" in captions(page)
    assert ("also ranked" in notes(page)) == (name == "ace")


def test_without_a_judge_or_results_the_view_says_so(open_page: OpenPage) -> None:
    page = show(search(configured(open_page(), {"judge.backend": "none"})), "Judge")
    assert "The judge is off" in page.info[-1].value
    page = configured(page, {"filter.min_score": 100.0})
    page.run()
    assert "no results to judge" in captions(page)


def test_the_health_panel_counts_failures_by_cause_and_lists_the_flagged(open_page: OpenPage) -> None:
    page = show(search(configured(open_page(), NOBODY)), "Rerank")
    panel = html(page, "wb-numbers")
    assert "0 of 12" in panel
    assert "12 · 100%" in panel
    assert "Failed by cause: refused 12" in notes(page)
    outcomes = table_with(page, "outcome")["outcome"]
    assert sum(outcome.startswith("failed: ") for outcome in outcomes) == 12
    assert "inspect:ask_again" in buttons(page)


def test_the_failed_are_asked_again_and_the_others_are_not(open_page: OpenPage) -> None:
    page = show(search(configured(open_page(), {"lists.vector.depth": 20}, "qmd")), "Rerank")
    evidence = evidence_of(page)
    scores = dict(evidence.model_scores["late_interaction"])
    broken, *others = sorted(scores)
    hurt = {**scores, broken: ModelScore(None, scores[broken].chunk, "timeout: <b>30 s</b>")}
    set_state(
        page, gathered=replace(gathered(page), evidence=replace(evidence, model_scores={"late_interaction": hurt}))
    )
    page.run()
    assert "1 flagged: failed" in captions(page)
    assert "timeout 1" in notes(page)
    page = page.button(key="inspect:ask_again").click().run()
    again = evidence_of(page).model_scores["late_interaction"]
    assert again[broken].raw == pytest.approx(scores[broken].raw)
    assert all(again[other] is scores[other] for other in others)
    assert "inspect:ask_again" not in buttons(page)


def test_effective_weights_say_when_the_bands_are_inverted(open_page: OpenPage) -> None:
    page = show(search(configured(open_page(), {"rerank.retrieval_score": "rrf"}, "qmd")), "Rerank")
    panel = html(page, "wb-weights")
    assert "75% : 25%" in panel
    assert "opposite of the setting" in panel
    set_config(page, with_values(preset("qmd").config, {"rerank.combine": "replace"}))
    page.run()
    assert "no weights to compare" in captions(page)


def test_the_threshold_view_shows_the_cuts_tried_and_what_they_left(open_page: OpenPage) -> None:
    page = show(search(configured(open_page(), {"threshold.mode": "adaptive"})), "Threshold")
    assert "Chosen: **" in captions(page)
    assert len(page.get("plotly_chart")) == 1
    cuts = table_with(page, "lowest kept")
    assert (cuts["hits"] == cuts["kept"] + cuts["cut"]).all()
    set_config(page, with_values(preset("cems").config, {"threshold.mode": "fixed"}))
    page.run()
    assert "Fixed threshold 0.6" in captions(page)
    assert not page.get("plotly_chart")
    set_config(page, preset("cems").config)
    page.run()
    assert "No threshold is set" in page.info[-1].value


def test_the_query_view_says_why_a_query_is_conversational_and_whether_that_counts(open_page: OpenPage) -> None:
    page = show(search(configured(open_page(), {}), WIRED), "Query")
    verdict = html(page, "wb-conversational")
    assert "<b>Conversational</b> detection is off" in verdict
    assert "7 of 8 = 0.875" in verdict
    assert "wired" in verdict
    assert "No LLM was used: none is set" in captions(page)
    acted_on = {"query.conversational.enabled": True, "lists.lexical.skip_if_conversational": True}
    set_config(page, with_values(config_of(page), acted_on))
    page.run()
    assert "so the lexical list is skipped" in html(page, "wb-conversational")


def test_a_corrected_typo_is_named_learned_and_can_be_forgotten(open_page: OpenPage) -> None:
    page = configured(open_page(), {"query.typo_correction.enabled": True})
    page = show(search(page, "elasticsaerch cluster"), "Query")
    shown = html(page, "wb-corrections")
    assert "elasticsaerch → elasticsearch" in shown
    assert "<td>0.92</td><td>store</td>" in shown
    store = session.resources().store
    store.corrections.learn([("<b>x</b>", "kafka")], 1000)
    store.corrections.refuse("kofka", "coffee")
    page.session_state["inspect:typos"] = True
    page.run()
    bodies = " ".join(element.proto.body for element in page.get("html"))
    assert "&lt;b&gt;x&lt;/b&gt; → <b>kafka</b>" in bodies
    assert "2 learned, 1 refused" in captions(page)
    page = page.button(key="inspect:typo:<b>x</b>:kafka").click().run()
    assert {(pair.typo, pair.refused) for pair in store.corrections.read()} == {
        ("elasticsaerch", False),
        ("kofka", True),
    }
    page.text_input(key="inspect:query").set_value("cluster").run()
    page = page.button(key="inspect:typos_forget_all").click().run()
    assert [pair.typo for pair in store.corrections.read()] == ["kofka"]
    page.button(key="inspect:typo:kofka:coffee").click().run()
    assert "Nothing is learned yet" in captions(page)
    assert store.corrections.read() == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nothing at all"])
def test_an_embedder_on_a_server_that_is_down_is_one_line_on_either_page(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("CEMS_WORKBENCH_EMBEDDER", "ollama:nomic-embed-text")
    monkeypatch.setenv("CEMS_WORKBENCH_OLLAMA_URL", url)
    page = search(open_page())
    assert len(page.error) == 1
    assert "\n" not in page.error[0].value
    memories = AppTest.from_file(str(ROOT / "pages" / "memories.py"), default_timeout=60)
    memories.session_state["memories:view"] = "Store"
    memories.run()
    assert "The embedding model cannot be reached" in " ".join(error.value for error in memories.error)
    assert "vectors" in " ".join(element.proto.body for element in memories.get("html")).lower()


def test_late_interaction_shows_which_token_met_which_for_two_candidates(open_page: OpenPage) -> None:
    page = show(
        search(configured(open_page(), {"rerank.backend": "late_interaction"}, "qmd"), "kubernetes cluster"), "Rerank"
    )
    bodies = [element.proto.body for element in page.get("html") if 'class="wb-tokens"' in element.proto.body]
    assert len(bodies) == 2
    assert all("<b>cluster</b>" in body for body in bodies)
    boxes = [box for box in page.selectbox if box.key and box.key.startswith("inspect:alignment:")]
    assert boxes[0].value != boxes[1].value
    third = boxes[1].options[2]
    boxes[1].select_index(2).run()
    assert next(box for box in page.selectbox if box.key == boxes[1].key).value in third
