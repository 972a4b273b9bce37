package org.falkirk;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Decides when the states of keys expire: when the watermark of their source partition has passed the key's newest record by
 * a duration.
 *
 * <p>The newest record is the one with the greatest time. The watermark is the greatest time of the partition's records so
 * far, less the delay. So whether a record finds a state depends only on the records before it in its source partition.
 */
public final class StateExpiry implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final StructType PARTITION = StructType.fromDDL("partition INT");
  private static final StructType PROGRESS = StructType.fromDDL("time BIGINT, ends INT");
  /** The time of a key's newest record, and the end under which the agenda has the key. */
  private static final StructType NEWEST = StructType.fromDDL("time BIGINT, due BIGINT");
  /** Less than any time, even after a delay is subtracted. */
  private static final long NEVER = Long.MIN_VALUE / 2;

  private final EventTime names;
  private final long delay;
  private final long after;
  private transient EventTime.Columns at;
  private transient Operator.Table progress;
  private transient Operator.Table newest;
  private transient Agenda.In agendas;
  private transient Map<Integer, Partition> partitions;

  /** Args: delay: of the watermark. after: how long a state lives without a record. Both are in microseconds. */
  public StateExpiry(EventTime names, long delay, long after) {
    this.names = names;
    this.delay = delay;
    this.after = after;
  }

  void open(StructType records, StructType keys, Operator.Tables tables) {
    at = names.in(records);
    progress = tables.table("progress", PARTITION, PROGRESS);
    newest = tables.table("newest", keys, NEWEST);
    agendas = Agenda.In.of(tables, keys);
    partitions = new HashMap<>();
  }

  boolean isTimeRow(Row record) {
    return at.isTimeRow(record);
  }

  /** Move the time of a record's source partition. Args: expired: gets the keys whose states expire by that. */
  void move(Row record, Consumer<Row> expired) {
    Partition mine = partitions.computeIfAbsent(at.partitionOf(record), Partition::new);
    if (at.timeOf(record) <= mine.time) return;
    mine.time = at.timeOf(record);
    long watermark = mine.time - delay;
    while (mine.agenda.first() <= watermark) {
      long end = mine.agenda.first();
      for (Row key : mine.agenda.removeFirst()) {
        Row found = newest.get(key);
        if (found == null || found.getLong(1) != end) continue; // another place in the agenda has replaced this one
        long due = found.getLong(0) + after;
        if (due <= watermark) {
          newest.remove(key);
          expired.accept(key);
        } else {
          newest.put(key, RowFactory.create(found.getLong(0), due));
          mine.agenda.add(due, key);
        }
      }
    }
    mine.save();
  }

  /** Return whether a record is late. Its time has been moved. */
  boolean isLate(Row record) {
    return at.timeOf(record) < partitions.get(at.partitionOf(record)).time - delay;
  }

  /** Note that the state of a key is that after a record. */
  void keep(Row key, Row record) {
    Partition mine = partitions.get(at.partitionOf(record));
    Row found = newest.get(key);
    if (found != null) {
      if (found.getLong(0) < at.timeOf(record)) {
        newest.put(key, RowFactory.create(at.timeOf(record), found.getLong(1))); // it keeps its place in the agenda
      }
      return;
    }
    long due = at.timeOf(record) + after;
    newest.put(key, RowFactory.create(at.timeOf(record), due));
    mine.agenda.add(due, key);
    mine.save();
  }

  /** Note that a key has no state any more. */
  void forget(Row key) {
    newest.remove(key);
  }

  /** A source partition: its time, and its agenda. */
  private final class Partition {
    private final int number;
    private final Agenda agenda;
    private long time = NEVER;

    Partition(int number) {
      this.number = number;
      Row found = progress.get(RowFactory.create(number));
      if (found != null) time = found.getLong(0);
      agenda = new Agenda(agendas, number, found == null ? 0 : found.getInt(1));
    }

    void save() {
      progress.put(RowFactory.create(number), RowFactory.create(time, agenda.size()));
    }
  }
}
