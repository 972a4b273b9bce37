package org.falkirk;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.StructType;

/** Tables in memory, and one run of an operator on them. */
final class InMemory implements Operator.Tables {
    final Map<String, Map<Row, Row>> tables = new HashMap<>();

    @Override
    public Operator.Table table(String name, StructType key, StructType value) {
        Map<Row, Row> rows = tables.computeIfAbsent(name, each -> new HashMap<>());
        return new Operator.Table() {
            @Override
            public Row get(Row wanted) {
                return rows.get(wanted);
            }

            @Override
            public void put(Row wanted, Row found) {
                rows.put(wanted, found);
            }

            @Override
            public void remove(Row wanted) {
                rows.remove(wanted);
            }
        };
    }

    /** Return a copy, as a checkpoint has it. */
    InMemory copy() {
        InMemory made = new InMemory();
        tables.forEach((name, rows) -> made.tables.put(name, new HashMap<>(rows)));
        return made;
    }

    static List<Row> all(Iterator<Row> rows) {
        List<Row> found = new ArrayList<>();
        rows.forEachRemaining(found::add);
        return found;
    }
}
