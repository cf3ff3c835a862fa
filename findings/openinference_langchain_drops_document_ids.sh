#!/usr/bin/env bash
# OpenInference's instrumentor of LangChain: retriever spans hold content and metadata of each document, not its id.
#
# The semantic conventions have retrieval.documents.N.document.id, and LangChain's Document has an id since langchain-core 0.3. Whoever
# joins spans with judgments by memory id finds none, and two memories of equal text cannot be told apart; an id repeated in the metadata
# is kept.
#
# Seen in openinference-instrumentation-langchain 0.1.80 with langchain-core 1.8.3:
#   returned: m1, m2
#   attributes of the span: document.content, document.metadata
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openinference-instrumentation-langchain==0.1.80 \
  langchain-core==1.8.3 langchain-classic==1.0.8 opentelemetry-sdk
LANGSMITH_TRACING=false "$folder/venv/bin/python" - <<'PY'
import sys

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Memories(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [
            Document(id="m1", page_content="the test port is 5433", metadata={"user": "ana"}),
            Document(id="m2", page_content="the production port is 5432"),
        ]


exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
LangChainInstrumentor().instrument(tracer_provider=provider)
returned = [document.id for document in Memories().invoke("which port")]
(span,) = exporter.get_finished_spans()
parts = [name.split(".") for name in span.attributes if name.startswith("retrieval.documents.")]
names = sorted({".".join(part[3:]) for part in parts})
print(f"returned: {', '.join(returned)}")
print(f"attributes of the span: {', '.join(names)}")
sys.exit(0 if returned == ["m1", "m2"] and names == ["document.content", "document.metadata"] else 1)
PY
