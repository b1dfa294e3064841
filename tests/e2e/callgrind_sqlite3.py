#!/usr/bin/env python3
"""sqlite3 and libsqlite3 in memory: every instruction as often as callgrind says."""
import os

import against_callgrind as against

statements = os.path.join(os.environ["WORK"], "statements.sql")
with open(statements, "w", encoding="ascii") as f:
    f.write("create table t(a integer primary key, b text, c real);\nbegin;\n")
    for i in range(200):
        f.write(f"insert into t values({i}, 'row {i * 7919 % 1009}', {i / 3:.4f});\n")
    f.write("commit;\ncreate index i on t(b);\n")
    f.write("select count(*), sum(c), max(b) from t where b like 'row 1%';\n")
    f.write("select x.a, y.a from t x join t y on x.b = y.b and x.a < y.a limit 5;\n")
library = "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0"
against.check([against.need("sqlite3"), ":memory:"], [library], stdin=statements)
