package org.falkirk;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap$;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.kafka010.EarliestOffsetRangeLimit$;
import org.apache.spark.sql.kafka010.KafkaBatch;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;
import org.apache.spark.sql.kafka010.KafkaOffsetRangeLimit;
import org.apache.spark.sql.kafka010.LatestOffsetRangeLimit$;
import org.apache.spark.sql.kafka010.SpecificOffsetRangeLimit;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** A timestamp that Spark can't hold is read as the nearest one of the years 1 to 9999, and nothing else changes. */
public final class KafkaSourceTest {
    private static ConsumerRecord<String, String> record(long timestamp) {
        RecordHeaders headers = new RecordHeaders();
        headers.add("h", new byte[] {1});
        return new ConsumerRecord<>(
                "t", 3, 17, timestamp, TimestampType.CREATE_TIME, 1, 1, "k", "v", headers, Optional.of(5));
    }

    public void aTimestampWithinBoundsIsTheSameRecord() {
        for (long timestamp : List.of(KafkaSource.FIRST_MS, -1L, 0L, 1_800_000_000_000L, KafkaSource.LAST_MS)) {
            ConsumerRecord<String, String> record = record(timestamp);
            Check.equal(KafkaSource.readable(record) == record, true);
        }
    }

    public void aTimestampOutOfBoundsIsTheNearestOneWithin() {
        for (long far : List.of(1L, 1L << 20, 1L << 40, Long.MAX_VALUE - KafkaSource.LAST_MS)) {
            ConsumerRecord<String, String> after = KafkaSource.readable(record(KafkaSource.LAST_MS + far));
            Check.equal(after.timestamp(), KafkaSource.LAST_MS);
            Check.equal(KafkaSource.readable(record(KafkaSource.FIRST_MS - far)).timestamp(), KafkaSource.FIRST_MS);
            ConsumerRecord<String, String> same = record(KafkaSource.LAST_MS);
            Check.equal(after.toString(), same.toString());
            Check.equal(after.headers(), same.headers());
        }
        Check.equal(KafkaSource.readable(record(Long.MIN_VALUE)).timestamp(), KafkaSource.FIRST_MS);
    }

    private static final TopicPartition FIRST = new TopicPartition("t", 0), SECOND = new TopicPartition("t", 1);

    /** A question per batch would stop the thread of the stream while the broker is away. */
    public void theFirstBatchAloneAsksForTheOldestRecords() {
        int[] asked = {0};
        KafkaSource.Beginning beginning = new KafkaSource.Beginning(true, () -> {
            asked[0]++;
            return Map.of(FIRST, 7L, SECOND, 0L);
        });
        Check.equal(beginning.of(Map.of(FIRST, 3L, SECOND, 5L)), Map.of(FIRST, 7L, SECOND, 5L));
        // the first batch has read nothing, so the second one begins there again
        Check.equal(beginning.of(Map.of(FIRST, 3L, SECOND, 5L)), Map.of(FIRST, 7L, SECOND, 5L));
        for (long batch = 1; batch < 4; batch++) {
            Map<TopicPartition, Object> start = Map.of(FIRST, 7 + batch, SECOND, 5 + batch);
            Check.equal(beginning.of(start), start);
        }
        Check.equal(asked[0], 1);
    }

    public void aBatchAsksAgainIfTheBrokerDidNotAnswer() {
        int[] asked = {0};
        KafkaSource.Beginning beginning = new KafkaSource.Beginning(true, () -> {
            if (asked[0]++ == 0) {
                throw new IllegalStateException("away");
            }
            return Map.of(FIRST, 7L);
        });
        Check.thrown(IllegalStateException.class, () -> beginning.of(Map.of(FIRST, 3L)));
        Check.equal(beginning.of(Map.of(FIRST, 3L)), Map.of(FIRST, 7L));
    }

    public void aQueryThatSkipsNothingDoesNotAsk() {
        KafkaSource.Beginning beginning = new KafkaSource.Beginning(false, () -> {
            throw new IllegalStateException("asked");
        });
        Check.equal(beginning.of(Map.of(FIRST, 3L)), Map.of(FIRST, 3L));
    }

    /** A job; a question to the broker is an error, because there is no way to ask one. */
    private static KafkaBatch job(KafkaOffsetRangeLimit first, KafkaOffsetRangeLimit last, String... options) {
        Map<String, String> given = new HashMap<>(Map.of("kafkaConsumer.pollTimeoutMs", "1"));
        for (String option : options) {
            given.put(option, "2");
        }
        scala.collection.immutable.Map<String, String> all = Map$.MODULE$.from(CollectionConverters.asScala(given));
        return new KafkaBatch(null, CaseInsensitiveMap$.MODULE$.apply(all), Map$.MODULE$.empty(), true, first, last, true);
    }

    private static KafkaOffsetRangeLimit at(Map<TopicPartition, Object> offsets) {
        return new SpecificOffsetRangeLimit(Map$.MODULE$.from(CollectionConverters.asScala(offsets)));
    }

    public void aJobThatNamesItsOffsetsAsksNoBroker() {
        TopicPartition third = new TopicPartition("t", 2);
        InputPartition[] read = KafkaSource.partitions(
                job(at(Map.of(third, 4L, SECOND, 5L, FIRST, 3L)), at(Map.of(third, 9L, SECOND, 5L, FIRST, 7L))));
        Check.equal(read.length, 2);
        Check.equal(((KafkaBatchInputPartition) read[0]).offsetRange(), new KafkaOffsetRange(FIRST, 3, 7, Option.empty()));
        Check.equal(((KafkaBatchInputPartition) read[1]).offsetRange(), new KafkaOffsetRange(third, 4, 9, Option.empty()));
        Check.equal(((KafkaBatchInputPartition) read[0]).failOnDataLoss(), true);
        Check.equal(((KafkaBatchInputPartition) read[0]).includeHeaders(), true);
    }

    public void aJobThatDoesNotNameAllOffsetsAsksTheBroker() {
        KafkaOffsetRangeLimit oldest = EarliestOffsetRangeLimit$.MODULE$, newest = LatestOffsetRangeLimit$.MODULE$;
        KafkaOffsetRangeLimit both = at(Map.of(FIRST, 1L, SECOND, 1L)), one = at(Map.of(FIRST, 1L));
        KafkaOffsetRangeLimit oldestOfOne = at(Map.of(FIRST, 1L, SECOND, -2L));
        List<KafkaBatch> asking = List.of(
                job(oldest, newest), job(oldest, both), job(both, newest), job(one, both), job(oldestOfOne, both),
                job(both, both, "minPartitions"), job(both, both, "maxRecordsPerPartition"));
        for (KafkaBatch job : asking) {
            Check.thrown(NullPointerException.class, () -> KafkaSource.partitions(job));
        }
    }
}
