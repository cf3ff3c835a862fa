"""LlamaIndex: BM25 and a vector index in a QueryFusionRetriever, a similarity cutoff and a cross-encoder after it.

python -m examples.llama_index_pipeline trace.jsonl
"""

from __future__ import annotations

from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from cems_trace.llama_index import instrument
from examples.sample import Bm25, embed, memories, relevance, run

NODES = {key: TextNode(id_=key, text=text) for key, text in memories().items()}
Settings.llm = MockLLM()  # nothing is generated: the response synthesizer returns no text


class MiniLM(BaseEmbedding):
    def _get_text_embedding(self, text: str) -> list[float]:
        return embed([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return embed([query])[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return embed([query])[0]


class Bm25Retriever(BaseRetriever):
    def __init__(self, index: Bm25) -> None:
        super().__init__()
        self._index = index

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [
            NodeWithScore(node=NODES[key], score=score) for key, score in self._index.search(query_bundle.query_str, 20)
        ]


class CrossEncoderRerank(BaseNodePostprocessor):
    rows: int = 5

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        scores = (
            relevance(query_bundle.query_str, [found.node.get_content() for found in nodes]) if query_bundle else []
        )
        rescored = [NodeWithScore(node=found.node, score=score) for found, score in zip(nodes, scores, strict=True)]
        return sorted(rescored, key=lambda found: -(found.score or 0))[: self.rows]


vectors = VectorStoreIndex(list(NODES.values()), embed_model=MiniLM()).as_retriever(similarity_top_k=20)
lists = [Bm25Retriever(Bm25(memories())), vectors]
fusion = QueryFusionRetriever(lists, num_queries=1, mode="reciprocal_rerank", similarity_top_k=20, use_async=False)
engine = RetrieverQueryEngine(
    fusion,
    response_synthesizer=get_response_synthesizer(response_mode=ResponseMode.NO_TEXT),
    node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.016), CrossEncoderRerank()],
)

if __name__ == "__main__":
    instrument()
    run(engine.query)
