package org.falkirk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/** Random records with the versions of their keys, in random orders, over restarts, compared with a plain model. */
public final class AsOfJoinTest {
    private static final long STREAM_DELAY = 300_000;
    private static final long TABLE_DELAY = 500_000;
    private static final long TOLERANCE = 700_000;
    private static final int SEEDS = Check.seeds(16);
    private static final int PARTITIONS = 2;
    private static final int RECORDS = 80;
    private static final String END = "end";
    private static final EventTime NAMES = new EventTime("stamp", "time", "bad");
    private static final JoinColumns NAMED = new JoinColumns(NAMES, "key", "side", "left", "right", "late");
    private static final StructType COLUMNS = StructType.fromDDL(
            "side INT, left STRUCT<id: STRING, at: BIGINT>, right STRUCT<id: STRING, at: BIGINT>,"
                    + " stamp STRUCT<source: INT, partition: INT, offset: BIGINT, sub0: INT, sub1: BIGINT>,"
                    + " time BIGINT, bad STRUCT<reason: STRING, key: BINARY, value: BINARY>, key STRUCT<id: STRING>");

    /** A record. Args: side: 0 for the stream, 1 for the table. */
    private record Sent(int side, int partition, long offset, String id, long at) {
        Row row() {
            Row own = RowFactory.create(id, at);
            return RowFactory.create(
                    side, side == 0 ? own : null, side == 1 ? own : null,
                    RowFactory.create(side, partition, offset, 0, 0L), at, null, RowFactory.create(id));
        }

        /** The time row that Python sends before it. */
        Row timeRow() {
            return RowFactory.create(
                    side, null, null, RowFactory.create(side, partition, offset, 0, 0L), at,
                    RowFactory.create(null, null, null), null);
        }

        long delay() {
            return side == 0 ? STREAM_DELAY : TABLE_DELAY;
        }
    }

    private static AsOfJoin opened(InMemory tables, boolean left, long tolerance) {
        AsOfJoin made = new AsOfJoin(
                NAMED, new JoinSpec.Side(STREAM_DELAY, 0, left, PARTITIONS, 0),
                new JoinSpec.Side(TABLE_DELAY, tolerance, false, PARTITIONS, 0));
        made.open(COLUMNS, tables);
        return made;
    }

    private static String shown(Row row) {
        String versioned = row.isNullAt(2) ? "none" : String.valueOf(row.getStruct(2).getLong(1));
        String own = row.isNullAt(1) ? "none" : row.getStruct(1).getString(0);
        return row.getStruct(3).mkString(".") + " " + own + " " + versioned + (row.getBoolean(7) ? " late" : "");
    }

    /** The source partitions, those of the stream first. Times grow, with exceptions, some of which are late. */
    private static List<List<Sent>> drawn(int seed) {
        Random random = new Random(seed);
        List<List<Sent>> all = new ArrayList<>();
        for (int number = 0; number < 2 * PARTITIONS; number++) {
            List<Sent> mine = new ArrayList<>();
            int side = number / PARTITIONS;
            long now = 0;
            for (int i = 0; i < RECORDS; i++) {
                now += random.nextInt(4) * 50_000;
                long at = now - (random.nextInt(4) == 0 ? random.nextInt(18) * 50_000 : 0);
                String id = random.nextInt(15) == 0 ? null : "k" + random.nextInt(5);
                mine.add(new Sent(side, number % PARTITIONS, i, id, at));
            }
            mine.add(new Sent(side, number % PARTITIONS, RECORDS, END, 100_000_000));
            all.add(mine);
        }
        return all;
    }

