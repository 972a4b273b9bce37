package org.falkirk;

import java.util.List;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
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
}
