"""The forms of a config for other systems, and its evidence card."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from dotenv import dotenv_values
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from cems_workbench.config import (
    EvidenceCard,
    Measured,
    PipelineConfig,
    card_path,
    export_config,
    import_config,
    load_config,
    preset,
    read_card,
    with_values,
)
from cems_workbench.config.evidence_card import CardReference, card_reference, cited_card, parse_card
from cems_workbench.errors import InputError
from cems_workbench.jobs.exporting import exported

CARD = EvidenceCard(
    baseline="cems",
    measured=(
        Measured(
            metric="nDCG@10", split="hold-out", queries=312, baseline=0.4, tuned=0.45, low=0.01, high=0.09, p=0.004
        ),
    ),
    split="5 folds by conversation",
    looks=1,
    trials=200,
    seed=7,
    corpus_hash="c0ffee",
    evidence_hash="beef",
    versions={"cems-workbench": "0.1.0"},
    date="2026-11-22",
)


class CEMSConfig(BaseSettings):
    """The retrieval settings of CEMS with their names, types and defaults, as its config.py declares them."""

    model_config = SettingsConfigDict(env_prefix="CEMS_", env_file_encoding="utf-8", extra="ignore")
    hybrid_vector_weight: float = Field(default=0.4)
    relevance_threshold: float = Field(default=0.45)
    score_gap_ratio: float = Field(default=0.5)
    max_candidates_per_query: int = Field(default=150)
    strong_signal_threshold: float = Field(default=0.85)
    strong_signal_gap: float = Field(default=0.15)
    rrf_original_weight: float = Field(default=2.0)
    rrf_expansion_weight: float = Field(default=1.0)
    rrf_decomposition_weight: float = Field(default=1.5)
    rrf_top_rank_bonus_r1: float = Field(default=0.05)
    rrf_top_rank_bonus_r23: float = Field(default=0.02)
    enable_lexical_in_inference: bool = Field(default=True)
    enable_query_synthesis: bool = Field(default=True)
    enable_query_decomposition: bool = Field(default=True)
    max_decomposed_queries: int = Field(default=3)
    enable_project_penalty: bool = Field(default=True)
    project_boost_factor: float = Field(default=1.3)
    project_penalty_factor: float = Field(default=0.8)


@pytest.fixture
def tuned() -> PipelineConfig:
    return with_values(
        preset("cems_head").config,
        {
            "lists.hybrid.vector_weight": 0.75,
            "filter.min_score": 0.31,
            "gap.ratio": 0.4,
            "lists.hybrid.depth": 90,
            "variants.original_weight": 2.25,
            "fusion.top_rank_bonus.rank1": 0.0,
            "lists.ts_rank.enabled": False,
            "expansion.backend": "llm",
            "adjust.project.enabled": False,
            "adjust.project.same": 1.5,
        },
    )


def test_the_env_of_cems_has_every_variable_that_cems_reads(tuned: PipelineConfig) -> None:
    values = dotenv_values(stream=io.StringIO(export_config(tuned, "env")))
    assert {f"CEMS_{name.upper()}" for name in CEMSConfig.model_fields} <= set(values)
    assert values["CEMS_HYBRID_VECTOR_WEIGHT"] == "0.75"


def test_pydantic_settings_reads_the_env_under_the_names_of_cems(tuned: PipelineConfig, tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(export_config(tuned, "env", CARD), encoding="utf-8")
    read = CEMSConfig(_env_file=path)  # type: ignore[call-arg]
    assert (read.hybrid_vector_weight, read.relevance_threshold, read.score_gap_ratio) == (0.75, 0.31, 0.4)
    assert (read.max_candidates_per_query, read.rrf_original_weight, read.rrf_top_rank_bonus_r1) == (90, 2.25, 0.0)
    assert (read.enable_lexical_in_inference, read.enable_query_synthesis) == (False, True)
    assert (read.enable_project_penalty, read.project_boost_factor) == (False, 1.5)


def test_what_cems_cannot_use_is_listed_with_its_reason_and_not_written() -> None:
    config = with_values(preset("cems_head").config, {"filter.min_score": 7.0, "fusion.k": 17})
    text = export_config(config, "env")
    assert "CEMS_RELEVANCE_THRESHOLD" not in dotenv_values(stream=io.StringIO(text))
    assert "filter.min_score = 7.0   (CEMS_RELEVANCE_THRESHOLD: outside what it can use, 0 to 1)" in text
    different, same = text.split("What no variable of CEMS sets")
    assert "fusion.k = 17" in different and "fusion.k" not in same


def test_null_becomes_the_nearest_value_and_is_listed() -> None:
    text = export_config(with_values(PipelineConfig(), {"filter.min_score": None}), "env")
    assert "CEMS_RELEVANCE_THRESHOLD=0\n" in text
    assert "filter.min_score = null   (CEMS_RELEVANCE_THRESHOLD=0 comes nearest)" in text


def test_openclaw_without_a_floor_is_exported_with_one_of_zero_for_it_has_its_own() -> None:
    config = with_values(preset("openclaw").config, {"assembly.min_score": None})
    text = export_config(config, "openclaw")
    assert "\nmemory.search.query.minScore = 0   # 0.35 at" in text and "minScore=0 comes nearest" in text
    assert import_config(text, config).config == config


def test_the_env_of_the_memory_agent() -> None:
    config = with_values(preset("memory_agent").config, {"rerank.instruction": "Find what the user's query needs"})
    values = dotenv_values(stream=io.StringIO(export_config(config, "reranker-env")))
    assert values == {
        "RERANKER_ENABLED": "true",
        "RERANKER_INSTRUCTION": "Find what the user's query needs",
        "RERANKER_OVERSAMPLE": "3.0",
        "RERANKER_MAX_CONCURRENT": "10",
        "RERANKER_TIMEOUT": "30.0",
    }


def test_an_env_of_cems_is_laid_over_what_cems_does() -> None:
    imported = import_config("CEMS_HYBRID_VECTOR_WEIGHT=0.7\nCEMS_MAX_CANDIDATES_PER_QUERY=40", source=".env").config
    assert imported == with_values(
        preset("cems_head").config, {"name": "imported", "lists.hybrid.vector_weight": 0.7, "lists.hybrid.depth": 40}
    )


def test_a_bad_variable_is_a_warning_and_the_good_ones_count() -> None:
    text = (
        "CEMS_API_KEY=secret-1\nCEMS_SCORE_GAPP_RATIO=0.4\n\n\nCEMS_SCORE_GAP_RATIO=1.5\nexport CEMS_PROJECT_BOOST_FACTOR=1.4 # note\n"
        "CEMS_MAX_CANDIDATES_PER_QUERY=many\nOTHER=secret-2\nCEMS_OLLAMA_URL=http://x\nCEMS_ENABLE_PROJECT_PENALTY=maybe\n"
    )
    imported = import_config(text, PipelineConfig(), source="my.env")
    assert imported.changes == [("adjust.project.same", 1.3, 1.4)]
    told = "\n".join(imported.warnings)
    assert (
        "line 2: CEMS_SCORE_GAPP_RATIO: no parameter of the pipeline; the nearest known one is CEMS_SCORE_GAP_RATIO"
        in told
    )
    assert "line 5: CEMS_SCORE_GAP_RATIO: '1.5' is not allowed; allowed: 0 to 1" in told
    assert "line 7: CEMS_MAX_CANDIDATES_PER_QUERY: 'many' is not allowed; allowed: a whole number" in told
    assert "CEMS_WORKBENCH_OLLAMA_URL" in told and "'maybe' is not allowed; allowed: true | false" in told
    assert "secret" not in told and len(imported.warnings) == 6


def test_an_env_without_any_variable_of_the_two_systems_is_refused() -> None:
    with pytest.raises(InputError, match="no variable of CEMS, the memory agent, ACE or Hindsight"):
        import_config("PATH=/bin\n", source=".env")


@pytest.mark.parametrize(
    ("text", "base"), [("CEMS_SCORE_GAP_RATIO=0.1", "cems_head"), ("RERANKER_TIMEOUT=5", "memory_agent")]
)
def test_an_env_alone_lies_over_what_its_system_does(text: str, base: str, tmp_path: Path) -> None:
    path = tmp_path / "x.env"
    path.write_text(text, encoding="utf-8")
    changed = {"cems_head": {"gap.ratio": 0.1}, "memory_agent": {"rerank.timeout_s": 5.0}}[base]
    assert load_config(path) == with_values(preset(base).config, changed | {"name": "imported"})


TOML_MISTAKES = {
    "fusion = 3": "fusion: expected a mapping",
    "[fusion]\nkk = 3": "the nearest known key is fusion.k",
    "[fusion]\nk = -3": "fusion.k: -3 is not allowed",
    'null = ["fusion.k"]': "fusion.k: None is not allowed",
    'null = ["fusion.kk"]': "the nearest known key is fusion.k",
    'null = ["filter.min_score"]\n[filter]\nmin_score = 0.1': "has a value and is listed under null",
    'null = ["name.x"]\nname = "n"': "not a parameter",
    'null = "filter"': "expected a list",
    "[fusion": "not readable as TOML",
}


@pytest.mark.parametrize(("text", "message"), TOML_MISTAKES.items())
def test_a_mistake_in_toml_is_one_line_that_names_it(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        import_config(text, source="c.toml")
    assert str(caught.value).startswith("c.toml:") and message in str(caught.value)
    assert "\n" not in str(caught.value)


PYTHON_MISTAKES = {
    "config_from(open('x').read())": "needs a literal",
    "config_from({'fusion': {'k': -1}})": "fusion.k: -1 is not allowed",
    "x = 1": "found 0",
    "config_from({": "line 1: not readable as Python",
}


@pytest.mark.parametrize(("text", "message"), PYTHON_MISTAKES.items())
def test_python_is_read_and_never_run(text: str, message: str) -> None:
    with pytest.raises(InputError, match=r"c\.py") as caught:
        import_config(text, source="c.py")
    assert message in str(caught.value)


@pytest.mark.parametrize("form", ["yaml", "toml", "env", "reranker-env", "ace-env", "engram", "python"])
def test_the_evidence_card_stands_at_the_head_as_comments(form: str) -> None:
    text = export_config(preset("cems").config, form, CARD)
    assert (
        "#   nDCG@10 on hold-out (312 queries): 0.4000 → 0.4500, difference +0.0500 [+0.0100, +0.0900], p = 0.004"
        in text
    )
    assert "hold-out opened 1 time" in text and "evidence beef" in text
    assert import_config(text, preset("cems").config).config == preset("cems").config


def test_a_card_is_read_back_and_a_bad_one_is_one_line(tmp_path: Path) -> None:
    path = card_path(tmp_path / "best.json")
    assert path.name == "best.card.json"
    path.write_text(CARD.to_json(), encoding="utf-8")
    assert read_card(path) == CARD
    path.write_text('{"baseline": 3}', encoding="utf-8")
    with pytest.raises(InputError, match=r"best\.card\.json: baseline: "):
        read_card(path)


def test_a_mode_of_supersession_that_mem0_lacks_names_the_script_instead() -> None:
    follow = with_values(preset("mem0").config, {"supersession.mode": "follow"})
    assert "`supersessions --script FILE`" in exported(follow, "mem0").instead
    assert not exported(preset("mem0").config, "mem0").instead and not exported(follow, "yaml").instead


def test_a_tuned_mem0_is_exported_as_constructor_and_search_arguments() -> None:
    changes = {
        "assembly.limit": 5,
        "threshold.fixed": 0.3,
        "lists.vector.scale": "inverse_l2",
        "rerank.backend": "cross_encoder",
    }
    tuned = with_values(preset("mem0").config, changes)
    text = export_config(tuned, "mem0", CARD)
    scope: dict[str, object] = {}
    exec("\n".join(line for line in text.splitlines() if line.startswith(("config =", "search ="))), scope)
    assert scope["config"] == {
        "vector_store": {"provider": "chroma"},
        "reranker": {"provider": "sentence_transformer"},
    }
    assert scope["search"] == {"threshold": 0.3, "rerank": True, "top_k": 5}
    read = import_config(text, source="tuned.mem0.py")
    assert (read.form, read.warnings, read.config) == ("mem0", [], with_values(tuned, {"name": "imported"}))


def test_what_mem0_has_fixed_is_listed_with_its_value() -> None:
    config = with_values(preset("mem0").config, {"lists.vector.depth": 200, "threshold.mode": "none"})
    text = export_config(config, "mem0")
    assert "lists.vector.depth = 200   (there 60)" in text
    assert "threshold.fixed = 0.1   (search.threshold: it always has one, and 0 comes nearest to none)" in text
    assert "'threshold': 0.0" in text


def test_an_argument_that_mem0_does_not_have_is_a_warning() -> None:
    text = "from mem0 import Memory\nconfig = {'embedder': {'provider': 'huggingface'}}\nsearch = {'topk': 3, 'threshold': 2}\n"
    read = import_config(text, source="x.py")
    assert read.config == with_values(preset("mem0").config, {"name": "imported"})
    assert "search.topk: no parameter of the pipeline; the nearest known one is search.top_k" in read.warnings[0]
    assert "'2' is not allowed; allowed: 0 to 1" in read.warnings[1] and len(read.warnings) == 2


def test_a_tuned_engram_is_exported_as_constants_and_where_they_are() -> None:
    changes = {"fusion.k": 30, "lists.fts5.cut": "score", "fusion.importance_bonus_ranks": 4, "dedup.enabled": True}
    tuned = with_values(preset("engram_head").config, changes)
    text = export_config(tuned, "engram", CARD)
    file = "processor/recollection-writer.ts"
    assert f"{file}: K = 30   # 60 at 10a2fe6\n" in text
    assert f"{file}: MATCH query, ORDER BY = bm25(episodes_fts)   # none at 10a2fe6\n" in text
    assert f"{file}: MIN_VECTOR_SIM = 0.25\n" in text, "an unchanged constant has no value of HEAD behind it"
    assert "K + …) = 5   # 11 at" in text and "dedup.enabled = true   (there false)" in text
    read = import_config(text, source="tuned.engram.txt")
    assert (read.form, read.warnings) == ("engram", [])
    assert read.config == with_values(tuned, {"name": "imported", "dedup.enabled": False})


def test_the_env_of_ace_has_what_its_encoder_reads() -> None:
    values = dotenv_values(stream=io.StringIO(export_config(preset("ace_head").config, "ace-env")))
    assert values == {"ACE_BM25_K1": "1.5", "ACE_BM25_B": "0.75", "ACE_BM25_AVG_DOC_LENGTH": "50.0"}
    read = import_config("ACE_BM25_B=0.5\nACE_EMBEDDING_URL=http://x\n", source=".env")
    assert read.form == "ace-env" and read.config.lists.sparse.b == 0.5
    assert "ACE_EMBEDDING_URL: no parameter of the pipeline" in read.warnings[0] and "http://x" not in read.warnings[0]


REFERENCE_CARD = CARD.model_copy(update={"corpus_hash": "5277dcbd4f74/12", "evidence_hash": "fd114efd1b58b344"})
HERE = CardReference("5277dcbd4f74", 12, "fd114efd1b58b344", "2026-11-22")


@pytest.mark.parametrize("form", ["yaml", "toml", "env", "reranker-env", "python"])
def test_the_reference_survives_every_form_that_has_comments(form: str) -> None:
    assert cited_card(export_config(preset("cems").config, form, REFERENCE_CARD)) == HERE


def test_a_file_without_a_card_cites_nothing() -> None:
    assert cited_card(export_config(preset("cems").config, "yaml")) is None
    assert cited_card(export_config(preset("cems").config, "json", REFERENCE_CARD)) is None


def test_the_card_of_json_is_a_file_of_its_own() -> None:
    assert card_reference(parse_card(REFERENCE_CARD.to_json(), "x.card.json")) == HERE


def test_the_store_it_was_tuned_on_matches_and_others_are_named() -> None:
    assert HERE.mismatch("5277dcbd4f74", 12) is None
    assert "another store (5277dcbd4f74)" in str(HERE.mismatch("0123456789ab", 12))
    changed = str(HERE.mismatch("5277dcbd4f74", 15))
    assert "content version 12, now 15" in changed


def test_a_card_that_is_none_is_one_clear_line() -> None:
    with pytest.raises(InputError, match=r"x\.card\.json"):
        parse_card("{", "x.card.json")
    with pytest.raises(InputError, match="looks"):
        parse_card(REFERENCE_CARD.to_json().replace('"looks": 1', '"looks": "often"'), "x.card.json")
