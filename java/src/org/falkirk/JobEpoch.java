package org.falkirk;

import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;

/**
 * The epoch that a job computes: its number, and the offsets that it reads of each partition.
 *
 * <p>They are a property of the job, and tasks read them from it. So the plan has none of them, and serves all epochs of
 * a batch. The property is the number, and "topic/partition/first/last" for each partition, with spaces between them.
 */
public final class JobEpoch {
  static final String PROPERTY = "falkirk.epoch";

  private JobEpoch() {}

  /** Returns the number of the epoch as a column STRING. Spark must not compute it before the job runs. */
  public static Column number() {
    return ExpressionUtils.column(new StaticInvoke(
        JobEpoch.class, DataTypes.StringType, "told", Scala.seq(List.of()), Scala.seq(List.of()), false, false, false,
        Option.empty()));
  }

  /** Returns the number of the epoch whose job this task belongs to. */
  public static UTF8String told() {
    String epoch = property();
    return UTF8String.fromString(epoch.substring(0, epoch.indexOf(' ')));
  }

  private static String property() {
    TaskContext task = TaskContext.get();
    String epoch = task == null ? null : task.getLocalProperty(PROPERTY);
    if (epoch == null) throw new IllegalStateException("this plan belongs to an epoch, and its job names none");
    return epoch;
  }

  /** Returns the offsets of a partition in a property: [first, last). */
  static KafkaOffsetRange range(String epoch, TopicPartition of) {
    String wanted = of.topic() + "/" + of.partition() + "/";
    for (String part : epoch.split(" ")) {
      if (part.startsWith(wanted)) {
        String[] offsets = part.substring(wanted.length()).split("/");
        return new KafkaOffsetRange(of, Long.parseLong(offsets[0]), Long.parseLong(offsets[1]), Option.empty());
      }
    }
    throw new IllegalStateException("the epoch says nothing of partition " + of);
  }

  /** The records of a partition in the epoch of the job. The other parts are as of Spark's partitions. */
  record Records(
      TopicPartition of, Map<String, Object> client, long pollTimeoutMs, boolean failOnDataLoss, boolean headers)
      implements InputPartition {
    /** Returns the partition as Spark reads it; null if the epoch has no records of it. Only a task can call this. */
    KafkaBatchInputPartition now() {
      KafkaOffsetRange range = range(property(), of);
      return range.size() == 0
          ? null
          : new KafkaBatchInputPartition(range, client, pollTimeoutMs, failOnDataLoss, headers);
    }
  }

  /** A reader without records. */
  static final class Nothing implements PartitionReader<InternalRow> {
    @Override
    public boolean next() {
      return false;
    }

    @Override
    public InternalRow get() {
      throw new IllegalStateException("there is no record");
    }

    @Override
    public void close() {}
  }
}
