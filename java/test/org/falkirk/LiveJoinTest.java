package org.falkirk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.types.StructType;

/** Joins of random records in random orders, over restarts, compared with a plain model; the size of the state. */
public final class LiveJoinTest {
    private static final long DELAY = 500_000;
    private static final long WITHIN = 1_000_000;
    private static final int SEEDS = Check.seeds(16);
    private static final int PARTITIONS = 2;
    private static final int RECORDS = 80;
    private static final EventTime NAMES = new EventTime("stamp", "time", "bad");
    private static final StructType OWN = StructType.fromDDL("id STRING, at BIGINT");
    private static final StructType COLUMNS = StructType.fromDDL(
            "side INT, left STRUCT<id: STRING, at: BIGINT>, right STRUCT<id: STRING, at: BIGINT>,"
                    + " stamp STRUCT<source: INT, partition: INT, offset: BIGINT, sub0: INT, sub1: BIGINT>,"
                    + " time BIGINT, bad STRUCT<reason: STRING, key: BINARY, value: BINARY>, key STRUCT<id: STRING>");

    private record Sent(int side, int partition, long offset, String id, long at) {
        Row row() {
            Row own = RowFactory.create(id, at);
            return RowFactory.create(
                    side, side == 0 ? own : null, side == 1 ? own : null,
                    RowFactory.create(side, partition, offset, 0, 0L), at, null, RowFactory.create(id));
        }
    }

    private static LiveJoin opened(InMemory tables, boolean left, boolean right) {
        List<Attribute> mine = new ArrayList<>(Scala.<Attribute>list(DataTypeUtils.toAttributes(OWN)));
        List<Attribute> theirs = new ArrayList<>(Scala.<Attribute>list(DataTypeUtils.toAttributes(OWN)));
        Expression same = new EqualTo((Expression) mine.get(0), (Expression) theirs.get(0));
        JoinSpec spec = new JoinSpec(
                same, mine, theirs, WITHIN, new JoinSpec.Side(DELAY, WITHIN, left, PARTITIONS, 0),
                new JoinSpec.Side(DELAY, WITHIN, right, PARTITIONS, 0));
        LiveJoin made = new LiveJoin(new JoinColumns(NAMES, "key", "side", "left", "right", "late"), spec);
        made.open(COLUMNS, tables);
        return made;
    }

    private static String shown(Row row) {
        Row stamp = row.getStruct(3);
        String text = stamp.mkString(".") + " " + (row.isNullAt(1) ? "" : row.getStruct(1).getString(0));
        text += "," + (row.isNullAt(2) ? "" : row.getStruct(2).getString(0));
        return text + (row.getBoolean(row.size() - 1) ? " late" : "");
    }

    /** The source partitions, left ones first. Times grow, with exceptions, some of which are late. */
    private static List<List<Sent>> drawn(int seed) {
        Random random = new Random(seed);
        List<List<Sent>> all = new ArrayList<>();
        for (int number = 0; number < 2 * PARTITIONS; number++) {
            List<Sent> mine = new ArrayList<>();
            long now = 0;
            for (int i = 0; i < RECORDS; i++) {
                now += random.nextInt(200_000);
                long at = now - (random.nextInt(4) == 0 ? random.nextInt(900_000) : 0);
                String id = random.nextInt(15) == 0 ? null : "k" + random.nextInt(5);
                mine.add(new Sent(number / PARTITIONS, number % PARTITIONS, i, id, at));
            }
            mine.add(new Sent(number / PARTITIONS, number % PARTITIONS, RECORDS, "end", 100_000_000));
            all.add(mine);
        }
        return all;
    }

    private static List<String> modelled(List<List<Sent>> all, boolean left, boolean right) {
        List<String> found = new ArrayList<>();
        List<Sent> fit = new ArrayList<>();
        for (List<Sent> mine : all) {
            long greatest = Long.MIN_VALUE / 2;
            for (Sent each : mine) {
                greatest = Math.max(greatest, each.at);
                if (each.at < greatest - DELAY) {
                    found.add(shownOf(each, null) + " late");
                } else {
                    fit.add(each);
                }
            }
        }
        for (Sent one : fit) {
            boolean paired = false;
            for (Sent other : fit) {
                boolean same = one.id != null && one.id.equals(other.id) && Math.abs(one.at - other.at) <= WITHIN;
                if (one.side == other.side || !same) continue;
                paired = true;
                if (one.side == 0) found.add(shownOf(one, other));
            }
            boolean isEnd = "end".equals(one.id);
            if (!paired && !isEnd && (one.side == 0 ? left : right)) found.add(shownOf(one, null));
        }
        Collections.sort(found);
        return found;
    }

    private static String shownOf(Sent one, Sent other) {
        String place = one.side + "." + one.partition + "." + one.offset;
        place += other == null ? ".0.0" : "." + (other.partition + 1) + "." + other.offset;
        String mine = String.valueOf(one.id);
        return place + " " + (other != null ? mine + "," + other.id : one.side == 0 ? mine + "," : "," + mine);
    }

