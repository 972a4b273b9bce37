package org.falkirk;

import java.lang.reflect.Field;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.kafka010.KafkaBatch;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaBatchReaderFactory;
import org.apache.spark.sql.kafka010.KafkaMicroBatchStream;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;
import org.apache.spark.sql.kafka010.KafkaOffsetRangeLimit;
import org.apache.spark.sql.kafka010.KafkaSourceOffset;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.kafka010.KafkaSourceProvider$;
import org.apache.spark.sql.kafka010.SpecificOffsetRangeLimit;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * Spark's Kafka source, which also reads records whose timestamps Spark can't hold: `format("org.falkirk.KafkaSource")`.
 *
 * <p>A producer may give a record any timestamp, and Kafka 4 by default accepts each one in the past. Spark counts
 * microseconds in 64 bits. It fails on a record that is too far from 1970 for that, again at each start, and there is
 * no way past the record. This source reads such a timestamp as the first millisecond of year 1, or the last one of
 * year 9999. So nobody's arithmetic overflows near the bounds of a TIMESTAMP either.
 *
 * <p>Spark makes a row of a record with a function in a private field of its reader. This source replaces the function.
 */
public final class KafkaSource extends KafkaSourceProvider {
  /** The option of a query that begins behind records that were deleted. */
  static final String SKIPS_DELETED = "skipDeleted";
  /** The option of a batch whose jobs say which offsets they read, see {@link JobEpoch}. */
  static final String OF_EPOCH = "offsetsOfJob";
  /** Options with which Spark divides the offsets of a partition among several tasks. */
  private static final Set<String> DIVIDE = Set.of("minPartitions", "maxRecordsPerPartition");
  /** The first millisecond of year 1, and the last one of year 9999, since 1970. */
  static final long FIRST_MS = -62_135_596_800_000L, LAST_MS = 253_402_300_799_999L;

  @Override
  public String shortName() {
    return "falkirk-kafka"; // Spark has another implementation of the one with the name "kafka"
  }

  @Override
  public KafkaSourceProvider.KafkaTable getTable(CaseInsensitiveStringMap options) {
    return new Topics(this, options.getBoolean("includeHeaders", false));
  }

  /** Returns a record with a timestamp that Spark can hold: the same record, unless its own is out of bounds. */
  static <K, V> ConsumerRecord<K, V> readable(ConsumerRecord<K, V> record) {
    long timestamp = Math.max(FIRST_MS, Math.min(LAST_MS, record.timestamp()));
    if (timestamp == record.timestamp()) {
      return record;
    }
    return new ConsumerRecord<>(
        record.topic(), record.partition(), record.offset(), timestamp, record.timestampType(),
        record.serializedKeySize(), record.serializedValueSize(), record.key(), record.value(), record.headers(),
        record.leaderEpoch());
  }

  private static final class Topics extends KafkaSourceProvider.KafkaTable {
    Topics(KafkaSourceProvider provider, boolean headers) {
      provider.super(headers);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      ScanBuilder sparks = super.newScanBuilder(options);
      return () -> new Records(sparks.build());
    }
  }

  private record Records(Scan sparks) implements Scan {
    @Override
    public StructType readSchema() {
      return sparks.readSchema();
    }

    @Override
    public String description() {
      return sparks.description();
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return sparks.supportedCustomMetrics();
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
      return sparks.reportDriverMetrics();
    }

    @Override
    public Batch toBatch() {
      Batch batch = sparks.toBatch();
      return new Batch() {
        @Override
        public InputPartition[] planInputPartitions() {
          if (!(batch instanceof KafkaBatch exact)) return batch.planInputPartitions();
          return isOfEpoch(exact) ? partitionsOfEpoch(exact) : partitions(exact);
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
          return new Readers();
        }
      };
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
      return new Stream((KafkaMicroBatchStream) sparks.toMicroBatchStream(checkpointLocation));
    }
  }

  /**
   * Moves the beginning of a query's batches behind records that were deleted before its start. It asks the broker for
   * them once, because each question may wait for the broker: no record is deleted that a running query has yet to read.
   * A batch that reads nothing ends where it was said to begin, so the next one has to be moved as well.
   */
  static final class Beginning {
    private final boolean skips;
    private final Supplier<Map<TopicPartition, Object>> oldest;
    private Map<TopicPartition, Object> first;

    /**
     * @param skips whether deleted records may be skipped
     * @param oldest asks the broker for the oldest offset of each partition
     */
    Beginning(boolean skips, Supplier<Map<TopicPartition, Object>> oldest) {
      this.skips = skips;
      this.oldest = oldest;
    }

    /** Returns where a batch begins. If the broker does not answer, the next batch asks it again. */
    Map<TopicPartition, Object> of(Map<TopicPartition, Object> start) {
      if (!skips) {
        return start;
      }
      if (first == null) {
        first = oldest.get();
      }
      Map<TopicPartition, Object> begin = new HashMap<>(start);
      begin.replaceAll((partition, offset) -> Math.max((Long) offset, (Long) first.getOrDefault(partition, 0L)));
      return begin;
    }
  }

