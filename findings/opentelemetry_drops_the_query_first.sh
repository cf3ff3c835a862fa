#!/usr/bin/env bash
# OpenTelemetry's SDK keeps the last 128 attributes of a span: OpenInference's span of a retriever that returns 70 documents loses its query
# and the documents that were ranked first.
#
# The instrumentor writes the query, then the documents by rank, each in two attributes. The SDK drops the oldest. What is left looks
# like a search that returned 63 documents, best first; only the log of the SDK and a count beside the attributes say otherwise.
# OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT raises the limit.
#
# Seen in opentelemetry-sdk 1.45.2, openinference-instrumentation-langchain 0.1.80, langchain-core 1.8.3:
#   20 documents: dropped 0, query kept, documents 0 to 19
#   70 documents: dropped 17, query lost, documents 7 to 69
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check opentelemetry-sdk==1.45.2 \
  openinference-instrumentation-langchain==0.1.80 langchain-core==1.8.3
"$folder/venv/bin/python" - 2>/dev/null <<'PY'
import sys

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
LangChainInstrumentor().instrument(tracer_provider=provider)


class Retriever(BaseRetriever):
    count: int

    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(page_content=f"text {n}", metadata={"rank": n}) for n in range(self.count)]


seen = []
for count in (20, 70):
    Retriever(count=count).invoke("where are the keys")
    span = kept.get_finished_spans()[-1]
    places = sorted({int(name.split(".")[2]) for name in span.attributes if name.startswith("retrieval.documents.")})
    query = "kept" if "input.value" in span.attributes else "lost"
    seen.append((span.dropped_attributes, query, places[0], places[-1]))
    print(f"{count} documents: dropped {span.dropped_attributes}, query {query}, documents {places[0]} to {places[-1]}")
sys.exit(0 if seen == [(0, "kept", 0, 19), (17, "lost", 7, 69)] else 1)
PY
