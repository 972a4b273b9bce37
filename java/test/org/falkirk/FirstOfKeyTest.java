package org.falkirk;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.spark.sql.Row;

/** The first record of each key within a time, compared with a plain model; restarts; the size of the state. */
public final class FirstOfKeyTest {
    private static final long DELAY = 10;
    private static final int SEEDS = Check.seeds(200);
    private static final int RECORDS = 120;
    private static final int PARTITIONS = 2;

    private static FirstOfKey opened(InMemory tables) {
        FirstOfKey made = new FirstOfKey(EventTimeTest.NAMES, "key", "late", DELAY);
        made.open(EventTimeTest.COLUMNS, tables);
        return made;
    }

    private static String shown(Row row) {
        Row stamp = row.getStruct(1);
        return stamp.getInt(1) + "." + stamp.getLong(2) + (row.getBoolean(row.size() - 1) ? " late" : "");
    }

    private static List<String> results(Operator operator, Row... records) {
        List<String> found = new ArrayList<>();
        for (Row record : records) {
            InMemory.all(operator.take(record)).forEach(row -> found.add(shown(row)));
        }
        return found;
    }

    public void aKeyIsKnownUntilACopyOfItsFirstRecordWouldBeLate() {
        FirstOfKey operator = opened(new InMemory());
        Check.equal(results(operator, EventTimeTest.record("a", 0, 0, 5)), List.of("0.0"));
        Check.equal(results(operator, EventTimeTest.record("a", 0, 1, 15)), List.of());
        Check.equal(results(operator, EventTimeTest.record("b", 0, 2, 5)), List.of("0.2"));
        Check.equal(results(operator, EventTimeTest.record("c", 0, 3, 16)), List.of("0.3"));
        Check.equal(results(operator, EventTimeTest.record("a", 0, 4, 5)), List.of("0.4 late"));
        Check.equal(results(operator, EventTimeTest.record("a", 0, 5, 6)), List.of("0.5"));
    }

    public void aTimeRowMovesTimeAndIsNoResult() {
        FirstOfKey operator = opened(new InMemory());
        Row later = EventTimeTest.record("z", 0, 0, 100);
        Check.equal(results(operator, EventTimeTest.NAMES.in(EventTimeTest.COLUMNS).timeRow(later)), List.of());
        Check.equal(results(operator, EventTimeTest.record("a", 0, 1, 89)), List.of("0.1 late"));
        Check.equal(results(operator, EventTimeTest.record("a", 1, 0, 89)), List.of("1.0"));
    }

    public void aBadRecordPasses() {
        Check.equal(results(opened(new InMemory()), EventTimeTest.bad(1, 4)), List.of("1.4"));
    }

    public void aKeyFromTwoPartitionsIsAnError() {
        FirstOfKey operator = opened(new InMemory());
        operator.take(EventTimeTest.record("a", 1, 0, 5));
        IllegalStateException error =
                Check.thrown(IllegalStateException.class, () -> operator.take(EventTimeTest.record("a", 0, 0, 5)));
        Check.equal(error.getMessage(), FirstOfKey.SPLIT_KEY + "|0|1|[a]");
    }

    /** Random records, in a random order of their partitions, over state partitions that stop and resume. */
    public void resultsAreThoseOfAPlainModelInWhateverOrderPartitionsArrive() {
        Shards shards = new Shards(FirstOfKeyTest::opened, FirstOfKeyTest::results, 40);
        for (int seed = 0; seed < SEEDS; seed++) {
            List<List<Row>> records = drawn(seed);
            List<String> expected = modelled(records);
            Check.equal(shards.run(records, new Random(seed), false, true), expected);
            Check.equal(shards.run(records, new Random(seed + 1), true, true), expected);
        }
    }

    public void theStateIsAsLargeAsTheKeysWithinTheTime() {
        InMemory tables = new InMemory();
        FirstOfKey operator = opened(tables);
        for (long i = 0; i < 1000; i++) {
            operator.take(EventTimeTest.record("k" + i, 0, i, i));
        }
        Check.equal(tables.tables.get("known").size(), (int) DELAY + 1);
        Check.equal(tables.tables.get("queue").size(), (int) DELAY + 1);
        Check.equal(tables.tables.get("progress").size(), 1);
    }

    public void aRecordDeletesFewKeysEvenIfManyHaveExpired() {
        InMemory tables = new InMemory();
        FirstOfKey operator = opened(tables);
        for (long i = 0; i < 1000; i++) {
            operator.take(EventTimeTest.record("k" + i, 0, i, 0));
        }
        operator.take(EventTimeTest.record("late", 0, 1000, 100));
        Check.equal(tables.tables.get("known").size(), 999);
        for (long i = 0; i < 1000; i++) {
            operator.take(EventTimeTest.record("again", 0, 1001 + i, 100));
        }
        Check.equal(tables.tables.get("known").size(), 2);
    }

    private static List<List<Row>> drawn(int seed) {
        Random random = new Random(seed);
        List<List<Row>> records = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            List<Row> mine = new ArrayList<>();
            long now = 0;
            for (int i = 0; i < RECORDS; i++) {
                now += random.nextInt(4);
                long time = now - (random.nextInt(3) == 0 ? random.nextInt((int) DELAY + 5) : 0);
                String id = "p" + partition + "k" + random.nextInt(6);
                mine.add(random.nextInt(20) == 0
                        ? EventTimeTest.bad(partition, i)
                        : EventTimeTest.record(id, partition, i, time));
            }
            records.add(mine);
        }
        return records;
    }

    private static List<String> modelled(List<List<Row>> records) {
        List<String> found = new ArrayList<>();
        for (List<Row> mine : records) {
            long greatest = Long.MIN_VALUE / 2;
            Map<String, Long> known = new HashMap<>();
            for (Row record : mine) {
                String place = record.getStruct(1).getInt(1) + "." + record.getStruct(1).getLong(2);
                if (record.isNullAt(2)) {
                    found.add(place);
                    continue;
                }
                long time = record.getLong(2);
                greatest = Math.max(greatest, time);
                Long first = known.get(record.getString(0));
                if (time < greatest - DELAY) {
                    found.add(place + " late");
                } else if (first == null || first < greatest - DELAY) {
                    known.put(record.getString(0), time);
                    found.add(place);
                }
            }
        }
        return Shards.sorted(found);
    }
}