  /**
   * Returns what the tasks of a job read. If its options name the first and the last offset of each partition, there is
   * nothing to ask the broker for. Spark would make a client of the broker for each job, and ask all the same.
   */
  static InputPartition[] partitions(KafkaBatch batch) {
    Map<TopicPartition, Object> first = named(of(batch, "startingOffsets")), last = named(of(batch, "endingOffsets"));
    CaseInsensitiveMap<String> options = of(batch, "sourceOptions");
    if (first.isEmpty() || !first.keySet().equals(last.keySet()) || DIVIDE.stream().anyMatch(options::contains)) {
      return batch.planInputPartitions();
    }
    Map<String, Object> client = KafkaSourceProvider.kafkaParamsForExecutors(
        of(batch, "specifiedKafkaParams"), KafkaSourceProvider$.MODULE$.batchUniqueGroupId(options));
    boolean failOnDataLoss = of(batch, "failOnDataLoss"), headers = of(batch, "includeHeaders");
    return first.keySet().stream()
        .sorted(Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition))
        .map(each -> new KafkaOffsetRange(each, (Long) first.get(each), (Long) last.get(each), Option.empty()))
        .filter(range -> range.size() > 0)
        .map(range -> new KafkaBatchInputPartition(range, client, batch.pollTimeoutMs(), failOnDataLoss, headers))
        .toArray(InputPartition[]::new);
  }

  /** Returns whether the jobs of a scan say which offsets they read. */
  static boolean isOfEpoch(Scan scan) {
    return scan instanceof Records records && records.sparks.toBatch() instanceof KafkaBatch batch && isOfEpoch(batch);
  }

  private static boolean isOfEpoch(KafkaBatch batch) {
    CaseInsensitiveMap<String> options = of(batch, "sourceOptions");
    return options.contains(OF_EPOCH);
  }

  /** Returns the partitions that the options name. The property of a job says what its tasks read of each. */
  private static InputPartition[] partitionsOfEpoch(KafkaBatch batch) {
    CaseInsensitiveMap<String> options = of(batch, "sourceOptions");
    Map<String, Object> client = KafkaSourceProvider.kafkaParamsForExecutors(
        of(batch, "specifiedKafkaParams"), KafkaSourceProvider$.MODULE$.batchUniqueGroupId(options));
    boolean failOnDataLoss = of(batch, "failOnDataLoss"), headers = of(batch, "includeHeaders");
    return named(of(batch, "startingOffsets")).keySet().stream()
        .sorted(Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition))
        .map(each -> new JobEpoch.Records(each, client, batch.pollTimeoutMs(), failOnDataLoss, headers))
        .toArray(InputPartition[]::new);
  }

  /** Returns the offsets that an option names; none if only the broker knows one of them, such as the oldest. */
  private static Map<TopicPartition, Object> named(KafkaOffsetRangeLimit limit) {
    if (!(limit instanceof SpecificOffsetRangeLimit specific)) {
      return Map.of();
    }
    Map<TopicPartition, Object> offsets = CollectionConverters.asJava(specific.partitionOffsets());
    return offsets.values().stream().allMatch(offset -> (Long) offset >= 0) ? offsets : Map.of();
  }

  private static final class Stream extends KafkaMicroBatchStream {
    private final Beginning beginning;

    Stream(KafkaMicroBatchStream of) {
      super(
          of.kafkaOffsetReader(), of(of, "executorKafkaParams"), of(of, "options"), of(of, "metadataPath"),
          of(of, "startingOffsets"), KafkaSource.<Boolean>of(of, "failOnDataLoss"));
      boolean skips = KafkaSource.<CaseInsensitiveStringMap>of(of, "options").getBoolean(SKIPS_DELETED, false);
      beginning = new Beginning(
          skips, () -> CollectionConverters.asJava(kafkaOffsetReader().fetchEarliestOffsets()));
    }

    /**
     * Returns the partitions of a batch in Real-time Mode. Its readers fail on a missing offset, whatever the option
     * {@code failOnDataLoss} says. So with the option {@code skipDeleted}, a batch begins behind them.
     */
    @Override
    public InputPartition[] planInputPartitions(Offset start) {
      Map<TopicPartition, Object> begin =
          beginning.of(CollectionConverters.asJava(((KafkaSourceOffset) start).partitionToOffsets()));
      return super.planInputPartitions(new KafkaSourceOffset(Map$.MODULE$.from(CollectionConverters.asScala(begin))));
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new Readers();
    }
  }

  /** Makes Spark's readers, with the other function. */
  private record Readers() implements PartitionReaderFactory {
    @Override
    @SuppressWarnings("unchecked")
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      InputPartition there = partition instanceof JobEpoch.Records records ? records.now() : partition;
      if (there == null) return new JobEpoch.Nothing();
      PartitionReader<InternalRow> reader = KafkaBatchReaderFactory.createReader(there);
      try {
        Field toRow = field(reader.getClass(), "unsafeRowProjector");
        toRow.set(reader, new ToRow((Function1<ConsumerRecord<byte[], byte[]>, UnsafeRow>) toRow.get(reader)));
      } catch (IllegalAccessException error) {
        throw new IllegalStateException(error);
      }
      return reader;
    }
  }

  private static final class ToRow extends AbstractFunction1<ConsumerRecord<byte[], byte[]>, UnsafeRow> {
    private final Function1<ConsumerRecord<byte[], byte[]>, UnsafeRow> sparks;

    ToRow(Function1<ConsumerRecord<byte[], byte[]>, UnsafeRow> sparks) {
      this.sparks = sparks;
    }

    @Override
    public UnsafeRow apply(ConsumerRecord<byte[], byte[]> record) {
      return sparks.apply(readable(record));
    }
  }

  @SuppressWarnings("unchecked")
  private static <T> T of(Object sparks, String name) {
    try {
      return (T) field(sparks.getClass(), name).get(sparks);
    } catch (IllegalAccessException error) {
      throw new IllegalStateException(error);
    }
  }

  private static Field field(Class<?> of, String name) {
    try {
      Field found = of.getDeclaredField(name);
      found.setAccessible(true);
      return found;
    } catch (NoSuchFieldException error) {
      throw new IllegalStateException("this version of Spark's Kafka source is not known to Falkirk", error);
    }
  }
}
