"""What text becomes when it is searched."""

from __future__ import annotations

import threading
import time

import pytest

from cems_workbench.store.search.lexical import tokenizer
from cems_workbench.store.search.lexical.tokenizer import tokenize


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


def test_a_full_cache_starts_over_and_changes_no_term(monkeypatch):
    monkeypatch.setattr(tokenizer, "MAX_CACHED_CHUNKS", 3)
    text = "alpha beta gamma delta getUserById alpha"
    assert tokenize(text) == tokenize(text)


def test_threads_may_tokenize_at_once():
    texts = [f"words{i} runningTests{i} stemming{i}" for i in range(300)]
    found: list[list[list[str]]] = []
    threads = [threading.Thread(target=lambda: found.append([tokenize(text) for text in texts])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(terms == found[0] for terms in found)


def test_five_megabytes_a_second_within_reason():
    text = " ".join(f"word{i % 5_000} plain sentence about retrieval and memories" for i in range(20_000))
    started = time.perf_counter()
    tokenize(text)
    # A tenth of what it does alone on this machine (about 10 MB/s), so that a busy one passes.
    assert len(text) / (time.perf_counter() - started) > 1e6
