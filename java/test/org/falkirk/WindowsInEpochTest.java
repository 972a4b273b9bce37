package org.falkirk;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/** Windows in epochs give the results of the model in WindowsTest, wherever epochs are cut. */
public final class WindowsInEpochTest {
    private static final int SEEDS = Check.seeds(6);
    private static final StructType COLUMNS = StructType.fromDDL("key STRUCT<id: STRING>")
            .add("open", StructType.fromDDL("start BIGINT, end BIGINT, buffers BINARY"))
            .add("time", "bigint").add("greatest", "bigint").add("after", "bigint")
            .add("origin", StructType.fromDDL("partition INT"))
            .add("row", EventTimeTest.COLUMNS);

    public void resultsAreThoseOfTheModelWhereverEpochsAreCut() {
        for (long[] kind : WindowsTest.KINDS) {
            for (boolean updates : new boolean[] {true, false}) {
                WindowSpec spec = WindowsTest.spec(kind, updates);
                for (int seed = 0; seed < SEEDS; seed++) {
                    List<List<Row>> records = WindowsTest.drawn(seed);
                    List<String> expected = new ArrayList<>();
                    for (String each : WindowsTest.modelled(records, kind, updates)) {
                        if (each.contains(" ")) expected.add(each.substring(each.indexOf(' ') + 1));
                    }
                    List<String> found = new ArrayList<>();
                    for (List<Row> mine : records) {
                        found.addAll(run(spec, mine, new Random(seed)));
                    }
                    Check.equal(Shards.sorted(found), Shards.sorted(expected));
                }
            }
        }
    }

    private static List<String> run(WindowSpec spec, List<Row> records, Random random) {
        List<String> found = new ArrayList<>();
        List<Row> states = new ArrayList<>();
        long greatest = Long.MIN_VALUE / 2;
        for (int next = 0; next < records.size(); ) {
            int end = Math.min(records.size(), next + 1 + random.nextInt(40));
            List<Row> rows = new ArrayList<>();
            for (Row record : records.subList(next, end)) {
                if (record.isNullAt(2)) continue;
                greatest = Math.max(greatest, record.getLong(2));
                rows.add(RowFactory.create(record.get(4), null, record.get(2), greatest, null, null, record));
            }
            rows.addAll(0, states);
            states = epoch(spec, rows, greatest, found);
            next = end;
        }
        return found;
    }

    private static List<Row> epoch(WindowSpec spec, List<Row> rows, long after, List<String> found) {
        rows.sort(Comparator.comparing(row -> row.getStruct(0).getString(0)));
        List<Row> given = new ArrayList<>();
        for (Row row : rows) {
            given.add(RowFactory.create(row.get(0), row.get(1), row.get(2), row.get(3), after, null, row.get(6)));
        }
        List<Row> states = new ArrayList<>();
        for (Row row : InMemory.all(new WindowsInEpoch.Found(given.iterator(), spec, COLUMNS))) {
            Row content = row.getStruct(row.isNullAt(1) ? 2 : 1);
            if (row.getString(0).equals("letter")) {
                found.add("late");
            } else if (row.getString(0).equals("result")) {
                String key = content.getStruct(0).getString(0);
                found.add(WindowsTest.shown(key, content.getLong(1), content.getLong(2), content.getStruct(3)));
            } else {
                Row open = RowFactory.create(content.get(1), content.get(2), content.get(3));
                states.add(RowFactory.create(content.get(0), open, null, null, null, null, null));
            }
        }
        return states;
    }
}
