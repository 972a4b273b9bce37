package org.falkirk;

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;

/**
 * Writes the results of a live region to Kafka: Spark's `foreach` calls it in each task of the query.
 *
 * <p>Rows: topic STRING, partition INT, key BINARY, value BINARY, header BINARY. Each task has one {@link Lane}, whose
 * producer outlives the batches. When a task of a batch ends without an error, its records are visible to readers. Spark
 * commits the batch after that. A task may have a second lane, for dead letters alone, which it opens at the first one.
 */
public final class KafkaWriter extends ForeachWriter<Row> {
  private static final long serialVersionUID = 1L;

  private final LaneSettings settings;
  /** The settings of the lanes for dead letters, and their topic. Null: dead letters take the lane of results. */
  private LaneSettings letters;
  private String lettersTopic;
  private boolean bySource;

  private transient int number;
  private transient long batch;
  private transient Lane lane, lettersLane;
  /** Twins without a state: the lanes that this task has taken, by the source partition of its records. */
  private transient Map<Integer, Lane> taken;
  private transient Figures figures;

  /**
   * @param region names the region; `incarnation` numbers its starts.
   * @param lanes the number of tasks.
   * @param headerKey the key of the one header of each record.
   * @param producer the options of the producers.
   */
  public KafkaWriter(String region, int incarnation, int lanes, String headerKey, Map<String, String> producer) {
    this.settings = new LaneSettings(region, incarnation, lanes, headerKey, producer);
  }

  /**
   * Publish in transactions.
   *
   * @param ids the prefix of the lanes' transactional ids.
   * @param gate the transactional id that tells which incarnation is current, see {@link Gate}.
   * @param token the gate's token of this incarnation.
   * @param commitMs a transaction ends when its first record is this old.
   */
  public KafkaWriter fenced(String ids, String gate, String token, long commitMs) {
    settings.fence = new LaneSettings.Fence(ids, gate, token, commitMs);
    return this;
  }

  /**
   * Give the dead letters lanes of their own, as another writer has them for its results.
   *
   * @param topic of the dead letters.
   */
  public KafkaWriter withLetters(String topic, KafkaWriter writer) {
    letters = writer.settings;
    lettersTopic = topic;
    return this;
  }

  /**
   * Send each result once, although two queries compute it.
   *
   * @param bySource a lane belongs to a source partition. Without a shuffle, the two queries may number their tasks
   *     differently.
   */
  public KafkaWriter twins(boolean bySource) {
    settings.twins = true;
    this.bySource = bySource;
    return this;
  }

  @Override
  public boolean open(long partition, long epoch) {
    number = (int) partition;
    batch = epoch;
    taken = new HashMap<>();
    if (!bySource) lane = Lanes.take(settings, number, batch);
    if (letters != null) Lanes.visit(letters, number, batch);
    figures = Figures.of(settings.region);
    return true;
  }

  @Override
  public void process(Row row) {
    ProducerRecord<byte[], byte[]> record =
        new ProducerRecord<>(row.getString(0), row.getInt(1), (byte[]) row.get(2), (byte[]) row.get(3));
    byte[] header = (byte[]) row.get(4);
    record.headers().add(settings.headerKey, header);
    if (settings.twins) {
      Stamp stamp = Header.decode(header).stamp();
      Lane own = bySource ? laneOf((int) stamp.partition()) : lane;
      own.sendOnce(record, stamp, figures.arrivedMs(header));
    } else {
      laneOf(record.topic()).send(record, figures.arrivedMs(header));
    }
  }

  private Lane laneOf(int partition) {
    return taken.computeIfAbsent(partition, of -> Lanes.take(settings, of, batch));
  }

  private Lane laneOf(String topic) {
    if (letters == null || !topic.equals(lettersTopic)) return lane;
    if (lettersLane == null) lettersLane = Lanes.take(letters, number, batch);
    return lettersLane;
  }

  @Override
  public void close(Throwable error) {
    if (taken == null) return; // it was not opened
    if (lane != null) taken.put(-1, lane);
    if (lettersLane != null) taken.put(-2, lettersLane);
    try {
      if (error == null) taken.values().forEach(Lane::finish);
    } finally {
      taken.values().forEach(Lane::leave);
      lane = lettersLane = null;
      taken = null;
    }
  }
}
