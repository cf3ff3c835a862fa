"""What text becomes when it is searched: terms, stop words, the language of a store, learned corrections of typos."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from Stemmer import algorithms

from cems_workbench.config.sections import Detectors, TypoCorrection
from cems_workbench.errors import InputError
from cems_workbench.pipeline.scoring import term_overlap
from cems_workbench.pipeline.stages.query import detect, features
from cems_workbench.pipeline.understanding import correct
from cems_workbench.records import CJK, ENGLISH, LANGUAGES, NO_LANGUAGE, Memory, ParsedInput
from cems_workbench.store import LearnedPair, Store, Vocabulary
from cems_workbench.store.language import detect as told
from cems_workbench.store.search import tokenizer, vocabulary
from cems_workbench.store.search.stop_lists import NotInstalledError, stop_list
from cems_workbench.store.search.tokenizer import query_words, stop_words, tokenize
from cems_workbench.store.search.vocabulary import count_words
from tests.small_store import HashEmbedder


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The retrieval of memories", ["retriev", "memori"]),
        ("getUserById", ["getuserbyid", "get", "user", "id"]),
        ("user by id", ["user", "id"]),
        ("parse_config_file", ["parse_config_file", "pars", "config", "file"]),
        ("well-known", ["well-known", "well", "known"]),
        ("src/api/main.py", ["src/api/main.py", "src", "api", "main", "py"]),
        (r"C:\Temp\notes.txt", [r"c:\temp\notes.txt", "temp", "note", "txt"]),
        ("os.path.join", ["os.path.join", "os", "path", "join"]),
        ("v1.2.3", ["v1.2.3", "1.2.3"]),
        ("3.11", ["3.11"]),
        ("python3.11", ["python3.11", "python", "3.11"]),
        ("E1234", ["e1234", "1234"]),
        ("ORA-00942", ["ora-00942", "ora", "00942"]),
        ("DATABASE_URL", ["database_url", "databas", "url"]),
        ("$HOME", ["home"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("iPhones", ["iphones", "iphon", "phone"]),
        ("README", ["readm"]),
        ("Caroline's", ["carolin"]),
        ("Caroline\u2019s", ["carolin"]),
        ("don't", []),
        ("C++ and C#", ["c++", "c#"]),
        ("me@example.com", ["me@example.com", "exampl", "com"]),
        ("café", ["café"]),
        ("ﬁne", ["fine"]),
        ("ＦＵＬＬ", ["full"]),
        ("東京都", ["東京都", "東京", "京都"]),
        ("2023", ["2023"]),
        ("", []),
        ("… — !?", []),
    ],
)
def test_terms(text, terms):
    assert tokenize(text) == terms


def test_a_document_and_a_query_meet_whatever_the_case():
    assert set(tokenize("USERSERVICES")) & set(tokenize("UserServices")) & set(tokenize("userservices"))


def test_endless_chunks_give_no_endless_terms():
    for text in ("x" * 10_000, "aB" * 5_000, "a/" * 5_000 + "b", "a" * 300 + "_word"):
        assert all(len(term) <= tokenizer.MAX_TERM_CHARS for term in tokenize(text))


TYPESCRIPT = """
// words that don't count
const STOP_WORDS: Set<string> = new Set([
  'A', "the", // it's short
  'don\\'t', /* "not one" */
]);
const TABLE = { "a": "b", "c": "d" };
greet("x", "y");
"""
PYTHON = """
# it's a comment with "quotes"
SMALL: frozenset[str] = frozenset({"a", "an"})
LARGE = set('''the of
and'''.split())
"""


@pytest.fixture
def write(tmp_path: Path):
    def written(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, "utf-8")
        return str(tmp_path / name)

    return written


def test_signs_outside_ascii_are_blanked_so_that_a_word_may_become_two() -> None:
    assert query_words("Gdańsk, snake_case?", outside="blanked") == ["Gda", "sk", "snake", "case"]


def test_signs_outside_ascii_are_removed_so_that_two_words_may_become_one() -> None:
    found = query_words("src/main.py it's é top-level", outside="removed", also="-_", min_characters=2)
    assert found == ["srcmainpy", "its", "top-level"]


def test_stop_words_and_repeats_go_before_the_first_words_are_counted() -> None:
    words = query_words("The cat the dog Cat bird", stop_words={"the"}, distinct=True, max_words=3)
    assert words == ["cat", "dog", "bird"]
    assert query_words("The cat The dog", max_words=3) == ["The", "cat", "The"]


def test_stop_list_of_a_plain_file_leaves_out_comments(write) -> None:
    assert stop_list(write("words.txt", "# head\nthe\nOf and\n")) == {"the", "of", "and"}
    assert stop_list(None) == frozenset()


def test_stop_list_of_source_code_is_what_one_name_is_assigned(write) -> None:
    assert stop_list(write("words.ts", TYPESCRIPT)) == {"a", "the", "don't"}
    file = write("words.py", PYTHON)
    assert stop_list(f"{file}#SMALL") == {"a", "an"}
    assert stop_list(f"{file}#LARGE") == {"the", "of", "and"}
    assert stop_list(write("words.json", '{"en": ["The", "a"], "version": 2}')) == {"the", "a"}


def test_stop_list_says_what_to_do_in_one_line(write, tmp_path: Path) -> None:
    file = write("words.py", PYTHON)
    for name, said in {
        file: "2 lists of quoted words; add #NAME, such as LARGE, SMALL",
        f"{file}#SMAL": "did you mean SMALL",
        write("none.ts", "const x = 1;"): "no list of quoted words",
        f"{write('plain', 'the')}#X": "plain list",
        str(tmp_path / "absent"): "no such stop words",
        write("empty", "# nothing\n"): "has no words",
    }.items():
        with pytest.raises(InputError, match=said) as refused:
            stop_list(name)
        assert "\n" not in str(refused.value)


def test_stop_list_of_an_installation_is_found_beside_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "home" / "tool" / "node_modules" / "memory" / "dist"
    package.mkdir(parents=True)
    (package / "words-x1.mjs").write_text("const EN = ['the', 'a'], ES = ['el', 'la'], N = 1;", encoding="utf-8")
    name = "beside:node_modules/memory/dist/words-*.mjs"
    (away := tmp_path / "away").mkdir()
    monkeypatch.chdir(away)
    store = tmp_path / "home" / "stores" / "one"
    assert stop_list(f"{name}#EN", store) == {"the", "a"}
    assert stop_list(f"{name}#E*", store) == {"the", "a", "el", "la"}
    assert stop_list(f"{package}/words-*.mjs#ES") == {"el", "la"}
    with pytest.raises(NotInstalledError, match=r"no node_modules/memory/.* beside the store"):
        stop_list(f"{name}#EN", away)


def test_stop_list_follows_a_changed_file(write, tmp_path: Path) -> None:
    import os

    file = write("words.txt", "the")
    assert stop_list(file) == {"the"}
    write("words.txt", "of")
    os.utime(file, ns=(1, 1))
    assert stop_list(file) == {"of"}


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
    known = Vocabulary(count_words(texts(language)))
    for row in rows(f"{language}/queries.jsonl"):
        assert correct(row["query"], known, [], TypoCorrection(enabled=True), language=language).corrections == ()


def test_english_word_lists_are_silent_in_another_language() -> None:
    assert detect("Und was war last week?", Detectors())
    assert detect("Und was war last week?", Detectors(), "german") == ()
    assert features("was is da", frozenset(), "german").stopword_ratio == 0


def test_the_sentence_for_the_reranker_is_chosen_by_the_stems_of_the_language() -> None:
    content = "Wir haben lange gewartet. Die Zertifikate laufen ab."
    assert term_overlap(content, "Zertifikats", 30, "german") == "Die Zertifikate laufen ab."


START = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: int) -> datetime:
    return START + timedelta(days=number)


def pairs(store: Store) -> list[tuple[str, str]]:
    return [(pair.typo, pair.correction) for pair in store.corrections.read() if not pair.refused]


def test_an_accepted_pair_is_kept_with_its_count_and_times(tmp_path):
    with Store.open(tmp_path) as store:
        assert store.corrections.learn([(" Pyhton ", "Python")], 10, day(1)) == [("pyhton", "python")]
        assert store.corrections.learn([("pyhton", "python"), ("srver", "server")], 10, day(3)) == [
            ("pyhton", "python"),
            ("srver", "server"),
        ]
    with Store.open(tmp_path) as store:
        assert store.corrections.read() == [
            LearnedPair("pyhton", "python", 2, day(1), day(3)),
            LearnedPair("srver", "server", 1, day(3), day(3)),
        ]


def test_the_pair_accepted_longest_ago_goes_first(store):
    for number, typo in enumerate(["aa", "bb", "cc"]):
        store.corrections.learn([(typo, "word")], 3, day(number))
    store.corrections.learn([("aa", "word")], 3, day(3))
    assert store.corrections.learn([("dd", "word")], 3, day(4)) == [("dd", "word")]
    assert pairs(store) == [("dd", "word"), ("aa", "word"), ("cc", "word")]


def test_a_typo_has_one_learned_correction_the_last(store):
    store.corrections.learn([("modle", "module")], 5, day(1))
    store.corrections.learn([("modle", "model")], 5, day(2))
    assert pairs(store) == [("modle", "model")]


@pytest.mark.parametrize("pair", [("same", "Same"), ("", "word"), ("word", " ")])
def test_what_corrects_nothing_is_not_learned(store, pair):
    assert store.corrections.learn([pair], 5) == []
    assert store.corrections.read() == []


def test_a_refused_pair_is_forgotten_and_not_learned_again(store):
    store.corrections.learn([("modle", "module")], 5, day(1))
    store.corrections.refuse("modle", "module", day(2))
    assert store.corrections.learn([("modle", "module"), ("modle", "model")], 5, day(3)) == [("modle", "model")]
    assert store.corrections.read() == [
        LearnedPair("modle", "model", 1, day(3), day(3)),
        LearnedPair("modle", "module", 1, day(1), day(2), refused=True),
    ]


def test_a_pair_can_be_refused_before_it_was_learned_and_takes_no_room(store):
    store.corrections.refuse("aa", "word")
    assert store.corrections.learn([("aa", "word"), ("bb", "word")], 1) == [("bb", "word")]
    assert len(store.corrections.read()) == 2


def test_one_pair_is_forgotten_and_may_be_learned_again(store):
    store.corrections.learn([("aa", "word"), ("bb", "word")], 5)
    assert store.corrections.forget("AA", "word")
    assert not store.corrections.forget("aa", "word")
    assert pairs(store) == [("bb", "word")]
    store.corrections.refuse("bb", "word")
    assert store.corrections.forget("bb", "word")
    assert store.corrections.learn([("bb", "word")], 5) == [("bb", "word")]


@pytest.fixture(scope="module")
def emptied(tmp_path_factory):
    """`emptied()`: one store for many examples, with every pair forgotten, since opening one takes longer than using it."""
    with Store.open(tmp_path_factory.mktemp("pairs")) as store:

        def empty() -> Store:
            for pair in store.corrections.read():
                assert store.corrections.forget(pair.typo, pair.correction)
            assert store.corrections.read() == []
            return store

        yield empty


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("wxyz"), st.integers(0, 4), st.integers(0, 5))),
    st.sets(st.tuples(st.sampled_from("abcd"), st.sampled_from("wxyz")), max_size=4),
)
def test_learned_pairs_never_exceed_their_limit(emptied, learning, refused):
    store = emptied()
    for typo, correction in refused:
        store.corrections.refuse(typo, correction)
    for typo, correction, most, when in learning:
        store.corrections.learn([(typo, correction)], most, day(when))
        kept = pairs(store)
        assert len(kept) <= most
        assert len({pair[0] for pair in kept}) == len(kept)
        assert not refused & set(kept)


def test_the_vocabulary_counts_the_memories_a_word_stands_in_as_it_is_written(store, rows):
    store.add(
        rows(
            [
                Memory("a", "Deploying the deploy; deploy getUserById v2", title="Größe"),
                Memory("b", "DEPLOY src/main.py well-known"),
                Memory("c", "gone gone"),
            ]
        )
    )
    store.memories.delete("c")
    words = store.indexes.vocabulary()
    assert dict(words) == {"größe": 1, "deploying": 1, "the": 1, "deploy": 2, "getuserbyid": 1}
    assert words.get("gone") is None and "gone" not in words
    assert sorted(words.of_length(5, 6)) == ["deploy", "größe"]
    assert words.of_length(20, 10**9) == []


def test_words_of_what_changed_since_the_index_are_read_and_no_others(store, rows, embedder, monkeypatch):
    store.add(rows([Memory("a", "one two"), Memory("b", "two three"), Memory("c", "four")]))
    store.indexes.refresh(embedder)
    store.memories.delete("c")
    store.add(rows([Memory("a", "one five"), Memory("d", "three")]))
    monkeypatch.setattr(f"{vocabulary.__name__}.live_ids", lambda *_: pytest.fail("all memories are read"))
    assert dict(store.indexes.vocabulary()) == {"one": 1, "two": 1, "three": 2, "five": 1}
