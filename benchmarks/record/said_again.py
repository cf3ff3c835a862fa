"""Record what a small language model makes of the sample's judged memories when it says each again, sentence by sentence.

    python -m benchmarks.record.language_model --port 8767 &
    python -m benchmarks.record.said_again --url http://127.0.0.1:8767/v1 --out said.jsonl     # goes on where it was stopped

Greedy, seed 0. Rows of tables and lines with fewer than three words stay, as there is nothing to say in other words. A line of the file is
a memory: id, text.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
import urllib.request
from pathlib import Path

from benchmarks.bench_rebase import sample

ASKED = "Say the sentence again in other words. Keep every name, number and fact."
SHOWN = (
    (
        "Jonas wants the weekly report on Friday before 14:00.",
        "The weekly report for Jonas is due on Friday before 14:00.",
    ),
    (
        "Don't use `git push --force` on main: it deleted two commits on 3 May.",
        "Never run `git push --force` on main, since it deleted two commits on 3 May.",
    ),
    (
        "Disk usage of db-2 went from 61 % to 84 % in a week.",
        "In a week the disk usage of db-2 rose from 61 % to 84 %.",
    ),
    ("Retries are capped at 5, with `backoff=2s`.", "There are at most 5 retries, with `backoff=2s`."),
    ("Priya likes tables more than charts.", "Priya prefers tables to charts."),
)


def sentences(text: str) -> list[str]:
    return [piece for piece in re.split(r"(?<=[.!?;])\s+|\n+", text) if piece.strip()]


def stays(piece: str) -> bool:
    """Whether a piece has nothing to say in other words."""
    return piece.lstrip().startswith(("|", "```")) or len(re.findall(r"[A-Za-z]{2,}", piece)) < 3


def said(url: str, piece: str) -> str:
    """A sentence as the model says it."""
    messages = [{"role": "system", "content": ASKED}]
    for given, answer in SHOWN:
        messages += [{"role": "user", "content": given}, {"role": "assistant", "content": answer}]
    asked = {"messages": [*messages, {"role": "user", "content": piece}], "temperature": 0, "top_k": 1, "seed": 0}
    asked |= {"max_tokens": len(piece) // 2 + 16, "repeat_penalty": 1.0}
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as reply:
        return str(json.load(reply)["choices"][0]["message"]["content"]).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=7)
    asked = parser.parse_args()
    memories, judgments = sample()
    judged = {one.memory_id for one in judgments}
    done = (
        {json.loads(line)["id"] for line in asked.out.read_text("utf-8").splitlines()} if asked.out.exists() else set()
    )
    left = [one for one in memories if one.id in judged - done]
    random.Random(7).shuffle(left)  # where it stops early, the memories are a sample
    ends = time.monotonic() + 60 * asked.minutes
    with asked.out.open("a", encoding="utf-8") as out:
        for one in left:
            if time.monotonic() < ends:
                text = " ".join(piece if stays(piece) else said(asked.url, piece) for piece in sentences(one.content))
                out.write(json.dumps({"id": one.id, "text": text}, ensure_ascii=False) + "\n")
                out.flush()


if __name__ == "__main__":
    main()
