package org.falkirk;

import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Queue;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * The columns by which live steps know the time of records, and the time rows that carry it to every state partition.
 *
 * <p>The time of a source partition is the greatest time of its records so far. A record is sent to one state partition
 * only, so before a record that moves the time, a row with the new time is sent to all of them. Time rows are no records:
 * they have a stamp and a time, and a column `bad` that is not null, so that the user's steps pass them on.
 *
 * <p>A task knows only the records that it has read itself. So it sends some time rows again after a restart. They move
 * nothing, because each state partition keeps the greatest time in its state.
 *
 * @param stamp a STRUCT with the field `partition`. time: a BIGINT in microseconds, null if the record is bad. bad: null
 *     if it is good.
 */
public record EventTime(String stamp, String time, String bad) implements Serializable {
  /** Return the records, and a time row before each record that moves the time of its partition in this task. */
  public Dataset<Row> withTimeRows(Dataset<Row> records) {
    StructType columns = records.schema();
    Columns at = in(columns);
    MapPartitionsFunction<Row, Row> added = rows -> new Added(rows, at);
    return records.mapPartitions(added, Encoders.row(columns));
  }

  Columns in(StructType columns) {
    int found = columns.fieldIndex(stamp);
    int partition = ((StructType) columns.apply(found).dataType()).fieldIndex("partition");
    int reasons = ((StructType) columns.apply(bad).dataType()).size();
    return new Columns(columns.size(), found, partition, columns.fieldIndex(time), columns.fieldIndex(bad), reasons);
  }

  /** The places of the columns in a row. */
  record Columns(int size, int stamp, int partition, int time, int bad, int reasons) implements Serializable {
    boolean isBad(Row row) {
      return !row.isNullAt(bad);
    }

    /** Return whether a row is a time row. A bad record has no time. */
    boolean isTimeRow(Row row) {
      return isBad(row) && !row.isNullAt(time);
    }

    int partitionOf(Row row) {
      return row.getStruct(stamp).getInt(partition);
    }

    long timeOf(Row row) {
      return row.getLong(time);
    }

    Row timeRow(Row record) {
      Object[] values = new Object[size];
      values[stamp] = record.get(stamp);
      values[time] = record.get(time);
      values[bad] = RowFactory.create(new Object[reasons]);
      return RowFactory.create(values);
    }
  }

  /** Records with time rows before them. */
  static final class Added implements Iterator<Row> {
    private final Iterator<Row> records;
    private final Columns at;
    private final Map<Integer, Long> greatest = new HashMap<>();
    private final Queue<Row> ready = new ArrayDeque<>(2);

    Added(Iterator<Row> records, Columns at) {
      this.records = records;
      this.at = at;
    }

    @Override
    public boolean hasNext() {
      return !ready.isEmpty() || records.hasNext();
    }

    @Override
    public Row next() {
      if (ready.isEmpty()) {
        Row record = records.next();
        if (!at.isBad(record) && moves(at.partitionOf(record), at.timeOf(record))) {
          ready.add(at.timeRow(record));
        }
        ready.add(record);
      }
      return ready.remove();
    }

    private boolean moves(int partition, long time) {
      Long before = greatest.get(partition);
      if (before != null && before >= time) return false;
      greatest.put(partition, time);
      return true;
    }
  }
}
