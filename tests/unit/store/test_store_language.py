"""The language of a store: told or chosen, kept, followed by words, stopwords and typo correction, proven with the index."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from Stemmer import algorithms

from cems_workbench.config.sections.gathering import Detectors, TypoCorrection
from cems_workbench.errors import InputError
from cems_workbench.pipeline.scoring import term_overlap
from cems_workbench.pipeline.stages.query import detect, features
from cems_workbench.pipeline.understanding import correct
from cems_workbench.records import CJK, ENGLISH, LANGUAGES, NO_LANGUAGE, Memory, ParsedInput
from cems_workbench.store import Store, Vocabulary
from cems_workbench.store.language import detect as told
from cems_workbench.store.search.lexical.tokenizer import stop_words, tokenize
from cems_workbench.store.search.lexical.vocabulary import count_words
from tests.small_store import HashEmbedder

DATA = Path(__file__).resolve().parents[2] / "data"
SAMPLE = Path(__file__).resolve().parents[3] / "sample_data"
JAPANESE = """
毎晩二時半に顧客データベースのバックアップが始まり、結果は共有フォルダーに保存されます。三十五日より古いものは自動で削除されます。
証明書は六月末に期限が切れるので、その前に踏み台サーバーで更新してください。パスワードは金庫に置き、環境変数には書かないでください。
請求書の送信は一分間に二百通までです。障害の原因は db-03 のディスクが一杯になったことで、ログが整理されていませんでした。
"""
CHINESE = """
每天凌晨两点半开始备份客户数据库，备份文件保存在共享目录中，超过三十五天的备份会自动删除。
测试环境的证书在六月底过期，请提前在跳板机上更新。密码保存在保险库中，不要写进环境变量。
发票服务每分钟最多发送两百封邮件。上次故障的原因是数据库服务器的磁盘已满，日志没有轮换。消息队列将在第三季度迁移，预计需要两周时间。
"""


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


def texts(language: str) -> list[str]:
    return [row["content"] for row in rows(f"{language}/memories.jsonl")]


def imported(store: Store, language: str) -> None:
    memories = tuple(Memory(row["id"], row["content"]) for row in rows(f"{language}/memories.jsonl"))
    store.add(ParsedInput("memories.jsonl", "memories-jsonl", memories=memories))


def ndcg10(store: Store, embedder: HashEmbedder, language: str) -> float:
    """Mean nDCG@10 of BM25, by exponential gains, over the judged queries of a language."""
    store.indexes.refresh(embedder)
    lexical = store.indexes.open(embedder).lexical
    grades: dict[str, dict[str, int]] = {}
    for line in (DATA / language / "judgments.qrels").read_text("utf-8").splitlines():
        qid, _, memory_id, grade = line.split()
        grades.setdefault(qid, {})[memory_id] = int(grade)
    found = []
    for row in rows(f"{language}/queries.jsonl"):
        own = grades[row["qid"]]
        ranked = [own.get(memory_id, 0) for memory_id, _ in lexical.search(row["query"], 10)]
        found.append(gain(ranked) / gain(sorted(own.values(), reverse=True)[:10]))
    return sum(found) / len(found)


def gain(grades: list[int]) -> float:
    return sum((2**grade - 1) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


@pytest.mark.parametrize("language", ["german", "spanish"])
def test_bm25_is_better_in_the_language_of_the_store(store: Store, embedder: HashEmbedder, language: str) -> None:
    imported(store, language)
    assert store.language.current == language
    right = ndcg10(store, embedder, language)
    assert store.language.choose(ENGLISH)
    assert right > ndcg10(store, embedder, language) + 0.05


def test_the_language_of_each_set_is_told() -> None:
    assert told(texts("german")).language == "german"
    assert told(texts("spanish")).language == "spanish"
    sample = [json.loads(line)["content"] for line in (SAMPLE / "memories.jsonl").read_text("utf-8").splitlines()]
    assert told(sample).language == ENGLISH
    assert told([JAPANESE]).language == told([CHINESE]).language == CJK


def test_too_little_text_and_mixed_text_are_english_and_say_why() -> None:
    few = told(["Der Index fehlte."])
    assert few.language == ENGLISH and "too few words to detect one (3," in few.reason
    mixed = told([*texts("german"), *texts("spanish")])
    assert mixed.language == ENGLISH and "undecided" in mixed.reason
    assert told(["SELECT id FROM orders WHERE total > 10"] * 100).language == ENGLISH


def test_only_an_empty_store_is_told_its_language(store: Store) -> None:
    store.add(ParsedInput("a", "memories-jsonl", memories=(Memory("a", "one note"),)))
    imported(store, "german")
    assert store.language.current == ENGLISH


def test_a_chosen_language_is_kept_and_not_told_again(store: Store) -> None:
    assert not store.language.choose("auto")
    assert store.language.choose("spanish")
    imported(store, "german")
    assert (store.language.current, store.language.choice().reason) == ("spanish", "as chosen")
    assert not store.language.choose("spanish")


def test_an_unknown_language_is_refused_with_the_nearest(store: Store) -> None:
    with pytest.raises(InputError, match="did you mean german"):
        store.language.choose("germann")


def test_another_language_builds_the_words_anew_and_embeds_nothing(store: Store, embedder: HashEmbedder) -> None:
    imported(store, "german")
    store.indexes.refresh(embedder)
    assert store.language.choose(NO_LANGUAGE)
    lexical, _ = store.indexes.states(embedder.model_id)
    assert not lexical.fresh and lexical.note == "built by another tokenizer version" and not lexical.damaged
    report = store.indexes.refresh(embedder)
    assert report.lexical_rebuilt and report.embedded == 0
    assert store.indexes.open(embedder).lexical.language == NO_LANGUAGE


def test_an_index_of_another_language_is_not_taken_for_the_stores(store: Store, embedder: HashEmbedder) -> None:
    imported(store, "german")
    store.indexes.refresh(embedder)
    manifest = store.path / "lexical" / "manifest.json"
    assert json.loads(manifest.read_text("utf-8"))["tokenizer"] == "1 german"


def test_every_language_gives_terms() -> None:
    assert set(LANGUAGES) - set(algorithms()) == {CJK, NO_LANGUAGE}
    for language in LANGUAGES:
        assert "getuserbyid" in tokenize("getUserById", language)


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("german", "Zertifikate", "Zertifikat"),
        ("german", "Häuser", "Haus"),
        ("spanish", "canciones", "canción"),
        ("french", "l'erreur", "erreurs"),
        ("turkish", "İstanbul", "istanbul"),
        ("russian", "серверы", "сервера"),
    ],
)
def test_forms_of_a_word_meet(language: str, one: str, other: str) -> None:
    assert set(tokenize(one, language)) & set(tokenize(other, language))


def test_accents_divide_no_word() -> None:
    assert tokenize("Datenbank-Größe", "german") == ["datenbank-größe", "datenbank", *tokenize("Größe", "german")]


def test_stopwords_of_the_language_give_no_term() -> None:
    assert tokenize("der und die", "german") == tokenize("de la los", "spanish") == []
    assert tokenize("der und", NO_LANGUAGE) == ["der", "und"]
    assert not stop_words("basque")


def test_chinese_japanese_and_korean_are_searched_by_characters_and_pairs() -> None:
    assert tokenize("数据库", CJK) == ["数据", "据库", "数", "据", "库"]
    assert tokenize("데이터", CJK) == ["데이", "이터", "데", "이", "터"]
    assert tokenize("the Kafka 障", CJK) == ["kafka", "障"]


@pytest.mark.parametrize("language", ["german", "spanish"])
def test_typo_correction_leaves_right_words_of_the_language(language: str) -> None:
    vocabulary = Vocabulary(count_words(texts(language)))
    for row in rows(f"{language}/queries.jsonl"):
        assert correct(row["query"], vocabulary, [], TypoCorrection(enabled=True), language=language).corrections == ()


def test_typo_correction_mends_a_german_word() -> None:
    vocabulary = Vocabulary(count_words(texts("german")))
    found = correct("Wo stehen die Bestelungen?", vocabulary, [], TypoCorrection(enabled=True), language="german")
    assert [correction.typo for correction in found.corrections] == ["bestelungen"]


def test_english_word_lists_are_silent_in_another_language() -> None:
    assert detect("Und was war last week?", Detectors())
    assert detect("Und was war last week?", Detectors(), "german") == ()
    assert features("was is da", frozenset(), "german").stopword_ratio == 0


def test_the_sentence_for_the_reranker_is_chosen_by_the_stems_of_the_language() -> None:
    content = "Wir haben lange gewartet. Die Zertifikate laufen ab."
    assert term_overlap(content, "Zertifikats", 30, "german") == "Die Zertifikate laufen ab."
