package org.falkirk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.CollectList;
import org.apache.spark.sql.catalyst.expressions.aggregate.Complete$;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import scala.Option;

/** Windows compared with a plain model; restarts; the size of the state. */
public final class WindowsTest {
    static final long DELAY = 10;
    private static final int SEEDS = Check.seeds(6);
    private static final int RECORDS = 120;
    private static final int PARTITIONS = 2;

    /** Kinds of windows: size, slide, offset. A session has no slide. */
    static final long[][] KINDS = {{10, 10, 0}, {12, 5, 3}, {4, 0, 0}};

    /** The number of records and their greatest time, by expressions, and the list of their times, by an object. */
    static Aggregates aggregates() {
        AttributeReference time = attribute("time");
        List<AggregateExpression> functions = new ArrayList<>();
        List<NamedExpression> results = new ArrayList<>();
        List<AggregateFunction> wanted = List.of(
                new Count(Scala.<Expression>seq(List.of(time))), new Max(time), new CollectList(time, 0, 0, true));
        for (AggregateFunction each : wanted) {
            AggregateExpression made = new AggregateExpression(
                    each, Complete$.MODULE$, false, Option.empty(), NamedExpression.newExprId());
            functions.add(made);
            results.add(new Alias(
                    (Expression) made.resultAttribute(), "f" + results.size(), NamedExpression.newExprId(),
                    Scala.seq(List.of()), Option.empty(), Scala.seq(List.of())));
        }
        return Aggregates.of(functions, results, List.of((NamedExpression) time));
    }

    private static AttributeReference attribute(String name) {
        return new AttributeReference(
                name, DataTypes.LongType, true, Metadata.empty(), NamedExpression.newExprId(), Scala.seq(List.of()));
    }

    private static Windows opened(WindowSpec spec, InMemory tables) {
        Windows made = new Windows(EventTimeTest.NAMES, "key", "w", spec);
        made.open(EventTimeTest.COLUMNS, tables);
        return made;
    }

    static WindowSpec spec(long[] kind, boolean updates) {
        return new WindowSpec(kind[0], kind[1], kind[2], DELAY, updates, aggregates());
    }

    /** Show a window with its values. */
    static String shown(String key, long start, long end, Row values) {
        List<Long> list = new ArrayList<>(values.<Long>getList(2));
        Collections.sort(list);
        return key + " [" + start + "," + end + ") " + values.getLong(0) + " " + values.getLong(1) + " " + list;
    }

    /** Show a result: the stamp with its sub-index, and the window with its values, if it is one. */
    private static String shown(Row row) {
        int added = EventTimeTest.COLUMNS.size();
        Row stamp = row.getStruct(1);
        String place = stamp.getInt(1) + "." + stamp.getLong(2) + "." + row.getInt(added + 3);
        if (row.isNullAt(added + 1)) return place + (row.getBoolean(added) ? " late" : "");
        String key = row.getStruct(4).getString(0);
        return place + " " + shown(key, row.getLong(added + 1), row.getLong(added + 2), row.getStruct(added + 4));
    }

    private static Shards shards(WindowSpec spec) {
        return new Shards(tables -> opened(spec, tables), WindowsTest::results, 60);
    }

    private static List<String> results(Operator operator, Row... records) {
        List<String> found = new ArrayList<>();
        for (Row record : records) {
            InMemory.all(operator.take(record)).forEach(row -> found.add(shown(row)));
        }
        return found;
    }

    public void aColumnThatIsNeverNullHasNoValueInAResult() {
        Windows operator = new Windows(EventTimeTest.NAMES, "key", "w", spec(KINDS[0], true));
        EventTimeTest.checkResultsAreRows(operator, EventTimeTest.record("a", 0, 0, 5));
    }

    public void aWindowClosesWhenTheWatermarkReachesItsEnd() {
        Windows operator = opened(spec(KINDS[0], false), new InMemory());
        Check.equal(results(operator, EventTimeTest.record("a", 0, 0, 5)), List.of());
        Check.equal(results(operator, EventTimeTest.record("b", 0, 1, 7)), List.of());
        Check.equal(results(operator, EventTimeTest.record("b", 0, 2, 19)), List.of());
        Check.equal(results(operator, EventTimeTest.record("a", 0, 3, 9)), List.of());
        Row row = EventTimeTest.NAMES.in(EventTimeTest.COLUMNS).timeRow(EventTimeTest.record("z", 0, 4, 20));
        Check.equal(results(operator, row), List.of("0.4.0 a [0,10) 2 9 [5, 9]", "0.4.1 b [0,10) 1 7 [7]"));
        Check.equal(results(operator, EventTimeTest.record("a", 0, 5, 9)), List.of("0.5.0 late"));
        Check.equal(results(operator, row), List.of());
    }

