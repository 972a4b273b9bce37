package org.falkirk;

import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;

/**
 * Drops the results of a query that only warms a standby up. It opens no lane, so it has no producer and fences nobody.
 *
 * <p>It reads each row as {@link KafkaWriter} does, so that the code up to there is compiled.
 */
public final class MutedWriter extends ForeachWriter<Row> {
  private static final long serialVersionUID = 1L;

  @Override
  public boolean open(long partition, long epoch) {
    return true;
  }

  @Override
  public void process(Row row) {
    ProducerRecord<byte[], byte[]> record =
        new ProducerRecord<>(row.getString(0), row.getInt(1), (byte[]) row.get(2), (byte[]) row.get(3));
    record.headers().add("", (byte[]) row.get(4));
  }

  @Override
  public void close(Throwable error) {
    // There is nothing to close.
  }
}