    /** The last record of each partition moves the time far ahead. It waits itself. */
    private static List<String> modelled(List<List<Sent>> all, boolean left, long tolerance) {
        List<String> found = new ArrayList<>();
        List<Sent> fit = new ArrayList<>();
        for (List<Sent> mine : all) {
            long greatest = Long.MIN_VALUE / 2;
            for (Sent each : mine) {
                greatest = Math.max(greatest, each.at);
                if (each.at < greatest - each.delay()) {
                    String own = each.side == 0 ? each.id : "none";
                    String version = each.side == 0 ? "none" : String.valueOf(each.at);
                    found.add(stampOf(each, null) + " " + own + " " + version + " late");
                } else if (!END.equals(each.id)) {
                    fit.add(each);
                }
            }
        }
        for (Sent one : fit) {
            if (one.side != 0) continue;
            Sent newest = null;
            for (Sent other : fit) {
                if (other.side == 0 || one.id == null || !one.id.equals(other.id) || other.at > one.at) continue;
                if (newest == null || isNewer(other, newest)) newest = other;
            }
            if (newest != null && one.at - newest.at > tolerance) newest = null;
            if (newest == null && !left) continue;
            found.add(stampOf(one, newest) + " " + one.id + " " + (newest == null ? "none" : newest.at));
        }
        Collections.sort(found);
        return found;
    }

    private static boolean isNewer(Sent one, Sent other) {
        if (one.at != other.at) return one.at > other.at;
        return one.partition != other.partition ? one.partition > other.partition : one.offset > other.offset;
    }

    private static String stampOf(Sent one, Sent other) {
        String place = one.side + "." + one.partition + "." + one.offset;
        return place + (other == null ? ".0.0" : "." + (other.partition + 1) + "." + other.offset);
    }

    /** Results in their order. Args: restarts: batches are lost and computed again, in another order. */
    private static List<String> run(
            List<List<Sent>> all, Random random, boolean left, long tolerance, boolean restarts) {
        return Batches.run(all, 30, List.of(new InMemory()), random, restarts,
                (tables, first, ends) -> batch(all, first, ends, opened(tables.get(0), left, tolerance), random));
    }

    private static List<String> batch(
            List<List<Sent>> all, int[] first, int[] ends, AsOfJoin join, Random random) {
        return Batches.interleaved(all, first, ends, random, (each, found) -> {
            InMemory.all(join.take(each.timeRow())).forEach(row -> found.add(shown(row)));
            InMemory.all(join.take(each.row())).forEach(row -> found.add(shown(row)));
        });
    }

    public void resultsAreThoseOfAPlainModelInWhateverOrderRecordsArrive() {
        int matches = 0;
        for (int seed = 0; seed < SEEDS; seed++) {
            boolean left = seed % 2 == 0;
            long tolerance = seed % 4 > 1 ? TOLERANCE : JoinSpec.UNBOUNDED;
            List<List<Sent>> all = drawn(seed);
            List<String> expected = modelled(all, left, tolerance);
            matches += expected.stream().filter(each -> !each.contains("none")).count();
            Check.that(expected.stream().anyMatch(each -> each.endsWith("late")), "some are late");
            for (boolean restarts : new boolean[] {false, true}) {
                List<String> found = run(all, new Random(seed), left, tolerance, restarts);
                Check.sameInAnyOrder(found, expected);
            }
        }
        Check.that(matches > 50 * SEEDS, "records have versions");
    }

    /** The order differs between two runs, so the barrier has to compare sets. */
    public void theOrderOfResultsIsNotThatOfTheirStamps() {
        List<List<Sent>> all = drawn(1);
        List<String> first = run(all, new Random(1), true, JoinSpec.UNBOUNDED, false);
        List<String> again = run(all, new Random(2), true, JoinSpec.UNBOUNDED, false);
        Check.equal(new HashSet<>(first), new HashSet<>(again));
        Check.that(!first.equals(again), "the orders differ");
    }

