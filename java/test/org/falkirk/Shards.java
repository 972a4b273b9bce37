package org.falkirk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Random;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.apache.spark.sql.Row;

/**
 * State partitions of an operator, which get the records of source partitions in a random order.
 *
 * @param opened returns the operator on its tables. shown: returns the results of the operator for a row, as texts.
 * @param atOnce each source partition has fewer records than this between two checkpoints.
 */
record Shards(Function<InMemory, Operator> opened, BiFunction<Operator, Row, List<String>> shown, int atOnce) {
    private static final int SHARDS = 3;

    static int of(String key) {
        return Math.floorMod(String.valueOf(key).hashCode(), SHARDS);
    }

    /**
     * Return all results, sorted.
     *
     * @param restarts the partitions lose what follows a checkpoint, and compute it again.
     * @param timeRows records that move the time have time rows.
     */
    List<String> run(List<List<Row>> records, Random random, boolean restarts, boolean timeRows) {
        List<InMemory> tables = new ArrayList<>();
        for (int shard = 0; shard < SHARDS; shard++) {
            tables.add(new InMemory());
        }
        return sorted(Batches.run(records, atOnce, tables, random, restarts,
                (now, first, ends) -> batch(records, first, ends, now, random, timeRows)));
    }

    private List<String> batch(
            List<List<Row>> records, int[] first, int[] ends, List<InMemory> tables, Random random, boolean timeRows) {
        List<Operator> operators = new ArrayList<>();
        tables.forEach(each -> operators.add(opened.apply(each)));
        List<Iterator<Row>> tasks = new ArrayList<>();
        EventTime.Columns at = EventTimeTest.NAMES.in(EventTimeTest.COLUMNS);
        for (int partition = 0; partition < first.length; partition++) {
            List<Row> mine = records.get(partition).subList(first[partition], ends[partition]);
            tasks.add(timeRows ? new EventTime.Added(mine.iterator(), at) : mine.iterator());
        }
        List<String> found = new ArrayList<>();
        while (tasks.stream().anyMatch(Iterator::hasNext)) {
            Iterator<Row> task = tasks.get(random.nextInt(first.length));
            if (!task.hasNext()) continue;
            Row row = task.next();
            if (at.isTimeRow(row)) {
                operators.forEach(each -> found.addAll(shown.apply(each, row)));
            } else {
                found.addAll(shown.apply(operators.get(of(row.getString(0))), row));
            }
        }
        return found;
    }

    static List<String> sorted(List<String> found) {
        List<String> made = new ArrayList<>(found);
        Collections.sort(made);
        return made;
    }
}
