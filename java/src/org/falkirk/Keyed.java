package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** Keyed steps of a live region, which Python adds to a DataFrame. */
public final class Keyed {
  /** The seed of Spark's hash partitioning. */
  private static final int SEED = 42;

  private Keyed() {}

  /**
   * Apply an operator to the records of each state partition.
   *
   * <p>Spark groups by a number that stands for the state partition, so all keys of a state partition are one group. In
   * Real-time Mode, Spark hands over each record on its own.
   *
   * @param shard the INT column with a record's state partition.
   * @param partitions the number of state partitions.
   */
  public static Dataset<Row> apply(Dataset<Row> records, String shard, int partitions, Operator operator) {
    StructType columns = records.schema();
    int at = columns.fieldIndex(shard);
    int[] numbers = numbers(partitions);
    return records
        .groupByKey((MapFunction<Row, Integer>) record -> numbers[record.getInt(at)], Encoders.INT())
        .transformWithState(
            new KeyedProcessor(columns, operator),
            TimeMode.None(),
            OutputMode.Update(),
            Encoders.row(operator.results(columns)));
  }

  /** Return for each state partition the least number that Spark's hash partitioning sends there. */
  public static int[] numbers(int partitions) {
    int[] found = new int[partitions];
    List<Integer> open = new ArrayList<>();
    for (int partition = 0; partition < partitions; partition++) {
      open.add(partition);
    }
    for (int number = 0; !open.isEmpty(); number++) {
      Integer partition = Math.floorMod(Murmur3_x86_32.hashInt(number, SEED), partitions);
      if (open.remove(partition)) {
        found[partition] = number;
      }
    }
    return found;
  }
}
