"""The embedder on an OpenAI-compatible server, against one that answers as such servers do, and in every wrong way."""

from __future__ import annotations

import base64
import logging
import math
import traceback
from typing import Any

import numpy as np
import pytest
from model_server import HTML, Reply, no_sleep, nobody, sent, serving

from cems_workbench.errors import ModelError
from cems_workbench.models.http import CallError
from cems_workbench.models.server_embedder import BATCH_SIZE, LLAMA_CPP_BATCH, OpenAiEmbedder, Wording
from cems_workbench.settings import Settings

KEY = "sk-very-secret-5678"


def vector(text: str) -> list[float]:
    return [float(len(text)), 1.0, 2.0]


def as_base64(row: list[float]) -> str:
    return base64.b64encode(np.asarray(row, "<f4").tobytes()).decode()


def embedding(path: str, body: dict[str, Any], earlier: int) -> Reply:
    """As OpenAI answers, with the vectors in another order than asked for."""
    rows = [{"object": "embedding", "index": i, "embedding": vector(text)} for i, text in enumerate(body["input"])]
    return sent({"object": "list", "data": rows[::-1], "model": body["model"]})


def replying(*vectors: Any, **more: Any) -> Reply:
    return sent({"data": [{"index": i, "embedding": one} for i, one in enumerate(vectors)], **more})


def embedder(url: str, *, dimension: int | None = 3, key: str | None = None, **more: Any) -> OpenAiEmbedder:
    return OpenAiEmbedder(url, "mini", key, dimension, sleep=no_sleep, **more)


class TestVectors:
    """What is asked, and what comes of it."""

    def test_they_have_length_one_and_stand_in_the_order_of_the_texts(self) -> None:
        with serving(embedding) as server:
            found = embedder(server.url).encode(["abc", "a", "abc"])
        assert found.shape == (3, 3) and found.dtype == np.float32
        assert np.allclose(found[0], np.array([3, 1, 2]) / math.sqrt(14))
        assert np.allclose(found[1], np.array([1, 1, 2]) / math.sqrt(6))
        assert np.array_equal(found[0], found[2])

    def test_base64_is_read_as_little_endian_float32(self) -> None:
        def answer(path: str, body: dict[str, Any], earlier: int) -> Reply:
            return replying(*(as_base64(vector(text)) for text in body["input"]))

        with serving(answer) as server, serving(embedding) as plain:
            assert np.array_equal(embedder(server.url).encode(["ab", "c"]), embedder(plain.url).encode(["ab", "c"]))

    def test_queries_and_texts_are_worded_as_the_model_was_trained(self) -> None:
        wording = Wording("passage: ", "query: ", "mini-query")
        with serving(embedding) as server:
            worded = embedder(server.url, wording=wording)
            worded.encode(["a text"])
            worded.encode_query("a query")
            worded.remember(["b", "c"])
            asked = server.bodies("/v1/embeddings")
        assert [(body["model"], body["input"]) for body in asked] == [
            ("mini", ["passage: a text"]),
            ("mini-query", ["query: a query"]),
            ("mini-query", ["query: b", "query: c"]),
        ]
        assert (
            worded.model_id == "openai:mini@3 (texts after 'passage: ', queries after 'query: ', queries by mini-query)"
        )
        assert embedder(server.url).model_id == "openai:mini@3"

    def test_a_batch_is_bounded_and_each_text_is_asked_once(self) -> None:
        seen: list[tuple[str, int, int]] = []
        texts = [f"text {i}" for i in range(BATCH_SIZE + 8)]
        with serving(embedding) as server:
            embedder(server.url).encode([*texts, *texts], lambda *step: seen.append(step))
            asked = server.bodies("/v1/embeddings")
        assert [len(body["input"]) for body in asked] == [BATCH_SIZE, 8]
        assert seen == [("embedding", BATCH_SIZE, BATCH_SIZE + 8), ("embedding", BATCH_SIZE + 8, BATCH_SIZE + 8)]

    def test_a_dimension_is_sent_only_where_one_is_configured_and_is_part_of_the_id(self) -> None:
        with serving(embedding) as server:
            free, fixed = embedder(server.url, dimension=None), embedder(server.url)
            assert free.dimension == 3
            free.encode(["a"])
            fixed.encode(["a"])
            assert ["dimensions" in body for body in server.bodies("/v1/embeddings")] == [False, False, True]
        assert (free.model_id, fixed.model_id) == ("openai:mini", "openai:mini@3")

    def test_an_empty_text_which_servers_refuse_is_sent_as_a_space(self) -> None:
        with serving(embedding) as server:
            embedder(server.url).encode([""])
            assert server.bodies("/v1/embeddings")[0]["input"] == [" "]

    def test_queries_are_remembered_and_can_be_embedded_ahead(self) -> None:
        with serving(embedding) as server:
            made = embedder(server.url)
            made.remember(["one", "two two"])
            made.encode_query("one")
            made.encode_query("two two")
            assert [body["input"] for body in server.bodies("/v1/embeddings")] == [["one", "two two"]]

    @pytest.mark.parametrize(
        ("suffix", "path"),
        [
            ("", "/v1/embeddings"),
            ("/", "/v1/embeddings"),
            ("/v1", "/v1/embeddings"),
            ("/api/v1/", "/api/v1/embeddings"),
        ],
    )
    def test_a_url_without_a_path_gets_v1(self, suffix: str, path: str) -> None:
        with serving(embedding) as server:
            embedder(server.url + suffix).encode(["a"])
            assert server.asked[0][0] == path

    def test_the_query_of_a_url_goes_with_every_request(self) -> None:
        with serving(embedding) as server:
            embedder(f"{server.url}/v1?key={KEY}").encode(["a"])
            assert server.asked[0][0] == f"/v1/embeddings?key={KEY}"