    public void aRecordWaitsUntilAllPartitionsOfTheTableHavePassedIt() {
        AsOfJoin join = opened(new InMemory(), true, JoinSpec.UNBOUNDED);
        Check.equal(InMemory.all(join.take(new Sent(1, 0, 0, "a", 1_000_000).row())), List.of());
        Check.equal(InMemory.all(join.take(new Sent(0, 0, 0, "a", 2_000_000).row())), List.of());
        Check.equal(InMemory.all(join.take(new Sent(1, 1, 0, "b", 9_000_000).row())), List.of());
        Check.equal(InMemory.all(join.take(new Sent(1, 0, 1, "b", 2_000_000 + TABLE_DELAY).row())), List.of());
        Check.equal(InMemory.all(join.take(new Sent(1, 0, 2, "a", 2_000_000).row())), List.of());
        List<Row> results = InMemory.all(join.take(new Sent(1, 0, 3, "b", 2_000_001 + TABLE_DELAY).row()));
        Check.equal(results.stream().map(AsOfJoinTest::shown).toList(), List.of("0.0.0.1.2 a 2000000"));
        results = InMemory.all(join.take(new Sent(0, 1, 0, "a", 1_999_999).row()));
        Check.equal(results.stream().map(AsOfJoinTest::shown).toList(), List.of("0.1.0.1.0 a 1000000"));
    }

    private static void send(AsOfJoin join, int side, long offset, String id, long at) {
        for (int partition = 0; partition < PARTITIONS; partition++) {
            join.take(new Sent(side, partition, offset, id + (side == 0 ? "" : partition), at).row());
        }
    }

    private static int size(InMemory tables, String name) {
        return tables.tables.get(name).size();
    }

    /** Each key keeps its newest version, and those that records can need until the slower side has passed them. */
    public void theStateHasTheVersionsThatARecordCanStillNeed() {
        InMemory tables = new InMemory();
        AsOfJoin join = opened(tables, true, JoinSpec.UNBOUNDED);
        long step = 50_000;
        for (int i = 0; i < 2_000; i++) {
            send(join, 0, i, "none" + i, i * step);
            send(join, 1, i, "k" + i % 5, i * step);
        }
        int keys = 5 * PARTITIONS;
        int kept = (int) ((TABLE_DELAY + LiveJoin.GRAIN_US) / step) + 2;
        Check.that(size(tables, "versions") <= keys + PARTITIONS * kept, "few versions are kept");
        Check.that(size(tables, "agenda") <= PARTITIONS * kept * 2, "few keys are in the agenda");
        Check.that(size(tables, "rows") <= PARTITIONS * kept, "few records wait");
        Check.equal(size(tables, "table"), keys);
        for (int i = 2_000; i < 4_000; i++) {
            send(join, 1, i, "k" + i % 5, i * step);
        }
        Check.that(size(tables, "versions") > 3_000, "an idle stream needs all versions since its time");
        send(join, 0, 4_000, "last", 10_000 * step);
        send(join, 1, 4_000, "last", 10_000 * step);
        Check.equal(size(tables, "versions"), keys + PARTITIONS);
        Check.equal(size(tables, "agenda"), 1); // the last records of the stream wait, with one key and time
        Check.equal(size(tables, "ends"), 1);
    }

    public void versionsOlderThanTheToleranceAreDeletedWithTheirKeys() {
        InMemory tables = new InMemory();
        AsOfJoin join = opened(tables, true, TOLERANCE);
        for (int i = 0; i < 2_000; i++) {
            send(join, 0, i, "none" + i, i * 50_000L);
            send(join, 1, i, "k" + i + "-", i * 50_000L);
        }
        int kept = PARTITIONS * ((int) ((TABLE_DELAY + TOLERANCE + LiveJoin.GRAIN_US) / 50_000) + 2);
        Check.that(size(tables, "versions") <= kept && size(tables, "table") <= kept, "few versions are kept");
        Check.that(size(tables, "agenda") <= 2 * kept, "few keys are in the agenda");
    }

    public void aBadRecordPasses() {
        Row bad = RowFactory.create(
                0, null, null, RowFactory.create(0, 1, 4L, 0, 0L), null, RowFactory.create("unfit", null, null), null);
        Check.equal(InMemory.all(opened(new InMemory(), true, TOLERANCE).take(bad)).size(), 1);
    }
}
