"""Write the spans of an OpenTelemetry tracer, such as those of OpenInference's instrumentors, into the same kind of file.

    from cems_trace.opentelemetry import JsonLinesExporter

    provider.add_span_processor(BatchSpanProcessor(JsonLinesExporter("trace.jsonl")))

Every span is written, so that none misses its parent, and of its attributes those about retrieval.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from cems_trace.sink import Sink, warn_once
from cems_trace.spans import TEXT_LIMIT, iso, json_line

KEPT = (
    "openinference.", "input.value", "retrieval.", "reranker.", "document.", "workbench.", "gen_ai.operation.", "gen_ai.retrieval.",
    "gen_ai.memory.", "exception.", "error.type", "logfire.scrubbed",
)  # fmt: skip
"""How the attributes begin that are written. Prompts, answers, addresses and headers are not."""
CONTENTS = ("document.content", "document.metadata")


class JsonLinesExporter(SpanExporter):
    """Appends spans to a file of JSON lines, each batch with one write."""

    def __init__(self, path: str | os.PathLike[str], *, texts: bool = True) -> None:
        """`texts` says whether contents and metadata of documents are written."""
        self._sink = Sink(path, texts=texts)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write a batch. A failure is one warning."""
        try:
            self._sink.write(b"".join(json_line(self._fields(span)) for span in spans))
        except Exception as error:
            warn_once(f"trace: a batch of spans was lost: {error!r}")
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def _fields(self, span: ReadableSpan) -> dict[str, Any]:
        context = span.get_span_context()
        fields: dict[str, Any] = {
            "trace_id": f"{context.trace_id:032x}" if context else None,
            "span_id": f"{context.span_id:016x}" if context else None,
            "parent_id": f"{span.parent.span_id:016x}" if span.parent else None,
            "name": span.name,
            "start_time": iso(span.start_time or 0),
            "end_time": iso(span.end_time or span.start_time or 0),
            "status_code": span.status.status_code.name,
        }
        if span.status.description:
            fields["status_message"] = span.status.description[:TEXT_LIMIT]
        attributes = dict(span.attributes or {})
        # Of a span that was cut, the output may have the documents whose attributes are gone.
        whole = span.dropped_attributes and attributes.get("openinference.span.kind") in ("RETRIEVER", "RERANKER")
        if span.dropped_attributes:
            fields["dropped_attributes_count"] = span.dropped_attributes
        for event in span.events:
            if event.name == "exception":
                attributes |= {name: str(value)[:TEXT_LIMIT] for name, value in (event.attributes or {}).items()}
                attributes.pop("exception.stacktrace", None)
        if not self._sink.texts and attributes.get("input.mime_type") == "application/json":
            attributes.pop("input.value", None)  # the arguments of a call, which may be documents
        output = self._sink.texts and whole and "output.value"
        kept = {name: value for name, value in attributes.items() if self._kept(name) or name == output}
        return fields | {"attributes": kept}

    def _kept(self, name: str) -> bool:
        return name.startswith(KEPT) and (self._sink.texts or not name.endswith(CONTENTS))
