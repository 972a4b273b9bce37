package org.falkirk;

import java.io.Serializable;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * The columns of the records of a join, and of its results.
 *
 * <p>A record has the column of its side, with its columns. A result has both columns, or one and a null, and the stamps of
 * its records as one: see {@link Stamps}. Bad and late records are results, too; late ones have `true` in one more column.
 *
 * @param key the STRUCT column with the key. side: the INT column with 0 for left and 1 for right records. left, right:
 *     the STRUCT columns with their columns. late: the name of the added column.
 */
public record JoinColumns(EventTime names, String key, String side, String left, String right, String late)
    implements Serializable {
  StructType results(StructType records) {
    return records.add(late, "boolean");
  }

  In in(StructType records) {
    return new In(records, this);
  }

  /** The places of the columns in a row. */
  static final class In {
    private final StructType records;
    private final EventTime.Columns at;
    private final int key;
    private final int side;
    private final int[] rows;

    private In(StructType records, JoinColumns named) {
      this.records = records;
      at = named.names.in(records);
      key = records.fieldIndex(named.key);
      side = records.fieldIndex(named.side);
      rows = new int[] {records.fieldIndex(named.left), records.fieldIndex(named.right)};
    }

    StructType keys() {
      return (StructType) records.apply(key).dataType();
    }

    StructType columns(int number) {
      return (StructType) records.apply(rows[number]).dataType();
    }

    DataType stamps() {
      return records.apply(at.stamp()).dataType();
    }

    /** Return whether it is a record that the user's steps, or the source, have refused. It has no time. */
    boolean isRefused(Row record) {
      return at.isBad(record) && !at.isTimeRow(record);
    }

    boolean isRecord(Row record) {
      return !at.isBad(record);
    }

    int sideOf(Row record) {
      return record.getInt(side);
    }

    int partitionOf(Row record) {
      return at.partitionOf(record);
    }

    long timeOf(Row record) {
      return at.timeOf(record);
    }

    Row keyOf(Row record) {
      return record.getStruct(key);
    }

    Row stampOf(Row record) {
      return record.getStruct(at.stamp());
    }

    Row rowOf(Row record) {
      return record.getStruct(rows[sideOf(record)]);
    }

    /** Return a record that is a result by itself: a refused or a late one. */
    Row passed(Row record, boolean isLate) {
      Object[] values = values(record);
      values[at.size()] = isLate;
      return RowFactory.create(values);
    }

    /** Return a result. Args: cause: the row at which it leaves, or null. left, right: the joined rows, or one and null. */
    Row result(Row cause, Row stamp, Row left, Row right) {
      Object[] values = values(cause);
      values[at.bad()] = null;
      values[at.size()] = false;
      values[at.stamp()] = stamp;
      values[rows[0]] = left;
      values[rows[1]] = right;
      return RowFactory.create(values);
    }

    private Object[] values(Row record) {
      Object[] values = new Object[at.size() + 1];
      for (int i = 0; i < at.size() && record != null; i++) {
        values[i] = record.get(i);
      }
      return values;
    }
  }
}