class TestFailures:
    """One line each, and none is taken for a vector."""

    @pytest.mark.parametrize(
        ("reply", "told"),
        [
            (replying([1.0, 2.0]), "length 2; 3 was expected"),
            (replying([1.0, float("nan"), 3.0]), "not finite"),
            (replying([0.0, 0.0, 0.0]), "zeros"),
            (replying([1.0, 0.0, 0.0], [1.0, 0.0, 0.0]), "2 vectors for 1 texts"),
            (replying(), "0 vectors for 1 texts"),
            (replying([1.0, "x", 3.0]), "bad reply"),
            (replying([[1.0, 0.0, 0.0]]), "does not pool"),
            (replying("not base64!"), "bad reply"),
            (replying(base64.b64encode(b"12345").decode()), "bad reply"),
            (replying(7), "bad reply"),
            (sent({"data": [{"index": 1, "embedding": [1, 0, 0]}]}), "indexes of 1 vectors are not 0 to 0"),
            (sent({"data": [[1, 0, 0]]}), "bad reply"),
            (sent({"embeddings": [[1, 0, 0]]}), "bad reply"),
            (sent({"error": {"message": "no such model", "code": 404}}), "refused: 127.0.0.1"),
            (sent({"error": "out of credits"}), "HTTP 200 with an error: out of credits"),
            (sent({"error": {"message": "slow down"}}, 429, Retry_After="3600"), "asks to wait 3600 s"),
        ],
    )
    def test_what_cannot_be_used_is_one_line(self, reply: Reply, told: str) -> None:
        with serving(lambda *_: reply) as server, pytest.raises(ModelError) as caught:
            embedder(server.url).encode(["text"])
        assert told in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1

    @pytest.mark.parametrize(
        ("status", "said"),
        [
            (
                500,
                "input (601 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
            ),
            (400, "This model's maximum context length is 8192 tokens, however you requested 9000 tokens"),
            (400, "the request exceeds the available context size"),
            (413, "Input is too long for this model"),
        ],
    )
    def test_a_text_that_is_too_long_says_what_to_do_and_is_not_sent_again(self, status: int, said: str) -> None:
        with serving(lambda *_: sent({"error": {"message": said}}, status)) as server:
            with pytest.raises(
                CallError, match="longer than the server reads; import with --chunks embedder"
            ) as caught:
                embedder(server.url).encode(["text"])
            assert len(server.asked) == 1
        assert said[:40] in str(caught.value)

    @pytest.mark.parametrize(
        ("url", "model", "told"),
        [
            ("", "mini", "CEMS_WORKBENCH_EMBEDDING_URL is not set"),
            ("http://localhost", "", "names no model"),
            ("ftp://host", "mini", "not the URL of a server"),
        ],
    )
    def test_what_is_missing_is_said_when_it_is_used(self, url: str, model: str, told: str) -> None:
        made = OpenAiEmbedder(url, model)
        assert made.line and made.model_id
        for ask in (lambda: made.encode(["text"]), lambda: made.dimension, made.token_limit):
            with pytest.raises(ModelError, match=told):
                ask()


