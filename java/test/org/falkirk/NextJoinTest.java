package org.falkirk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.SimpleAnalyzer$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.types.StructType;

/** Joins of three sources, of random records in random orders, over restarts, compared with a plain model. */
public final class NextJoinTest {
    private static final long DELAY = 500_000;
    private static final long WITHIN = 700_000;
    private static final int SEEDS = Check.seeds(36);
    private static final int PARTITIONS = 2;
    private static final int SOURCES = 3;
    private static final int RECORDS = 50;
    private static final String END = "end";
    private static final EventTime NAMES = new EventTime("stamp", "time", "bad");
    private static final JoinColumns NAMED = new JoinColumns(NAMES, "key", "side", "left", "right", "late");
    private static final StructType OWN = StructType.fromDDL("id STRING, at BIGINT");
    private static final String SIDES = "side INT, left STRUCT<id: STRING, at: BIGINT>, right STRUCT<id: STRING, at: BIGINT>,";
    private static final String REST = " time BIGINT, bad STRUCT<reason: STRING, key: BINARY, value: BINARY>, key STRUCT<id: STRING>";
    private static final String PLACE = " stamp STRUCT<source: INT, partition: INT, offset: BIGINT, sub0: INT, sub1: BIGINT";
    private static final StructType COLUMNS = StructType.fromDDL(SIDES + PLACE + ">," + REST);
    private static final StructType NEXT = StructType.fromDDL(SIDES + PLACE + ", sub2: INT, sub3: BIGINT>," + REST);
    private static final StructType BOTH = new StructType().add("first", COLUMNS).add("other", NEXT);
    /** Compiled once for all tests. */
    private static final RowSteps BETWEEN = between();

    /** A kind of join. Args: left, right: records without a partner are results. */
    private record Kind(boolean asOf, boolean left, boolean right) {}

    private static final List<Kind> FIRST = List.of(
            new Kind(false, false, false), new Kind(false, true, false), new Kind(true, true, false),
            new Kind(true, false, false));
    private static final List<Kind> SECOND = List.of(
            new Kind(false, true, true), new Kind(false, false, true), new Kind(true, true, false),
            new Kind(false, true, false), new Kind(true, false, false), new Kind(false, false, false));

    private record Sent(int source, int partition, long offset, String id, long at) {
        Row row() {
            Row own = RowFactory.create(id, at);
            Row key = RowFactory.create(id);
            if (source < 2) {
                Row stamp = RowFactory.create(source, partition, offset, 0, 0L);
                Row left = source == 0 ? own : null;
                return first(RowFactory.create(source, left, source == 1 ? own : null, stamp, at, null, key));
            }
            Row stamp = RowFactory.create(source, partition, offset, 0, 0L, 0, 0L);
            return RowFactory.create(null, RowFactory.create(1, null, own, stamp, at, null, key));
        }

        /** The row that tells all state partitions the time of a source partition. */
        Row timeRow() {
            Row is = RowFactory.create(null, null, null);
            if (source < 2) {
                Row stamp = RowFactory.create(source, partition, offset, 0, 0L);
                return first(RowFactory.create(source, null, null, stamp, at, is, null));
            }
            Row stamp = RowFactory.create(source, partition, offset, 0, 0L, 0, 0L);
            return RowFactory.create(null, RowFactory.create(1, null, null, stamp, at, is, null));
        }

        private static Row first(Row row) {
            return RowFactory.create(row, null);
        }

        String place() {
            return (partition + 1) + "." + offset;
        }
    }

    /** A result of the first join. Args: right: null if there is none. */
    private record Pair(Sent left, Sent right) {}

    /** The results of the first join as left records of the second one. Late and bad records stay bad. */
    private static RowSteps between() {
        StructType given = NAMED.results(COLUMNS);
        List<Attribute> attributes = Scala.<Attribute>list(DataTypeUtils.toAttributes(given));
        LocalRelation relation = new LocalRelation(
                Scala.<Attribute>seq(attributes), Scala.<InternalRow>seq(List.of()), false, scala.Option.empty());
        String none = "CAST(NULL AS BINARY)";
        String stamp = "named_struct('source', stamp.source, 'partition', stamp.partition, 'offset', stamp.offset, 'sub0', 0,"
                + " 'sub1', 0L, 'sub2', stamp.sub0, 'sub3', stamp.sub1)";
        List<NamedExpression> named = new ArrayList<>();
        for (String text : List.of(
                "0 AS side", "left AS left", "CAST(NULL AS STRUCT<id: STRING, at: BIGINT>) AS right", stamp + " AS stamp",
                "CASE WHEN bad IS NULL AND NOT late THEN left.at END AS time",
                "CASE WHEN late THEN named_struct('reason', 'late', 'key', " + none + ", 'value', " + none
                        + ") ELSE bad END AS bad",
                "named_struct('id', left.id) AS key")) {
            named.add((NamedExpression) CatalystSqlParser$.MODULE$.parseExpression(text));
        }
        return RowSteps.of(
                SimpleAnalyzer$.MODULE$.execute(new Project(Scala.seq(named), relation)), given, NEXT);
    }

