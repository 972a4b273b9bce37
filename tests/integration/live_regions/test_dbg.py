from tests.integration.live_regions.test_live_windows import *
from tests.integration.conftest import *
from tests.conftest import *
import time
def test_dbg(wire, home):
    kind="sliding"
    records = drawn(11, RECORDS, ids=6)
    clicks=wire.topic("clicks"); wire.topic("micro_final-out"); wire.topic("micro_update-out")
    for partition, sent in records.items():
        wire.send(clicks, sent[:len(sent)//2], partition=partition)
    due = windows.expected({p: s[: len(s) // 2] for p, s in records.items()}, kind)
    app = application(wire, home, {"micro_final": body_of(kind,"append")})
    query = run_here(app, Connection.of(wire.bootstrap), create_topics=True)
    await_one(query, lambda: wire.count("micro_final-out-"+wire.tag) > 5, "x")
    wire.await_count(dead(wire,"micro_final"), len(due.letters), query)
    time.sleep(3)
    query.stop()
    got, want = Counter(results(wire,"micro_final")), Counter(due.final)
    print(len(due.final), sum(got.values()))
    print("missing", sorted((want-got).elements())[:20]); print("extra", sorted((got-want).elements())[:20])