    public void eachPartitionHasItsOwnTime() {
        Windows operator = opened(spec(KINDS[0], false), new InMemory());
        Check.equal(results(operator, EventTimeTest.record("a", 0, 0, 5)), List.of());
        Check.equal(results(operator, EventTimeTest.record("b", 1, 0, 50)), List.of());
        Check.equal(results(operator, EventTimeTest.record("a", 0, 1, 6)), List.of());
    }

    public void anUpdateHasThePlaceOfItsWindow() {
        Windows operator = opened(spec(KINDS[1], true), new InMemory());
        Check.equal(
                results(operator, EventTimeTest.record("a", 0, 0, 14)),
                List.of("0.0.0 a [3,15) 1 14 [14]", "0.0.1 a [8,20) 1 14 [14]", "0.0.2 a [13,25) 1 14 [14]"));
        Check.equal(results(operator, EventTimeTest.record("a", 0, 1, 40)).size(), 2);
        Check.equal(results(operator, EventTimeTest.record("a", 0, 2, 19)), List.of("0.2.0 late"));
    }

    public void aRecordJoinsTwoSessions() {
        Windows operator = opened(spec(KINDS[2], true), new InMemory());
        Check.equal(results(operator, EventTimeTest.record("a", 0, 0, 10)), List.of("0.0.0 a [10,14) 1 10 [10]"));
        Check.equal(results(operator, EventTimeTest.record("a", 0, 1, 17)), List.of("0.1.0 a [17,21) 1 17 [17]"));
        Check.equal(
                results(operator, EventTimeTest.record("a", 0, 2, 13)), List.of("0.2.0 a [10,21) 3 17 [10, 13, 17]"));
    }

    public void aKeyFromTwoPartitionsIsAnError() {
        Windows operator = opened(spec(KINDS[0], false), new InMemory());
        operator.take(EventTimeTest.record("a", 1, 0, 5));
        IllegalStateException error =
                Check.thrown(IllegalStateException.class, () -> operator.take(EventTimeTest.record("a", 0, 0, 5)));
        Check.equal(error.getMessage(), FirstOfKey.SPLIT_KEY + "|0|1|[a]");
    }

    public void aBadRecordPasses() {
        Check.equal(results(opened(spec(KINDS[0], false), new InMemory()), EventTimeTest.bad(1, 4)), List.of("1.4.0"));
    }

    public void theStateIsThatOfOpenWindows() {
        for (long[] kind : KINDS) {
            for (boolean updates : new boolean[] {true, false}) {
                InMemory tables = new InMemory();
                Windows operator = opened(spec(kind, updates), tables);
                for (long i = 0; i < 1000; i++) {
                    Iterator<Row> found = operator.take(EventTimeTest.record("k" + i % 7, 0, i, i));
                    while (found.hasNext()) {
                        found.next();
                    }
                }
                tables.tables.forEach((name, rows) -> Check.that(rows.size() < 60, name + " has " + rows.size()));
                operator.take(EventTimeTest.record("z", 0, 1000, 5000)).forEachRemaining(row -> {});
                Check.that(tables.tables.get("open").size() <= 3, "only the last windows are open");
                Check.equal(tables.tables.get("progress").size(), 1);
            }
        }
    }

    /** Random records, in a random order of their partitions, over state partitions that stop and resume. */
    public void resultsAreThoseOfAPlainModelInWhateverOrderPartitionsArrive() {
        for (long[] kind : KINDS) {
            for (boolean updates : new boolean[] {true, false}) {
                WindowSpec spec = spec(kind, updates);
                for (int seed = 0; seed < SEEDS; seed++) {
                    List<List<Row>> records = drawn(seed);
                    List<String> expected = modelled(records, kind, updates);
                    Check.equal(shards(spec).run(records, new Random(seed), false, true), expected);
                    Check.equal(shards(spec).run(records, new Random(seed + 1), true, true), expected);
                }
            }
        }
    }