    private static TimedJoin join(Kind kind, int partitions, int subs) {
        long delay = partitions == 0 ? 0 : DELAY;
        if (kind.asOf) {
            return new AsOfJoin(
                    NAMED, new JoinSpec.Side(delay, 0, kind.left, partitions, subs),
                    new JoinSpec.Side(DELAY, WITHIN, false, PARTITIONS, 0));
        }
        List<Attribute> mine = new ArrayList<>(Scala.<Attribute>list(DataTypeUtils.toAttributes(OWN)));
        List<Attribute> theirs = new ArrayList<>(Scala.<Attribute>list(DataTypeUtils.toAttributes(OWN)));
        Expression same = new EqualTo((Expression) mine.get(0), (Expression) theirs.get(0));
        return new LiveJoin(NAMED, new JoinSpec(
                same, mine, theirs, WITHIN, new JoinSpec.Side(delay, WITHIN, kind.left, partitions, subs),
                new JoinSpec.Side(DELAY, WITHIN, kind.right, PARTITIONS, 0)));
    }

    private static NextJoin opened(InMemory tables, Kind first, Kind second) {
        NextJoin made = new NextJoin(join(first, PARTITIONS, 0), BETWEEN, join(second, 0, 2));
        made.open(BOTH, tables);
        return made;
    }

    private static String shown(Row row) {
        boolean isLate = row.getBoolean(row.size() - 1) || !row.isNullAt(5);
        return row.getStruct(3).mkString(".") + (isLate ? " late" : "");
    }

    private static List<List<Sent>> drawn(int seed) {
        Random random = new Random(seed);
        List<List<Sent>> all = new ArrayList<>();
        for (int number = 0; number < SOURCES * PARTITIONS; number++) {
            List<Sent> mine = new ArrayList<>();
            int source = number / PARTITIONS;
            long now = 0;
            for (int i = 0; i < RECORDS; i++) {
                now += random.nextInt(4) * 50_000;
                long at = now - (random.nextInt(4) == 0 ? random.nextInt(18) * 50_000 : 0);
                String id = random.nextInt(15) == 0 ? null : "k" + random.nextInt(4);
                mine.add(new Sent(source, number % PARTITIONS, i, id, at));
            }
            mine.add(new Sent(source, number % PARTITIONS, RECORDS, END, 100_000_000));
            all.add(mine);
        }
        return all;
    }

    private static List<String> modelled(List<List<Sent>> all, Kind first, Kind second) {
        List<String> found = new ArrayList<>();
        List<List<Sent>> fit = new ArrayList<>();
        for (int source = 0; source < SOURCES; source++) {
            fit.add(new ArrayList<>());
        }
        for (List<Sent> mine : all) {
            long greatest = Long.MIN_VALUE / 2;
            for (Sent each : mine) {
                greatest = Math.max(greatest, each.at);
                if (each.at < greatest - DELAY) {
                    found.add(each.source + "." + each.partition + "." + each.offset + ".0.0.0.0 late");
                } else if (!END.equals(each.id)) {
                    fit.get(each.source).add(each);
                }
            }
        }
        List<Pair> pairs = new ArrayList<>();
        for (Sent each : fit.get(0)) {
            partners(each, fit.get(1), first).forEach(other -> pairs.add(new Pair(each, other)));
        }
        List<Sent> paired = new ArrayList<>();
        for (Pair each : pairs) {
            String middle = each.right == null ? "0.0" : each.right.place();
            for (Sent other : partners(each.left, fit.get(2), second)) {
                String last = other == null ? "0.0" : other.place();
                found.add("0." + each.left.partition + "." + each.left.offset + "." + last + "." + middle);
                paired.add(other);
            }
        }
        for (Sent each : fit.get(2)) {
            if (second.right && !paired.contains(each)) found.add("2." + each.partition + "." + each.offset + ".0.0.0.0");
        }
        Collections.sort(found);
        return found;
    }

    /** Return the partners of a left record. A null stands for none, if the join has a result for that. */
    private static List<Sent> partners(Sent left, List<Sent> right, Kind kind) {
        List<Sent> found = new ArrayList<>();
        for (Sent each : right) {
            long apart = left.at - each.at;
            if (left.id == null || !left.id.equals(each.id) || Math.abs(apart) > WITHIN || kind.asOf && apart < 0) continue;
            if (kind.asOf && !found.isEmpty()) {
                if (isNewer(each, found.get(0))) found.set(0, each);
            } else {
                found.add(each);
            }
        }
        if (found.isEmpty() && kind.left) found.add(null);
        return found;
    }

    private static boolean isNewer(Sent one, Sent other) {
        if (one.at != other.at) return one.at > other.at;
        return one.partition != other.partition ? one.partition > other.partition : one.offset > other.offset;
    }

