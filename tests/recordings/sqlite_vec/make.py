"""Writes tables of vec0 with sqlite-vec itself, and its answers: `python make.py vec0.db answers.json`.

Made with sqlite-vec 0.1.9, apsw 3.54.1.0 and numpy 2.

The file is kept compressed (gzip -9n vec0.db).
"""

import json
import os
import sys

import apsw
import numpy as np
import sqlite_vec

path, out = sys.argv[1:3]
for e in ("", "-wal", "-shm"):
    if os.path.exists(path + e):
        os.remove(path + e)
c = apsw.Connection(path)
c.enable_load_extension(True)
c.load_extension(sqlite_vec.loadable_path())
rng = np.random.default_rng(1)
N = 40
V = rng.standard_normal((N, 8)).astype("<f4")
V[7] = V[3]
V[11] = 0
c.execute("create table notes(id integer primary key, body text, user_id text)")
c.execute("create virtual table vec_l2 using vec0(embedding float[8], chunk_size=8)")
c.execute("create virtual table vec_cosine using vec0(embedding float[8] distance_metric=cosine, chunk_size=8)")
c.execute("create virtual table vec_l1 using vec0(embedding float[8] distance_metric=L1, chunk_size=8)")
c.execute("create virtual table vec_int8 using vec0(embedding int8[8] distance_metric=cosine, chunk_size=8)")
c.execute("create virtual table vec_bit using vec0(embedding bit[16], chunk_size=8)")
c.execute(
    "create virtual table vec_keyed using vec0(id text primary key, embedding float[8] distance_metric=cosine, user_id text partition key, "
    "n integer, genre text, pinned boolean, "
    " weight float, +contents text, chunk_size=8)"
)
for i, v in enumerate(V):
    r = i * 3 + 5
    c.execute("insert into notes values(?,?,?)", (r, f"note {i}", "ann" if i % 3 else "bob"))
    b = v.tobytes()
    for t in ("vec_l2", "vec_cosine", "vec_l1"):
        c.execute(f"insert into {t}(rowid, embedding) values(?,?)", (r, b))
    c.execute(
        "insert into vec_int8(rowid, embedding) values(?,vec_int8(?))",
        (r, (v * 40).clip(-127, 127).astype("i1").tobytes()),
    )
    c.execute(
        "insert into vec_bit(rowid, embedding) values(?,vec_bit(?))",
        (r, np.packbits(np.concatenate([v > 0, v > 0.5]), bitorder="little").tobytes()),
    )
    c.execute(
        "insert into vec_keyed(id,embedding,user_id,n,genre,pinned,weight,contents) values(?,?,?,?,?,?,?,?)",
        (
            f"k{i}",
            b,
            "ann" if i % 3 else "bob",
            i * 10**9,
            ("short", "a genre of more than twelve bytes")[i % 2],
            bool(i % 2),
            i / 2,
            f"content {i}",
        ),
    )
# rows that went, and places that were given again
for i in (2, 9, 10, 33):
    for t in ("vec_l2", "vec_cosine", "vec_l1", "vec_int8", "vec_bit"):
        c.execute(f"delete from {t} where rowid=?", (i * 3 + 5,))
    c.execute("delete from vec_keyed where id=?", (f"k{i}",))
    c.execute("delete from notes where id=?", (i * 3 + 5,))
for t in ("vec_l2", "vec_cosine", "vec_l1"):
    c.execute(f"insert into {t}(rowid, embedding) values(?,?)", (1000, V[2].tobytes()))
c.execute("insert into notes values(1000,'note again','ann')")
c.execute("update vec_l2 set embedding=? where rowid=?", ((V[5] + 1).tobytes(), 5 * 3 + 5))
Q = rng.standard_normal((5, 8)).astype("<f4")
Q[4] = V[3]
ans = {"sqlite_vec": c.execute("select vec_version()").fetchall()[0][0], "queries": Q.tolist(), "hits": {}, "rows": {}}
for t, k in (("vec_l2", "rowid"), ("vec_cosine", "rowid"), ("vec_int8", "rowid"), ("vec_keyed", "id")):
    ans["hits"][t] = []
    for q in Q:
        p = q.tobytes() if t != "vec_int8" else (q * 40).clip(-127, 127).astype("i1").tobytes()
        f = "?" if t != "vec_int8" else "vec_int8(?)"
        ans["hits"][t].append(
            [[x, d] for x, d in c.execute(f"select {k}, distance from {t} where embedding match {f} and k=10", (p,))]
        )
ans["hits"]["vec_keyed bob"] = [
    [
        [x, d]
        for x, d in c.execute(
            "select id, distance from vec_keyed where embedding match ? and k=10 and user_id='bob'", (q.tobytes(),)
        )
    ]
    for q in Q
]
ans["rows"] = [
    list(r) for r in c.execute("select id,user_id,n,genre,pinned,weight,contents from vec_keyed order by id")
]
ans["vectors"] = {
    t: {str(k): np.frombuffer(e, "<f4").tolist() for k, e in c.execute(f"select {k},embedding from {t}")}
    for t, k in (("vec_l2", "rowid"), ("vec_keyed", "id"))
}
c.close()
with open(out, "w") as file:
    json.dump(ans, file)
print(
    os.path.getsize(path),
    os.path.getsize(out),
    ans["hits"]["vec_l2"][4][:3],
    ans["hits"]["vec_cosine"][4],
    [len(h) for h in ans["hits"]["vec_cosine"]],
)
