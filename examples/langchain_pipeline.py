"""LangChain: BM25 and a vector store in an EnsembleRetriever, compressed by a CrossEncoderReranker.

python -m examples.langchain_pipeline trace.jsonl
"""

from __future__ import annotations

from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever
from langchain_classic.retrievers.document_compressors import CrossEncoderReranker
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore

from cems_trace.langchain import traced
from examples.sample import Bm25, embed, memories, relevance, run

DOCUMENTS = {key: Document(id=key, page_content=text) for key, text in memories().items()}


class MiniLM(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return embed(texts)

    def embed_query(self, text: str) -> list[float]:
        return embed([text])[0]


class CrossEncoder(BaseCrossEncoder):
    def score(self, text_pairs: list[tuple[str, str]]) -> list[float]:
        return relevance(text_pairs[0][0], [text for _, text in text_pairs]) if text_pairs else []


class Bm25Retriever(BaseRetriever):
    index: Bm25
    rows: int = 20

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [DOCUMENTS[key] for key, _ in self.index.search(query, self.rows)]


store = InMemoryVectorStore(MiniLM())
store.add_documents(list(DOCUMENTS.values()))
lists = [Bm25Retriever(index=Bm25(memories())), store.as_retriever(search_kwargs={"k": 20})]
ensemble = EnsembleRetriever(retrievers=lists, weights=[0.5, 0.5])
compressor = CrossEncoderReranker(model=CrossEncoder(), top_n=5)
retriever = traced(ContextualCompressionRetriever(base_retriever=ensemble, base_compressor=compressor))

if __name__ == "__main__":
    run(retriever.invoke)