    private static List<String> run(List<List<Sent>> all, Random random, Kind first, Kind second, boolean restarts) {
        return Batches.run(all, 30, List.of(new InMemory()), random, restarts, (tables, begins, ends) -> {
            NextJoin join = opened(tables.get(0), first, second);
            return Batches.interleaved(all, begins, ends, random, (Sent sent, List<String> found) -> {
                for (Row row : List.of(sent.timeRow(), sent.row())) {
                    for (Row result : InMemory.all(join.take(row))) {
                        boolean isEnd = !result.isNullAt(1) && END.equals(result.getStruct(1).getString(0))
                                || !result.isNullAt(2) && END.equals(result.getStruct(2).getString(0));
                        if (!isEnd) found.add(shown(result));
                    }
                }
            });
        });
    }

    public void resultsAreThoseOfAPlainModelInWhateverOrderRecordsArrive() {
        for (int seed = 0; seed < SEEDS; seed++) {
            Kind first = FIRST.get(seed % FIRST.size());
            Kind second = SECOND.get((seed + seed / FIRST.size()) % SECOND.size());
            List<List<Sent>> all = drawn(seed);
            List<String> expected = modelled(all, first, second);
            Check.that(expected.size() > 30, "there are results");
            for (boolean restarts : new boolean[] {false, true}) {
                Check.sameInAnyOrder(run(all, new Random(seed), first, second, restarts), expected);
            }
        }
    }

    /** The first join keeps a record without a partner until its end, rounded up. Until then, its partner may come. */
    public void aRecordOfTheLastSourceIsKeptUntilTheFirstJoinHasGivenItsPartner() {
        NextJoin join = opened(new InMemory(), FIRST.get(1), SECOND.get(5));
        List<Sent> all = new ArrayList<>(List.of(new Sent(0, 0, 0, "a", 150_000)));
        for (int number = 0; number < 2 * PARTITIONS; number++) {
            all.add(new Sent(number / PARTITIONS, number % PARTITIONS, 1, "b" + number, 1_400_000));
        }
        all.add(new Sent(2, 0, 0, "a", 150_000 - WITHIN));
        for (int partition = 0; partition < PARTITIONS; partition++) {
            all.add(new Sent(1, partition, 2, "c", 2_000_000));
        }
        List<String> found = new ArrayList<>();
        all.forEach(sent -> InMemory.all(join.take(sent.row())).forEach(row -> found.add(shown(row))));
        Check.equal(found, List.of("0.0.0.1.0.0.0"));
    }

    /** Two replays give the same set, in another order. So only a barrier that compares sets is right. */
    public void theOrderOfResultsDiffersInAReplay() {
        List<List<Sent>> all = drawn(1);
        List<String> once = run(all, new Random(1), FIRST.get(0), SECOND.get(0), false);
        List<String> again = run(all, new Random(2), FIRST.get(0), SECOND.get(0), false);
        Check.sameInAnyOrder(again, once);
        Check.that(!once.equals(again), "the order is the same");
        Check.equal((int) once.stream().distinct().count(), once.size());
    }

    /** The state has the rows that can still make a pair. Without the watermark of the first join, none would go. */
    public void theStateOfBothJoinsIsBounded() {
        InMemory tables = new InMemory();
        NextJoin join = opened(tables, FIRST.get(1), SECOND.get(0));
        for (int i = 0; i < 1000; i++) {
            for (int number = 0; number < SOURCES * PARTITIONS; number++) {
                String id = i % 2 == 0 ? "k" + i : "k" + i + "-" + number;
                Sent sent = new Sent(number / PARTITIONS, number % PARTITIONS, i, id, i * 50_000L);
                InMemory.all(join.take(sent.row()));
            }
        }
        int kept = (int) ((2 * WITHIN + DELAY + 2 * LiveJoin.GRAIN_US) / 50_000) + 3;
        for (String name : List.of("rows", "rows_1", "heads", "heads_1", "agenda", "agenda_1")) {
            int size = tables.tables.get(name).size();
            Check.that(size > 0 && size <= SOURCES * PARTITIONS * PARTITIONS * kept, name + " has " + size + " rows");
        }
    }

    public void eachJoinHasItsOwnTables() {
        InMemory tables = new InMemory();
        NextJoin join = opened(tables, FIRST.get(0), SECOND.get(0));
        Check.equal(join.size(), 2);
        String names = tables.tables.keySet().stream().sorted().collect(Collectors.joining(" "));
        Check.that(names.contains("rows rows_1") && names.contains("times times_1"), names);
    }

    public void aBadRecordOfEachSourcePasses() {
        NextJoin join = opened(new InMemory(), FIRST.get(0), SECOND.get(0));
        Row reason = RowFactory.create("unfit", null, null);
        Row one = RowFactory.create(1, null, null, RowFactory.create(1, 1, 4L, 0, 0L), null, reason, null);
        Row last = RowFactory.create(1, null, null, RowFactory.create(2, 0, 7L, 0, 0L, 0, 0L), null, reason, null);
        Check.equal(shown(InMemory.all(join.take(RowFactory.create(one, null))).get(0)), "1.1.4.0.0.0.0 late");
        Check.equal(shown(InMemory.all(join.take(RowFactory.create(null, last))).get(0)), "2.0.7.0.0.0.0 late");
    }
}
