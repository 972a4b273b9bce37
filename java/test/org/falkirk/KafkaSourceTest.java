package org.falkirk;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;

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
}