    /** Results in their order. Args: restarts: batches are lost and computed again, in another order. */
    private static List<String> run(List<List<Sent>> all, Random random, boolean left, boolean right, boolean restarts) {
        return Batches.run(all, 30, List.of(new InMemory()), random, restarts,
                (tables, first, ends) -> batch(all, first, ends, opened(tables.get(0), left, right), random));
    }

    private static List<String> batch(
            List<List<Sent>> all, int[] first, int[] ends, LiveJoin join, Random random) {
        List<String> found = new ArrayList<>();
        EventTime.Columns at = NAMES.in(COLUMNS);
        List<EventTime.Added> tasks = new ArrayList<>();
        for (int i = 0; i < ends.length; i++) {
            List<Row> mine = all.get(i).subList(first[i], ends[i]).stream().map(Sent::row).toList();
            tasks.add(new EventTime.Added(mine.iterator(), at));
        }
        while (tasks.stream().anyMatch(EventTime.Added::hasNext)) {
            EventTime.Added task = tasks.get(random.nextInt(tasks.size()));
            if (!task.hasNext()) continue;
            Row row = task.next();
            if (at.isTimeRow(row)) row = timeRow(row);
            InMemory.all(join.take(row)).forEach(each -> found.add(shown(each)));
        }
        return found;
    }

    /** Python keeps the side of time rows. */
    private static Row timeRow(Row row) {
        Object[] values = new Object[row.size()];
        for (int i = 0; i < values.length; i++) {
            values[i] = row.get(i);
        }
        values[0] = row.getStruct(3).getInt(0);
        return RowFactory.create(values);
    }

    public void resultsAreThoseOfAPlainModelInWhateverOrderRecordsArrive() {
        for (int seed = 0; seed < SEEDS; seed++) {
            boolean left = seed % 2 == 0;
            boolean right = seed % 4 > 1;
            List<List<Sent>> all = drawn(seed);
            List<String> expected = modelled(all, left, right);
            Check.that(expected.size() > 50, "there are results");
            for (boolean restarts : new boolean[] {false, true}) {
                List<String> found = run(all, new Random(seed), left, right, restarts);
                Check.sameInAnyOrder(found, expected);
            }
        }
    }

    /** The order differs between two runs. So the greatest stamp per channel would drop results that nobody has. */
    public void theGreatestStampOfAChannelLosesResultsAfterAReplay() {
        List<List<Sent>> all = drawn(1);
        List<String> first = run(all, new Random(1), false, false, false);
        List<String> again = run(all, new Random(2), false, false, false);
        List<String> published = first.subList(0, first.size() / 2);
        int lost = 0;
        for (String each : again) {
            boolean isBelow = published.stream().anyMatch(one ->
                    channel(one).equals(channel(each)) && place(one) >= place(each) && !one.equals(each));
            if (isBelow && !published.contains(each)) lost++;
        }
        Check.equal(new HashSet<>(first), new HashSet<>(again));
        Check.that(!first.equals(again), "the order is the same");
        Check.that(lost > 0, "nothing is lost");
    }

    private static String channel(String result) {
        return result.substring(0, 4);
    }

    private static long place(String result) {
        String[] parts = result.split(" ")[0].split("\\.");
        return Long.parseLong(parts[2]) * 1_000_000 + Long.parseLong(parts[3]) * 100_000 + Long.parseLong(parts[4]);
    }

    public void theStateIsAsLargeAsTheRowsThatCanStillMakeAPair() {
        InMemory tables = new InMemory();
        LiveJoin join = opened(tables, true, true);
        int alone = 0;
        for (int i = 0; i < 2000; i++) {
            for (int number = 0; number < 2 * PARTITIONS; number++) {
                Sent sent = new Sent(number / PARTITIONS, number % PARTITIONS, i, "k" + i + "-" + number, i * 50_000L);
                alone += InMemory.all(join.take(sent.row())).size();
            }
        }
        int kept = (int) ((WITHIN + DELAY + LiveJoin.GRAIN_US) / 50_000) + 2;
        Check.that(tables.tables.get("rows").size() <= 2 * PARTITIONS * kept, "few rows are kept");
        Check.equal(tables.tables.get("rows").size() + alone, 2000 * 2 * PARTITIONS);
        Check.that(tables.tables.get("heads").size() <= 2 * PARTITIONS * kept, "few heads are kept");
        Check.that(tables.tables.get("agenda").size() <= 2 * PARTITIONS * kept, "few keys are in the agenda");
    }

    public void anIdlePartitionKeepsRowsOfTheOtherSide() {
        InMemory tables = new InMemory();
        LiveJoin join = opened(tables, true, true);
        join.take(new Sent(0, 0, 0, "a", 0).row());
        Check.equal(InMemory.all(join.take(new Sent(1, 0, 0, "b", 100_000_000).row())), List.of());
        Check.equal(InMemory.all(join.take(new Sent(1, 1, 0, "c", 100_000_000).row())).size(), 1);
    }

    public void aBadRecordPasses() {
        Row bad = RowFactory.create(
                0, null, null, RowFactory.create(0, 1, 4L, 0, 0L), null, RowFactory.create("unfit", null, null), null);
        Check.equal(InMemory.all(opened(new InMemory(), false, false).take(bad)).size(), 1);
    }
}
