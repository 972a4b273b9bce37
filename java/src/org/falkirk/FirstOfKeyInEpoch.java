package org.falkirk;

import java.util.Iterator;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Keeps the first record of each key within a time in one epoch of a micro-batch: see {@link FirstOfKey}.
 *
 * <p>Rows are sorted by key, and those of a key by their stamps, after the key's state, if it has one. Their columns:
 *
 * <ul>
 *   <li>key STRUCT;
 *   <li>known STRUCT: in a state, the time and the partition (source, partition) of the key's first record, and the time of
 *       that partition;
 *   <li>time, greatest BIGINT; source STRING, partition INT: the time of a record, the time of its partition, and its
 *       partition;
 *   <li>row STRUCT: the future result; letter STRING: the dead letter of a late record, else null.
 * </ul>
 */
public final class FirstOfKeyInEpoch {
  private static final StructType KNOWN = StructType.fromDDL("time BIGINT, source STRING, partition INT");
  private static final StructType LETTER = StructType.fromDDL("key STRING, value STRING");

  private FirstOfKeyInEpoch() {}

  /**
   * Return rows of three kinds: a `result`, a `letter`, and the `state` of a key, each in the column of its name.
   *
   * @param kind the name of the column with the kind. delay: in microseconds.
   */
  public static Dataset<Row> of(Dataset<Row> sorted, String kind, long delay) {
    StructType columns = sorted.schema();
    StructType state = new StructType().add("key", columns.apply("key").dataType()).add("known", KNOWN);
    StructType found = new StructType()
        .add(kind, "string")
        .add("result", columns.apply("row").dataType())
        .add("state", state)
        .add("letter", LETTER);
    MapPartitionsFunction<Row, Row> first = rows -> new Found(rows, delay);
    return sorted.mapPartitions(first, Encoders.row(found));
  }

  /** The first record of a key, and the time of its partition. */
  private record Known(long time, String source, int partition, long greatest) {
    boolean isOf(Row record) {
      return source.equals(record.getString(4)) && partition == record.getInt(5);
    }
  }

  static final class Found extends RowsByKey {
    private final long delay;
    private Known known;

    Found(Iterator<Row> rows, long delay) {
      super(rows);
      this.delay = delay;
    }

    @Override
    void take(Row row) {
      if (!row.isNullAt(1)) {
        Row state = row.getStruct(1);
        known = new Known(state.getLong(0), state.getString(1), state.getInt(2), state.getLong(3));
      } else if (!row.isNullAt(7)) {
        give(RowFactory.create("letter", null, null, RowFactory.create(null, row.getString(7))));
      } else {
        record(row);
      }
    }

    private void record(Row row) {
      long time = row.getLong(2);
      long greatest = row.getLong(3);
      if (known != null) {
        long passed = known.isOf(row) ? greatest : known.greatest;
        known = new Known(known.time, known.source, known.partition, passed);
      }
      if (known == null || known.time < known.greatest - delay) {
        known = new Known(time, row.getString(4), row.getInt(5), greatest);
        give(RowFactory.create("result", row.getStruct(6), null, null));
      }
    }

    @Override
    void end(Row last) {
      if (known != null) {
        Row state = RowFactory.create(known.time, known.source, known.partition);
        give(RowFactory.create("state", null, RowFactory.create(last.getStruct(0), state), null));
      }
      known = null;
    }
  }
}