class TestTheLimit:
    """How much of a text the server reads."""

    @staticmethod
    def limit(props: Reply, models: Reply, path: str = "", **more: Any) -> int | None:
        def answer(asked: str, body: dict[str, Any], earlier: int) -> Reply:
            replies = {f"{path}/props": props, f"{path}/v1/models": models}
            return replies.get(asked, Reply(status=404))

        with serving(answer) as server:
            return embedder(f"{server.url}{path}{'/v1' if path else ''}", **more).token_limit()

    @pytest.mark.parametrize(
        ("props", "models", "limit"),
        [
            (sent({"default_generation_settings": {"n_ctx": 256}}), Reply(status=404), 256),
            (sent({"default_generation_settings": {"n_ctx": 8192}}), Reply(status=404), LLAMA_CPP_BATCH),
            (Reply(status=404), sent({"data": [{"id": "other"}, {"id": "mini", "max_model_len": 8192}]}), 8192),
            (Reply(status=403), sent({"data": [{"id": "a/mini", "context_length": 512}]}), 512),
            (HTML, sent({"data": [{"id": "mini"}]}), None),
            (sent({"n_ctx": 9}), sent({"object": "list"}), None),
            (sent({"default_generation_settings": {"n_ctx": "many"}}), sent({"data": []}), None),
            (sent([]), sent({"data": ["mini"]}), None),
            (Reply(status=401), Reply(status=401), None),
        ],
    )
    def test_is_what_llama_cpp_or_vllm_say(self, props: Reply, models: Reply, limit: int | None) -> None:
        assert self.limit(props, models) == limit

    def test_below_a_path_too(self) -> None:
        assert self.limit(sent({"default_generation_settings": {"n_ctx": 128}}), Reply(status=404), "/llama") == 128

    def test_what_is_configured_goes_before(self) -> None:
        assert self.limit(Reply(status=404), Reply(status=404), limit=2048) == 2048

    def test_a_server_that_is_away_is_an_error_and_not_a_server_without_a_limit(self) -> None:
        with pytest.raises(ModelError, match="refused"):
            embedder(nobody()).token_limit()
        with serving(lambda *_: Reply(status=503)) as server, pytest.raises(ModelError, match="503"):
            embedder(server.url).token_limit()


class TestSecrets:
    """The key, and what a URL carries, stand nowhere."""

    @pytest.mark.parametrize(
        "reply",
        [
            sent(
                {"error": {"message": f"wrong key {KEY}, sent by bob with pa55word%21 (pa55word!), x{'y' * 150}{KEY}"}},
                401,
            ),
            Reply(f"{KEY} pa55word!".encode(), 500),
            sent({"error": {"code": 429, "message": f"{KEY} pa55word!"}}),
        ],
    )
    @pytest.mark.parametrize("with_key", [True, False])
    @pytest.mark.parametrize("place", ["bob-token:pa55word%21@{host}", "{host}/v1?key=" + KEY])
    def test_in_no_error_traceback_log_or_repr(self, reply, place, with_key, caplog):
        caplog.set_level(logging.DEBUG)
        with serving(lambda *_: reply) as server:
            url = "http://" + place.format(host=server.url.removeprefix("http://"))
            made = embedder(url, key=KEY if with_key else None)
            with pytest.raises(ModelError) as caught:
                made.encode(["text"])
            basic = "Basic " + base64.b64encode(b"bob-token:pa55word!").decode() if "@" in place else None
            assert server.asked[0][2].get("authorization") == (f"Bearer {KEY}" if with_key else basic)
        told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
        for said in (told, caplog.text, repr(made), repr(vars(made)["_server"]), made.line, made.model_id):
            assert KEY not in said or not (with_key or KEY in place)
            assert "pa55word" not in said or "pa55word" not in place

    def test_a_key_that_no_header_carries_is_one_line_without_it(self) -> None:
        with serving(embedding) as server, pytest.raises(ModelError, match="characters that no key has") as caught:
            embedder(server.url, key=f"{KEY}é").encode(["text"])
        assert KEY not in str(caught.value) and KEY not in repr(Settings(embedding_key=KEY, llm_key=KEY))


def test_what_it_is_stated_to_be_is_its_id_and_stands_in_its_line() -> None:
    made = embedder("http://localhost:8080", same_as="sentence-transformers/all-MiniLM-L6-v2")
    assert made.model_id == "sentence-transformers/all-MiniLM-L6-v2"
    assert made.line == "mini at localhost:8080, stated to be sentence-transformers/all-MiniLM-L6-v2"
