package org.falkirk;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;

/**
 * Writes the results of a live region to Kafka: Spark's `foreach` calls it in each task of the query.
 *
 * <p>Rows: topic STRING, partition INT, key BINARY, value BINARY, header BINARY. Each task of a fenced writer and of
 * twins has a {@link Lane}, and the tasks of others share one. Its producer outlives the batches. When a task of a batch ends without
 * an error, its records are visible to readers. Spark commits the batch after that. A task may have a second lane, for
 * dead letters alone, which it opens at the first one.
 */
public final class KafkaWriter extends ForeachWriter<Row> {
  private static final long serialVersionUID = 1L;
  /** The oldest timestamp that a held record gets. Brokers may refuse older ones, and no wait of hours is worth that. */
  private static final long OLDEST_MS = 3_600_000;

  private final LaneSettings settings;
  /** The settings of the lanes for dead letters, and their topic. Null: dead letters take the lane of results. */
  private LaneSettings letters;
  private String lettersTopic;
  private boolean bySource;
  private int joins;
  /** The log in which results wait for their release. Null: the region has none. */
  private String heldLog;

  private transient int number;
  private transient long batch;
  /**
   * The lanes that this task has taken, by their number: its own or, of twins without a state, that of the record's source
   * partition.
   */
  private transient Map<Integer, Lane> taken, takenForLetters;
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
   * Send each result once, although two queries compute it. Call it last.
   *
   * @param bySource a lane belongs to a source partition. Without a shuffle, the two queries may number their tasks
   *     differently.
   */
  public KafkaWriter twins(boolean bySource) {
    settings.twins = true;
    if (letters != null) letters.twins = true;
    this.bySource = bySource;
    return this;
  }

  /** Set how many joins the query has. The stamps of its results name a record for each, besides the first one. */
  public KafkaWriter joined(int joins) {
    this.joins = joins;
    return this;
  }

  /**
   * Give each record of this log the timestamp of the record that caused it, if this JVM knows it. So the job that copies
   * a result to its topic can measure the whole latency. Nothing in such a log expires by its timestamp.
   */
  public KafkaWriter holding(String log) {
    heldLog = log;
    return this;
  }

  @Override
  public boolean open(long partition, long epoch) {
    number = (int) partition;
    batch = epoch;
    taken = new HashMap<>();
    takenForLetters = new HashMap<>();
    if (!bySource) laneOf(settings, taken, number);
    if (letters != null) Lanes.visit(letters, number, batch);
    figures = Figures.of(settings.region);
    figures.joined(joins);
    return true;
  }

  @Override
  public void process(Row row) {
    byte[] header = (byte[]) row.get(4);
    String topic = row.getString(0);
    long cause = figures.cause(header);
    Long atMs = topic.equals(heldLog) ? heldAtMs(cause, System.currentTimeMillis()) : null; // null: the present time
    ProducerRecord<byte[], byte[]> record =
        new ProducerRecord<>(topic, row.getInt(1), atMs, (byte[]) row.get(2), (byte[]) row.get(3));
    record.headers().add(settings.headerKey, header);
    if (settings.twins) {
      Stamp stamp = Header.decode(header).stamp();
      Lane lane = laneOf(topic, bySource ? (int) stamp.partition() : number);
      lane.sendOnce(record, stamp, cause);
    } else {
      laneOf(topic, number).send(record, cause);
    }
  }

  /** Returns the timestamp of a held record, between an hour ago and now; null: its cause is not known. */
  static Long heldAtMs(long cause, long nowMs) {
    return cause < 0 ? null : Long.valueOf(Math.max(nowMs - OLDEST_MS, Math.min(cause, nowMs)));
  }

  private Lane laneOf(String topic, int of) {
    if (letters == null || !topic.equals(lettersTopic)) {
      return laneOf(settings, taken, of);
    }
    return laneOf(letters, takenForLetters, of);
  }

  private Lane laneOf(LaneSettings settings, Map<Integer, Lane> taken, int of) {
    return taken.computeIfAbsent(settings.isShared() ? 0 : of, each -> Lanes.take(settings, each, batch));
  }

  @Override
  public void close(Throwable error) {
    if (taken == null) return; // it was not opened
    List<Lane> lanes = new ArrayList<>(taken.values());
    lanes.addAll(takenForLetters.values());
    try {
      if (error == null) lanes.forEach(Lane::finish);
    } finally {
      lanes.forEach(Lane::leave);
      taken = takenForLetters = null;
    }
  }
}
