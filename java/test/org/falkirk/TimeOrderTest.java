package org.falkirk;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import org.apache.spark.sql.Row;

/** Records of several partitions leave in one order, whatever order they arrive in; late ones; the size of the state. */
public final class TimeOrderTest {
    private static final long DELAY = 6;
    private static final int PARTITIONS = 3;
    private static final int RECORDS = 80;
    private static final int SEEDS = Check.seeds(80);
    /** The key of the last records, which move the times of all partitions far ahead, and wait themselves. */
    private static final String END = "end";
    private static final EventTime.Columns AT = EventTimeTest.NAMES.in(EventTimeTest.COLUMNS);

    private static TimeOrder opened(InMemory tables) {
        TimeOrder made = new TimeOrder(EventTimeTest.NAMES, DELAY, PARTITIONS);
        made.open(EventTimeTest.COLUMNS, tables);
        return made;
    }

    /** Times grow, with exceptions, some of which are late. Many are equal, in one partition and in several. */
    private static List<List<Row>> drawn(int seed) {
        Random random = new Random(seed);
        List<List<Row>> all = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            List<Row> mine = new ArrayList<>();
            long now = 0;
            for (int offset = 0; offset < RECORDS; offset++) {
                now += random.nextInt(3);
                long time = now - (random.nextInt(4) == 0 ? random.nextInt((int) DELAY + 4) : 0);
                mine.add(EventTimeTest.record("k" + random.nextInt(4), partition, offset, time));
            }
            mine.add(EventTimeTest.record(END, partition, RECORDS, 1_000_000));
            all.add(mine);
        }
        return all;
    }

    private static boolean isLate(Row record, long greatest) {
        return record.getLong(2) < greatest - DELAY;
    }

    private static String shown(Row record) {
        return record.getStruct(1).mkString(".") + " " + record.getString(0) + " at " + record.getLong(2);
    }

    /** The records that are not late, sorted. */
    private static List<String> modelled(List<List<Row>> all) {
        List<Row> found = new ArrayList<>();
        for (List<Row> mine : all) {
            long greatest = Long.MIN_VALUE / 2;
            for (Row each : mine) {
                greatest = Math.max(greatest, each.getLong(2));
                if (!isLate(each, greatest) && !each.getString(0).equals(END)) found.add(each);
            }
        }
        found.sort(Comparator.comparingLong((Row each) -> each.getLong(2))
                .thenComparingInt(each -> each.getStruct(1).getInt(1))
                .thenComparingLong(each -> each.getStruct(1).getLong(2)));
        return found.stream().map(TimeOrderTest::shown).toList();
    }

    private static List<String> run(List<List<Row>> all, Random random, boolean restarts) {
        return Batches.run(all, 20, List.of(new InMemory()), random, restarts,
                (tables, first, ends) -> batch(all, first, ends, opened(tables.get(0)), random));
    }

    private static List<String> batch(List<List<Row>> all, int[] first, int[] ends, TimeOrder order, Random random) {
        return Batches.interleaved(all, first, ends, random, (record, found) -> take(order, record, found));
    }

    /** Give a record with its time row, as Spark does. */
    private static void take(TimeOrder order, Row record, List<String> found) {
        order.move(AT.timeRow(record));
        drain(order, found);
        order.move(record);
        if (!order.isLate(record)) order.hold(record);
        drain(order, found);
    }

    private static void drain(TimeOrder order, List<String> found) {
        for (Row each = order.next(); each != null; each = order.next()) found.add(shown(each));
    }

    public void theOrderIsThatOfAPlainModelInWhateverOrderRecordsArrive() {
        for (int seed = 0; seed < SEEDS; seed++) {
            List<List<Row>> all = drawn(seed);
            List<String> expected = modelled(all);
            Check.that(expected.size() < PARTITIONS * RECORDS, "some are late");
            for (int run = 0; run < 2; run++) {
                Check.equal(run(all, new Random(2 * seed + run), run == 1), expected);
            }
        }
    }

    /** So the greatest stamp of a partition does not tell which records have left, and the barrier compares sets. */
    public void theOrderIsNotThatOfTheStampsOfAPartition() {
        List<String> found = run(drawn(1), new Random(1), false);
        int before = -1;
        boolean falls = false;
        for (String each : found) {
            String[] stamp = each.substring(0, each.indexOf(' ')).split("\\.");
            if (!stamp[1].equals("0")) continue;
            falls |= Integer.parseInt(stamp[2]) < before;
            before = Integer.parseInt(stamp[2]);
        }
        Check.that(falls, "an older stamp comes later");
    }

    public void aRecordWaitsUntilAllPartitionsHavePassedIt() {
        TimeOrder order = opened(new InMemory());
        List<String> found = new ArrayList<>();
        take(order, EventTimeTest.record("a", 0, 0, 100), found);
        take(order, EventTimeTest.record("a", 1, 0, 100), found);
        take(order, EventTimeTest.record("a", 0, 1, 200), found);
        take(order, EventTimeTest.record("a", 1, 1, 200), found);
        Check.equal(found, List.of()); // nothing is known of the third partition
        take(order, EventTimeTest.record("a", 2, 0, 100 + DELAY), found);
        Check.equal(found, List.of()); // it may still have a record of that time
        take(order, EventTimeTest.record("a", 2, 1, 100), found);
        take(order, EventTimeTest.record("a", 2, 2, 101 + DELAY), found);
        Check.equal(found, List.of("0.0.0 a at 100", "0.1.0 a at 100", "0.2.1 a at 100"));
    }

    public void aRecordIsLateByTheTimeOfItsOwnPartition() {
        TimeOrder order = opened(new InMemory());
        order.move(EventTimeTest.record("a", 0, 0, 1_000));
        Row other = EventTimeTest.record("a", 1, 0, 5);
        order.move(other);
        Check.that(!order.isLate(other), "the other partition is slower");
        Row late = EventTimeTest.record("a", 0, 1, 999 - DELAY);
        order.move(late);
        Check.that(order.isLate(late), "it is older than the watermark");
    }

    public void theStateHasTheRecordsThatWait() {
        InMemory tables = new InMemory();
        TimeOrder order = opened(tables);
        List<String> found = new ArrayList<>();
        for (long i = 0; i < 1_000; i++) {
            for (int partition = 0; partition < PARTITIONS; partition++) {
                take(order, EventTimeTest.record("k" + i, partition, i, i), found);
            }
        }
        int kept = PARTITIONS * (int) (DELAY + 1);
        Check.equal(tables.tables.get("agenda").size(), kept);
        Check.equal(found.size(), PARTITIONS * 1_000 - kept);
        Check.equal(tables.tables.get("ends").size(), (int) DELAY + 1);
    }
}
