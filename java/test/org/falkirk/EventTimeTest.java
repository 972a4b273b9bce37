package org.falkirk;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** A time row precedes each record that moves the time of its partition in a task. */
public final class EventTimeTest {
    static final EventTime NAMES = new EventTime("stamp", "time", "bad");
    static final StructType COLUMNS = StructType.fromDDL(
            "id STRING, stamp STRUCT<source: INT, partition: INT, offset: BIGINT>, time BIGINT,"
                    + " bad STRUCT<reason: STRING, key: BINARY, value: BINARY>, key STRUCT<id: STRING>");

    /** Records of which a column is never null. A result of an operator that has no value there must still be a row. */
    static void checkResultsAreRows(Operator operator, Row... records) {
        StructType columns = new StructType();
        for (StructField each : COLUMNS.fields()) {
            columns = columns.add(each.name(), each.dataType(), !each.name().equals("id"));
        }
        operator.open(columns, new InMemory());
        var serializer = ExpressionEncoder.apply(operator.results(columns)).createSerializer();
        int found = 0;
        for (Row record : records) {
            for (Row result : InMemory.all(operator.take(record))) {
                serializer.apply(result);
                found += result.isNullAt(0) ? 1 : 0;
            }
        }
        Check.that(found > 0, "a result without a value");
    }

    static Row record(String id, int partition, long offset, long time) {
        Row stamp = RowFactory.create(0, partition, offset);
        return RowFactory.create(id, stamp, time, null, RowFactory.create(id));
    }

    static Row bad(int partition, long offset) {
        Row stamp = RowFactory.create(0, partition, offset);
        Row reason = RowFactory.create("unfit", null, null);
        return RowFactory.create(null, stamp, null, reason, RowFactory.create((Object) null));
    }

    private static List<Row> withTimeRows(Row... records) {
        return InMemory.all(new EventTime.Added(List.of(records).iterator(), NAMES.in(COLUMNS)));
    }

    public void onlyRecordsThatMoveTimeHaveATimeRow() {
        Row first = record("a", 0, 0, 10);
        Row older = record("b", 0, 1, 9);
        Row same = record("b", 0, 2, 10);
        Row newer = record("b", 0, 3, 11);
        EventTime.Columns at = NAMES.in(COLUMNS);
        Check.equal(
                withTimeRows(first, older, same, newer),
                List.of(at.timeRow(first), first, older, same, at.timeRow(newer), newer));
    }

    public void eachPartitionHasItsOwnTime() {
        Row first = record("a", 0, 0, 10);
        Row other = record("b", 1, 0, 5);
        EventTime.Columns at = NAMES.in(COLUMNS);
        Check.equal(withTimeRows(first, other), List.of(at.timeRow(first), first, at.timeRow(other), other));
    }

    public void aBadRecordMovesNoTime() {
        Row bad = bad(0, 0);
        Check.equal(withTimeRows(bad), List.of(bad));
        Check.that(!NAMES.in(COLUMNS).isTimeRow(bad), "a bad record is no time row");
    }

    public void aTimeRowHasTheStampAndTheTimeAlone() {
        Row record = record("a", 3, 7, 10);
        Row row = NAMES.in(COLUMNS).timeRow(record);
        Check.equal(row.get(1), record.get(1));
        Check.equal(row.getLong(2), 10L);
        Check.that(row.isNullAt(0) && row.isNullAt(4), "other columns are null");
        Check.that(NAMES.in(COLUMNS).isTimeRow(row), "it is a time row");
    }

    public void noRecordWaitsForTheNextOne() {
        List<Row> read = new ArrayList<>();
        Iterator<Row> source = List.of(record("a", 0, 0, 1), record("b", 0, 1, 2)).iterator();
        Iterator<Row> watched = new Iterator<>() {
            @Override
            public boolean hasNext() {
                return source.hasNext();
            }

            @Override
            public Row next() {
                read.add(source.next());
                return read.get(read.size() - 1);
            }
        };
        Iterator<Row> added = new EventTime.Added(watched, NAMES.in(COLUMNS));
        added.next();
        added.next();
        Check.equal(read.size(), 1);
    }
}