    /** The mechanism is off: state partitions know only the times of their own keys. */
    public void withoutTimeRowsWindowsCloseLater() {
        List<List<Row>> records = drawn(1);
        List<String> found = shards(spec(KINDS[0], false)).run(records, new Random(1), false, false);
        Check.that(!found.equals(modelled(records, KINDS[0], false)), "results differ from the model");
    }

    static List<List<Row>> drawn(int seed) {
        Random random = new Random(seed);
        List<List<Row>> records = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            List<Row> mine = new ArrayList<>();
            long now = 0;
            for (int i = 0; i < RECORDS; i++) {
                now += random.nextInt(4) + (random.nextInt(25) == 0 ? 30 : 0);
                long time = now - (random.nextInt(3) == 0 ? random.nextInt((int) DELAY + 8) : 0);
                String id = "p" + partition + "k" + random.nextInt(4);
                mine.add(random.nextInt(20) == 0
                        ? EventTimeTest.bad(partition, i)
                        : EventTimeTest.record(id, partition, i, time));
            }
            records.add(mine);
        }
        return records;
    }

    /** A window of a key, and the times of its records. */
    private record Open(String key, long start, long end, List<Long> times) {
        String shown(String stamp) {
            List<Long> sorted = new ArrayList<>(times);
            Collections.sort(sorted);
            return stamp + " " + key + " [" + start + "," + end + ") " + sorted.size() + " "
                    + sorted.get(sorted.size() - 1) + " " + sorted;
        }
    }

    static List<String> modelled(List<List<Row>> records, long[] kind, boolean updates) {
        List<String> found = new ArrayList<>();
        for (List<Row> mine : records) {
            modelled(mine, kind, updates, found);
        }
        return Shards.sorted(found);
    }

    private static void modelled(List<Row> records, long[] kind, boolean updates, List<String> found) {
        long greatest = Long.MIN_VALUE / 2;
        List<Open> open = new ArrayList<>();
        for (Row record : records) {
            String stamp = record.getStruct(1).getInt(1) + "." + record.getStruct(1).getLong(2) + ".";
            if (record.isNullAt(2)) {
                found.add(stamp + 0);
                continue;
            }
            long time = record.getLong(2);
            String key = record.getString(0);
            greatest = Math.max(greatest, time);
            long watermark = greatest - DELAY;
            TreeMap<Integer, Integer> places = new TreeMap<>();
            open.sort((one, other) -> one.end != other.end
                    ? Long.compare(one.end, other.end) : one.key.compareTo(other.key));
            for (Open each : open) {
                int place = places.merge(Shards.of(each.key), 1, Integer::sum) - 1;
                if (each.end <= watermark && !updates) found.add(each.shown(stamp + place));
            }
            open.removeIf(each -> each.end <= watermark);
            List<Open> own = kind[1] == 0
                    ? session(open, key, time, kind[0], watermark) : aligned(open, key, time, kind, watermark);
            if (own.isEmpty()) found.add(stamp + "0 late");
            for (int i = 0; updates && i < own.size(); i++) {
                found.add(own.get(i).shown(stamp + i));
            }
        }
    }

    private static List<Open> aligned(List<Open> open, String key, long time, long[] kind, long watermark) {
        List<Open> own = new ArrayList<>();
        for (long start = time - kind[0] + 1; start <= time; start++) {
            long begin = start;
            if (Math.floorMod(start - kind[2], kind[1]) != 0 || start + kind[0] <= watermark) continue;
            Open mine = open.stream().filter(each -> each.key.equals(key) && each.start == begin).findFirst()
                    .orElseGet(() -> new Open(key, begin, begin + kind[0], new ArrayList<>()));
            open.remove(mine);
            mine.times.add(time);
            open.add(mine);
            own.add(mine);
        }
        return own;
    }

    private static List<Open> session(List<Open> open, String key, long time, long gap, long watermark) {
        if (time + gap <= watermark) return List.of();
        long start = time;
        long end = time + gap;
        List<Long> times = new ArrayList<>(List.of(time));
        for (Open each : List.copyOf(open)) {
            if (!each.key.equals(key) || each.start > time + gap || time > each.end) continue;
            start = Math.min(start, each.start);
            end = Math.max(end, each.end);
            times.addAll(each.times);
            open.remove(each);
        }
        Open mine = new Open(key, start, end, times);
        open.add(mine);
        return List.of(mine);
    }
}
