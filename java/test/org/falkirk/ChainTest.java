package org.falkirk;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.types.StructType;

/** Two operators in one state partition: separate states, the time of all records for both, and restarts. */
public final class ChainTest {
    private static final long DELAY = 10;
    private static final long SHORTER = 4;
    private static final int SEEDS = Check.seeds(100);
    private static final int RECORDS = 120;
    /** Compiled once: each chain that a test opens would need 15 ms of CPU time for that. */
    private static final RowSteps ON_TIME = onTime(first().results(EventTimeTest.COLUMNS));

    /** Returns the first record of each key within a time, and of these the first ones within a shorter time. */
    private static Operator opened(InMemory tables) {
        Operator chain = new Chain(first(), ON_TIME, second());
        chain.open(EventTimeTest.COLUMNS, tables);
        return chain;
    }

    private static FirstOfKey first() {
        return new FirstOfKey(EventTimeTest.NAMES, "key", "late", DELAY);
    }

    private static FirstOfKey second() {
        return new FirstOfKey(EventTimeTest.NAMES, "key", "too late", SHORTER);
    }

    /** Leaves out late records. */
    private static RowSteps onTime(StructType columns) {
        List<Attribute> attributes = Scala.<Attribute>list(DataTypeUtils.toAttributes(columns));
        LocalRelation relation = new LocalRelation(
                Scala.<Attribute>seq(attributes), Scala.<InternalRow>seq(List.of()), false, scala.Option.empty());
        Expression late = (Expression) attributes.get(columns.fieldIndex("late"));
        return RowSteps.of(new Filter(new Not(late), relation), columns, columns);
    }

    private static List<String> results(Operator operator, Row record) {
        List<String> found = new ArrayList<>();
        for (Row row : InMemory.all(operator.take(record))) {
            Row stamp = row.getStruct(1);
            found.add(stamp.getInt(1) + "." + stamp.getLong(2) + (row.getBoolean(row.size() - 1) ? " late" : ""));
        }
        return found;
    }

    public void theSecondOperatorGetsTheResultsOfTheFirst() {
        Operator chain = opened(new InMemory());
        Check.equal(results(chain, EventTimeTest.record("a", 0, 0, 5)), List.of("0.0"));
        Check.equal(results(chain, EventTimeTest.record("a", 0, 1, 12)), List.of());
        Check.equal(results(chain, EventTimeTest.bad(0, 2)), List.of("0.2"));
        Check.equal(results(chain, EventTimeTest.record("d", 0, 3, 13)), List.of("0.3"));
        Check.equal(results(chain, EventTimeTest.record("b", 0, 4, 6)), List.of("0.4 late"));
        Check.equal(results(chain, EventTimeTest.record("c", 0, 5, 1)), List.of());
    }

    public void aTimeRowReachesTheSecondOperatorAndIsNoResult() {
        Operator chain = opened(new InMemory());
        Row later = EventTimeTest.NAMES.in(EventTimeTest.COLUMNS).timeRow(EventTimeTest.record("z", 0, 0, 14));
        Check.equal(results(chain, later), List.of());
        Check.equal(results(chain, EventTimeTest.record("a", 0, 1, 9)), List.of("0.1 late"));
    }

    public void eachOperatorHasItsOwnTables() {
        InMemory tables = new InMemory();
        opened(tables);
        Check.equal(
                Shards.sorted(new ArrayList<>(tables.tables.keySet())),
                List.of("known", "known_1", "progress", "progress_1", "queue", "queue_1"));
    }

    public void aChainOfChainsHasTablesOfItsOwn() {
        InMemory tables = new InMemory();
        Chain two = new Chain(first(), ON_TIME, second());
        StructType more = two.results(EventTimeTest.COLUMNS);
        FirstOfKey last = new FirstOfKey(EventTimeTest.NAMES, "key", "never", DELAY);
        Chain three = new Chain(two, onTime(more), last);
        three.open(EventTimeTest.COLUMNS, tables);
        Check.equal(three.size(), 3);
        Check.that(tables.tables.keySet().containsAll(List.of("known", "known_1", "known_2")), "three tables");
        Row later = EventTimeTest.NAMES.in(EventTimeTest.COLUMNS).timeRow(EventTimeTest.record("z", 0, 0, 100));
        Check.equal(InMemory.all(three.take(later)), List.of());
        Check.equal(tables.tables.get("progress_2").size(), 1);
    }

    /** Random records, in a random order of their partitions, over state partitions that stop and resume. */
    public void resultsAreThoseOfAPlainModelInWhateverOrderPartitionsArrive() {
        Shards shards = new Shards(ChainTest::opened, ChainTest::results, 40);
        for (int seed = 0; seed < SEEDS; seed++) {
            List<List<Row>> records = drawn(seed);
            List<String> expected = modelled(records);
            Check.equal(shards.run(records, new Random(seed), false, true), expected);
            Check.equal(shards.run(records, new Random(seed + 1), true, true), expected);
        }
    }

    private static List<List<Row>> drawn(int seed) {
        Random random = new Random(seed);
        List<List<Row>> records = new ArrayList<>();
        for (int partition = 0; partition < 2; partition++) {
            List<Row> mine = new ArrayList<>();
            long now = 0;
            for (int i = 0; i < RECORDS; i++) {
                now += random.nextInt(4);
                long time = now - (random.nextInt(3) == 0 ? random.nextInt((int) DELAY + 5) : 0);
                mine.add(EventTimeTest.record("p" + partition + "k" + random.nextInt(6), partition, i, time));
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
            Map<String, Long> again = new HashMap<>();
            for (Row record : mine) {
                String place = record.getStruct(1).getInt(1) + "." + record.getStruct(1).getLong(2);
                long time = record.getLong(2);
                greatest = Math.max(greatest, time);
                if (time < greatest - DELAY || isKnown(known, record, greatest - DELAY)) continue;
                if (time < greatest - SHORTER) {
                    found.add(place + " late");
                } else if (!isKnown(again, record, greatest - SHORTER)) {
                    found.add(place);
                }
            }
        }
        return Shards.sorted(found);
    }

    private static boolean isKnown(Map<String, Long> known, Row record, long watermark) {
        Long first = known.get(record.getString(0));
        if (first != null && first >= watermark) return true;
        known.put(record.getString(0), record.getLong(2));
        return false;
    }
}
