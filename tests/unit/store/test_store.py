"""Store of decisions, on both databases: a read returns the written values, with any other writers."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from falkirk.errors import InternalError, StoreError
from falkirk.recovery.decision_store import Store
from falkirk.recovery.decision_store.values import CountedLetters, DamagedValue, load_counted_letters, load_measurements
from falkirk.theory.ids import Offset
from falkirk.theory.objective import Measurements
from tests.postgres import Postgres
from tests.stores import RECORD, Place, tail, void_range


def test_a_region_is_found_again_by_another_process(store: Store, place: Place) -> None:
    assert store.region("counts") is None
    assert store.region_names() == ()
    store.create_region("counts", RECORD, {"counts": {0: 3}})
    store.create_region("a", RECORD, {})
    store.close()
    again = place.open(must_exist=True)
    assert again.region("counts") == RECORD
    assert again.region_names() == ("a", "counts")
    assert [(t.valid_from_commit, t.positions) for t in again.tails("counts")] == [(-1, {"counts": {0: 3}})]
    again.close()


def test_a_region_is_made_once_and_whole(store: Store) -> None:
    store.create_region("counts", RECORD, {"counts": {0: 3}})
    with pytest.raises(StoreError) as caught:
        store.create_region("counts", RECORD, {"counts": {0: 9}})
    assert (caught.value.condition, caught.value.certainty) == ("DECISION_CONTRADICTED", "definitely")
    assert [t.positions for t in store.tails("counts")] == [{"counts": {0: 3}}]


def test_nothing_is_kept_of_a_region_whose_second_statement_fails(store: Store) -> None:
    store.observe_tail("counts", tail(-1, 5))
    with pytest.raises(StoreError):
        store.create_region("counts", RECORD, {"counts": {0: 3}})
    assert store.region("counts") is None
    assert store.region_names() == ()


def test_incarnations_count_from_one_for_each_region(store: Store) -> None:
    assert store.open_incarnation("a", -1) == 1
    assert store.open_incarnation("a", 4) == 2
    assert store.open_incarnation("b", -1) == 1
    store.record_fence("a", 2, fence={"t": {0: 9}})
    store.end_incarnation("a", 2, ended="stopped", unsafe=False)
    first, second = store.incarnations("a")
    assert (first.incarnation, first.restored_batch) == (1, -1)
    assert (first.fence, first.ended, first.unsafe) == (None, None, False)
    assert (second.restored_batch, second.ended) == (4, "stopped")
    assert second.fence == '{"t": {"0": 9}}'
    assert len(store.incarnations("b")) == 1
    assert store.incarnations("c") == ()


def test_a_producer_error_is_remembered_from_its_incarnation_on(store: Store) -> None:
    for number in range(1, 5):
        assert store.open_incarnation("a", number) == number
        store.end_incarnation("a", number, ended="x", unsafe=number == 2)
    assert [store.is_unsafe_since("a", n) for n in (1, 2, 3, 4, 5)] == [True, True, False, False, False]
    assert not store.is_unsafe_since("b", 1)


def test_observed_tails_replace_each_other_and_old_ones_go(store: Store) -> None:
    store.create_region("counts", RECORD, {"counts": {0: 0}})
    for commit in range(0, 300, 10):
        store.observe_tail("counts", tail(commit, commit))
        store.observe_tail("counts", tail(commit, commit + 5))
    store.observe_tail("other", tail(0, 1))
    assert len(store.tails("counts")) == 31
    store.keep_tails("counts", [195])
    kept = store.tails("counts")
    assert [t.valid_from_commit for t in kept] == [-1, *range(190, 300, 10)]
    assert [t.positions["counts"] for t in kept[1:]] == [{0: c + 5, 11: 0} for c in range(190, 300, 10)]
    assert len(store.tails("other")) == 1


def test_positions_of_kept_checkpoints_stay_and_those_between_go(store: Store) -> None:
    store.create_region("counts", RECORD, {"counts": {0: 0}})
    for commit in range(0, 100, 10):
        store.observe_tail("counts", tail(commit, commit))
    store.keep_tails("counts", [-1, 25, 29, 60, 75])
    assert [t.valid_from_commit for t in store.tails("counts")] == [-1, 20, 60, 70, 80, 90]
    store.keep_tails("counts", [25, 75])
    assert [t.valid_from_commit for t in store.tails("counts")] == [-1, 20, 70, 80, 90]


def test_damaged_checkpoints_are_known_until_they_are_dropped(store: Store) -> None:
    assert store.distrusted("counts") == frozenset()
    for batch in (3, 5, 3):
        store.distrust("counts", batch, "a file \0 is missing")
    store.distrust("other", 9, "torn")
    assert store.distrusted("counts") == {3, 5}
    store.forget_distrust_after("counts", 4)
    assert (store.distrusted("counts"), store.distrusted("other")) == ({3}, {9})


def test_marks_replace_those_that_were_recorded_before(store: Store) -> None:
    assert store.marks("counts") == ()
    store.record_marks("counts", [({"hop": {0: 1, 10: 2}}, {"counts": {0: 2}}), ({"hop": {0: 9}}, {})])
    store.record_marks("other", [({}, {"counts": {0: 1}})])
    assert store.marks("counts") == (({"hop": {0: 1, 10: 2}}, {"counts": {0: 2}}), ({"hop": {0: 9}}, {}))
    store.record_marks("counts", [({"hop": {0: 9}}, {"counts": {0: 5}})])
    assert store.marks("counts") == (({"hop": {0: 9}}, {"counts": {0: 5}}),)
    assert len(store.marks("other")) == 1


def test_measurements_replace_those_that_were_recorded_before(store: Store) -> None:
    assert store.measurements("counts") == Measurements()
    store.record_measurements("counts", Measurements(restart_s=9.5, input_per_s=0.25, at_s=7.0))
    found = Measurements(restart_s=8.0, standby_restart_s=1.5, replay_per_s=1e6, input_per_s=3.0, checkpoint_s=0.0)
    store.record_measurements("counts", found)
    store.record_measurements("other", Measurements(at_s=1.0))
    assert (store.measurements("counts"), store.measurements("other")) == (found, Measurements(at_s=1.0))


def test_a_count_of_dead_letters_replaces_the_former_one(store: Store) -> None:
    assert store.counted_letters("counts") is None
    for count in (3, 5):
        counted = CountedLetters(topic="dead", count=count, positions={0: Offset(9), 2: Offset(count)})
        store.record_counted_letters("counts", counted)
        assert store.counted_letters("counts") == counted
    assert store.counted_letters("other") is None
    for damaged in ("", "3", "[3]", "[3, {}]", '["x", {"dead": {"0": 1}}]', '[3, {"dead": 1}]'):
        with pytest.raises(DamagedValue):
            load_counted_letters(damaged)


def test_measurements_of_another_version_are_read_as_far_as_they_are_known() -> None:
    text = '{"restart_s": 2.0, "replay_per_s": null, "humidity": 7}'
    assert load_measurements(text) == Measurements(restart_s=2.0)
    for damaged in ("[]", "7", '{"restart_s": "soon"}', "{"):
        with pytest.raises(DamagedValue):
            load_measurements(damaged)


def test_later_tails_are_forgotten_when_an_earlier_batch_is_restored(store: Store) -> None:
    store.create_region("counts", RECORD, {"counts": {0: 0}})
    for commit in range(5):
        store.observe_tail("counts", tail(commit, commit))
        store.observe_tail("other", tail(commit, commit))
    store.forget_tails_after("counts", 2)
    assert [t.valid_from_commit for t in store.tails("counts")] == [-1, 0, 1, 2]
    store.forget_tails_after("counts", -1)
    assert [t.valid_from_commit for t in store.tails("counts")] == [-1]
    assert len(store.tails("other")) == 5


def test_skipped_input_grows_and_is_never_taken_back(store: Store) -> None:
    assert store.skipped_input("a") == ()
    store.skip_input("a", ((1, 0, 5), (0, 10, 20)))
    store.skip_input("b", ((0, 0, 1),))
    assert store.skipped_input("a") == ((0, 10, 20), (1, 0, 5))
    # A run that was killed before it published anything finds the same waiting input, and perhaps more.
    store.skip_input("a", ((0, 10, 20), (1, 0, 9)))
    assert store.skipped_input("a") == ((0, 10, 20), (1, 0, 9))
    store.skip_input("a", ((0, 10, 12),))
    assert store.skipped_input("a") == ((0, 10, 20), (1, 0, 9))
    store.skip_input("a", ((0, 30, 40), (0, 30, 41)))
    store.skip_input("a", ())
    assert store.skipped_input("a") == ((0, 10, 20), (0, 30, 41), (1, 0, 9))
    assert store.skipped_input("b") == ((0, 0, 1),)


def voided(store: Store, topic: str) -> list[tuple[int, int, int]]:
    """Return the void ranges of a topic as plain numbers."""
    return [(v.partition, v.first, v.last_exclusive) for v in store.voided_ranges(topic)]


def test_voided_ranges_merge_where_they_overlap_or_touch(store: Store) -> None:
    assert store.voided_ranges("hop") == ()
    void_range(store, "hop", 0, 10, 20)
    void_range(store, "hop", 0, 20, 25)  # touches
    void_range(store, "hop", 0, 5, 12)  # overlaps
    void_range(store, "hop", 0, 11, 13)  # lies within
    void_range(store, "hop", 0, 26, 27)  # leaves 25 alone
    void_range(store, "hop", 1, 25, 26)  # touches, in another partition
    void_range(store, "other", 0, 25, 26)
    assert voided(store, "hop") == [(0, 5, 25), (0, 26, 27), (1, 25, 26)]
    void_range(store, "hop", 0, 25, 26)
    assert voided(store, "hop") == [(0, 5, 27), (1, 25, 26)]
    assert voided(store, "other") == [(0, 25, 26)]


def test_a_range_is_voided_once(store: Store, place: Place) -> None:
    for _ in range(2):
        store.advance_recovery(store.open_recovery("x", {}, voids=[("hop", 0, 1, 4)]), "done")
    void_range(store, "hop", 0, 1, 4)
    void_range(store, "hop", 0, 4, 6)
    void_range(store, "hop", 0, 5, 6)
    assert voided(store, "hop") == [(0, 1, 6)]
    assert sorted(place.execute("SELECT first, last_exclusive FROM voided_ranges")) == [(1, 4), (4, 6), (5, 6)]


def test_an_empty_range_voids_nothing_and_what_is_none_is_refused(store: Store) -> None:
    void_range(store, "hop", 0, 7, 7)
    assert store.voided_ranges("hop") == ()
    for partition, first, last in ((0, 8, 7), (0, -1, 7), (-1, 0, 7)):
        with pytest.raises(InternalError) as caught:
            void_range(store, "hop", partition, first, last)
        assert caught.value.condition == "RANGE_MALFORMED"
    assert store.voided_ranges("hop") == ()


def test_numbers_as_large_as_kafkas_fit(store: Store) -> None:
    last = 2**63 - 1
    store.skip_input("a", ((0, last - 1, last),))
    void_range(store, "t", 2**31 - 1, last - 1, last)
    store.observe_tail("a", tail(0, last))
    store.record_release("s", "t", 0, last)
    store.record_decision("epoch", "w", last, {"offset": last})
    store.add_checkpoint("p", last, last)
    assert store.skipped_input("a") == ((0, last - 1, last),)
    assert voided(store, "t") == [(2**31 - 1, last - 1, last)]
    assert store.tails("a")[0].positions["counts"][0] == last
    assert store.releases("s")[0].released_exclusive == last
    assert [(d.number, d.content) for d in store.decisions("epoch", "w")] == [(last, {"offset": last})]
    assert [(c.number, c.metadata) for c in store.checkpoints("p")] == [(last, last)]


def test_somebodys_error_text_is_kept_whatever_is_in_it(store: Store) -> None:
    ugly = "line 1\nNUL \0, half a pair \ud83d, a whole one \U0001f600, 100 %s %% :name 'quoted' \\"
    store.open_incarnation("a", -1)
    store.end_incarnation("a", 1, ended=ugly, unsafe=False)
    kept = store.incarnations("a")[0].ended
    assert kept == "line 1\nNUL \\x00, half a pair \\ud83d, a whole one \U0001f600, 100 %s %% :name 'quoted' \\"
    assert store.open_recovery(ugly, {ugly: 1}) == 1
    recovery = store.unfinished_recovery()
    assert recovery is not None
    assert (recovery.reason, recovery.decided) == (kept, {ugly: 1})
    store.record_decision("k", "n", 1, {"text": ugly})
    assert store.decisions("k", "n")[0].content == {"text": ugly}


def test_applications_in_one_database_do_not_meet(place: Place) -> None:
    one, two = place.open(), place.another("b").open()
    one.create_region("counts", RECORD, {})
    assert two.region_names() == ()
    assert (one.open_incarnation("counts", -1), two.open_incarnation("counts", -1)) == (1, 1)
    with one._writing():  # a writer of one store does not block the other store
        two.post_request("stop", None)
    one.close()
    two.close()


# -- several writers ---------------------------------------------------------------------------------------------------

EACH = 25


def write(store: Store, writer: int) -> list[int]:
    """Write one writer's share: incarnations of a region that all share, and its own records."""
    numbers = []
    for count in range(EACH):
        numbers.append(store.open_incarnation("shared", -1))
        store.observe_tail(f"region-{writer}", tail(count, count))
        void_range(store, "hop", 0, count * 2, count * 2 + 1)
        void_range(store, "hop", 1, (count * 10 + writer) * 2, (count * 10 + writer) * 2 + 1)
    return numbers


