package org.falkirk;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * The times of the partitions of one side of a join, and its watermark: the least of them, less the delay. If the side is
 * the results of another join, it has the watermark of that one, and no result is late.
 */
final class SideTimes {
  /** Less than any time, even after a delay is subtracted. */
  private static final long NEVER = Long.MIN_VALUE / 2;

  private final Operator.Table table;
  private final int number;
  private final long delay;
  private final boolean isOfJoin;
  private final long[] times;
  private long watermark;

  /** Args: table: of `table`. number: of the side. */
  SideTimes(Operator.Table table, int number, JoinSpec.Side side) {
    this.table = table;
    this.number = number;
    delay = side.delay();
    isOfJoin = side.isOfJoin();
    times = new long[isOfJoin ? 1 : side.partitions()];
    for (int partition = 0; partition < times.length; partition++) {
      Row found = table.get(RowFactory.create(number, partition));
      times[partition] = found == null ? NEVER : found.getLong(0);
    }
    watermark = least() - delay;
  }

  static Operator.Table table(Operator.Tables tables) {
    return tables.table(
        "times", StructType.fromDDL("side INT, partition INT"), StructType.fromDDL("time BIGINT"));
  }

  long watermark() {
    return watermark;
  }

  /** Return whether a record is late, by the time of its own partition. */
  boolean isLate(int partition, long time) {
    return !isOfJoin && time < times[partition] - delay;
  }

  /** Take in the time of a partition, and return whether the watermark has moved. */
  boolean move(int partition, long time) {
    return !isOfJoin && set(partition, time);
  }

  /** Take in the watermark of the join whose results these are, and return whether it has moved. */
  boolean pass(long reached) {
    return set(0, reached);
  }

  private boolean set(int partition, long time) {
    if (time <= times[partition]) return false;
    times[partition] = time;
    table.put(RowFactory.create(number, partition), RowFactory.create(time));
    long before = watermark;
    watermark = least() - delay;
    return watermark > before;
  }

  private long least() {
    long found = Long.MAX_VALUE;
    for (long each : times) {
      found = Math.min(found, each);
    }
    return found;
  }
}
