package org.falkirk;

import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;

/** The property of a job names the offsets of its epoch. */
public final class JobEpochTest {
    private static final String EPOCH = "12 a.b/0/5/9 a.b/1/7/7 b/11/3/4";

    public void aRangeIsThatOfItsPartition() {
        KafkaOffsetRange range = JobEpoch.range(EPOCH, new TopicPartition("a.b", 0));
        Check.equal(range.fromOffset(), 5L);
        Check.equal(range.untilOffset(), 9L);
        Check.equal(JobEpoch.range(EPOCH, new TopicPartition("a.b", 1)).size(), 0L);
        Check.equal(JobEpoch.range(EPOCH, new TopicPartition("b", 11)).fromOffset(), 3L);
    }

    /** Offsets of another partition would be other records. */
    public void aPartitionThatIsNotNamedIsRefused() {
        for (TopicPartition other : new TopicPartition[] {
            new TopicPartition("b", 1), new TopicPartition("b", 0), new TopicPartition("a", 0), new TopicPartition(".b", 0)
        }) {
            Check.thrown(IllegalStateException.class, () -> JobEpoch.range(EPOCH, other));
        }
    }

    public void withoutAJobThereIsNoEpoch() {
        Check.thrown(IllegalStateException.class, JobEpoch::told);
    }
}
