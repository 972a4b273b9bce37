package org.falkirk;

import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Keeps the first record of each key within a time: `dropDuplicates` after `withWatermark`.
 *
 * <p>A record is late if it is older than the time of its source partition less the delay. The record itself counts for
 * the time. A key is known until a copy of its first record would be late. So a record is a result if it is not late and
 * its key is not known. Both depend only on the records before it in its source partition.
 *
 * <p>A result is the record with one more column, which is true for a late record. Bad records are results as they are. For
 * a further operator with event time, so are time rows.
 *
 * <p>Known keys are also kept in a queue per source partition. With each record, at most two expired keys at its head are
 * deleted. So no record waits for the deletion of many, and the queue can't outgrow them.
 */
public final class FirstOfKey implements Operator {
  private static final long serialVersionUID = 1L;
  /** The text of the error if one key comes from two source partitions. Python knows it. */
  static final String SPLIT_KEY = "FALKIRK_CO_PARTITIONING";

  private static final int DELETED_MAX = 2;
  private static final int TEXT_MAX = 200;
  private static final StructType PARTITION = StructType.fromDDL("partition INT");
  private static final StructType PROGRESS = StructType.fromDDL("time BIGINT, head BIGINT, tail BIGINT");
  private static final StructType FIRST = StructType.fromDDL("time BIGINT, partition INT, place BIGINT");
  private static final StructType PLACE = StructType.fromDDL("partition INT, place BIGINT");

  private final EventTime names;
  private final String key;
  private final String late;
  private final long delay;
  private final boolean passesTime;
  private transient EventTime.Columns at;
  private transient int keyAt;
  private transient Table progress;
  private transient Table known;
  private transient Table queue;
  private transient Map<Integer, Progress> partitions;

  /**
   * @param key the STRUCT column with the key. late: the name of the added column.
   * @param delay in microseconds.
   */
  public FirstOfKey(EventTime names, String key, String late, long delay) {
    this(names, key, late, delay, false);
  }

  private FirstOfKey(EventTime names, String key, String late, long delay, boolean passesTime) {
    this.names = names;
    this.key = key;
    this.late = late;
    this.delay = delay;
    this.passesTime = passesTime;
  }

  @Override
  public boolean usesTime() {
    return true;
  }

  @Override
  public Operator passingTime() {
    return new FirstOfKey(names, key, late, delay, true);
  }

  @Override
  public StructType results(StructType records) {
    return records.add(late, "boolean");
  }

  @Override
  public void open(StructType records, Tables tables) {
    at = names.in(records);
    keyAt = records.fieldIndex(key);
    StructType keys = (StructType) records.apply(keyAt).dataType();
    progress = tables.table("progress", PARTITION, PROGRESS);
    known = tables.table("known", keys, FIRST);
    queue = tables.table("queue", PLACE, new StructType().add("key", keys).add("time", "bigint"));
    partitions = new HashMap<>();
  }

  @Override
  public Iterator<Row> take(Row record) {
    if (at.isBad(record) && !at.isTimeRow(record)) return one(record, false);
    int partition = at.partitionOf(record);
    long time = at.timeOf(record);
    Progress mine = partitions.computeIfAbsent(partition, this::restored);
    boolean moved = time > mine.time;
    mine.time = Math.max(mine.time, time);
    Iterator<Row> results = Collections.emptyIterator();
    boolean changed = moved;
    if (!at.isBad(record)) {
      if (time < mine.time - delay) {
        results = one(record, true);
      } else if (isFirst(record.getStruct(keyAt), time, partition, mine)) {
        results = one(record, false);
        changed = true;
      }
    } else if (passesTime) {
      results = one(record, false);
    }
    changed |= deleteExpired(partition, mine);
    if (changed) progress.put(RowFactory.create(partition), RowFactory.create(mine.time, mine.head, mine.tail));
    return results;
  }

  private boolean isFirst(Row wanted, long time, int partition, Progress mine) {
    Row first = known.get(wanted);
    if (first != null) {
      int other = first.getInt(1);
      if (other != partition) throw new IllegalStateException(splitKey(other, partition, wanted));
      if (first.getLong(0) >= mine.time - delay) return false;
    }
    known.put(wanted, RowFactory.create(time, partition, mine.tail));
    queue.put(RowFactory.create(partition, mine.tail), RowFactory.create(wanted, time));
    mine.tail++;
    return true;
  }

  private boolean deleteExpired(int partition, Progress mine) {
    int deleted = 0;
    while (deleted < DELETED_MAX && mine.head < mine.tail) {
      Row place = RowFactory.create(partition, mine.head);
      Row oldest = queue.get(place);
      if (oldest.getLong(1) >= mine.time - delay) break;
      Row first = known.get(oldest.getStruct(0));
      if (first != null && first.getLong(2) == mine.head) known.remove(oldest.getStruct(0)); // else it is a newer one
      queue.remove(place);
      mine.head++;
      deleted++;
    }
    return deleted > 0;
  }

  private Progress restored(int partition) {
    Row found = progress.get(RowFactory.create(partition));
    return found == null ? new Progress() : new Progress(found.getLong(0), found.getLong(1), found.getLong(2));
  }

  private static Iterator<Row> one(Row record, boolean late) {
    Object[] values = new Object[record.size() + 1];
    for (int i = 0; i < record.size(); i++) {
      values[i] = record.get(i);
    }
    values[record.size()] = late;
    return Collections.singleton(RowFactory.create(values)).iterator();
  }

  static String splitKey(int before, int now, Row key) {
    String text = key.toString().replace('\n', ' ');
    String shown = text.substring(0, Math.min(TEXT_MAX, text.length()));
    return SPLIT_KEY + "|" + Math.min(before, now) + "|" + Math.max(before, now) + "|" + shown;
  }

  /** The time of a source partition, and the ends of its queue. */
  private static final class Progress {
    /** Less than any time, even after a delay is subtracted. */
    private static final long NEVER = Long.MIN_VALUE / 2;

    private long time = NEVER;
    private long head;
    private long tail;

    private Progress() {}

    private Progress(long time, long head, long tail) {
      this.time = time;
      this.head = head;
      this.tail = tail;
    }
  }
}