def write_in_process(place: Place, writer: int) -> list[int]:
    """Write one writer's share in a separate process."""
    store = place.open()
    try:
        return write(store, writer)
    finally:
        store.close()


def judge(store: Store, numbers: list[list[int]]) -> None:
    """Check that no write is lost and that no two writers got the same number."""
    assert sorted(n for own in numbers for n in own) == list(range(1, EACH * len(numbers) + 1))
    assert all(own == sorted(own) for own in numbers)
    for writer in range(len(numbers)):
        assert [t.valid_from_commit for t in store.tails(f"region-{writer}")] == list(range(EACH))
    assert len(store.voided_ranges("hop")) == EACH + EACH * len(numbers)


def test_threads_write_at_once(store: Store) -> None:
    with ThreadPoolExecutor(3) as pool:
        numbers = list(pool.map(lambda writer: write(store, writer), range(3)))
    judge(store, numbers)


def test_processes_make_a_store_and_write_at_once(place: Place) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        numbers = list(pool.map(write_in_process, [place] * 2, range(2)))
    opened = place.open(must_exist=True)
    judge(opened, numbers)
    opened.close()


def test_threads_make_a_store_at_once(place: Place) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: place.open(), range(4)))
    assert sorted(s.open_incarnation("a", -1) for s in stores) == [1, 2, 3, 4]
    for opened in stores:
        opened.close()


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_servers_own_isolation_does_not_matter(postgres: Postgres, tag: str, isolation: str) -> None:
    """With a snapshot from before the lock, two writers would get the same number."""
    options = f"-c default_transaction_isolation={isolation}".replace("e r", "e\\ r")
    stores = [Store(postgres.url(options=options), identity=tag) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        numbers = list(pool.map(write, stores, range(3)))
    judge(stores[0], numbers)
    for opened in stores:
        opened.close()
