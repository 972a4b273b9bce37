package org.falkirk;

import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructType;

/**
 * Decides when the states of keys expire, and when their timers fire.
 *
 * <p>A timer fires when the watermark of its source partition has reached its time. A state without a timer expires when the
 * watermark has reached the time of the key's newest record plus a duration. The watermark is the greatest time of the
 * partition's records so far, less the delay. So the timers that fire and the states that expire before a record depend
 * only on the records up to it in its source partition.
 *
 * <p>Timers by the clock have one time for all keys of a state partition: that of the newest time row, which may be before
 * the last one, because clocks are set back. Records move no time then, and none is late.
 *
 * <p>A key has one place in the agenda that counts, under the end that {@link #NEWEST} names. Its state may be due later:
 * then the key moves when that end has come. If it is due earlier, another place replaces the first one.
 */
public final class StateTimes implements Serializable {
  private static final long serialVersionUID = 1L;
  /** In place of the time of a timer: the timer stays as it is; there is none. */
  static final long KEPT = Long.MIN_VALUE;
  static final long NONE = Long.MIN_VALUE + 1;

  private static final StructType PARTITION = StructType.fromDDL("partition INT");
  private static final StructType PROGRESS = StructType.fromDDL("time BIGINT, ends INT");
  /** The time of a key's newest record, and the end under which the agenda has the key. */
  private static final StructType NEWEST = StructType.fromDDL("time BIGINT, due BIGINT");
  /** Less than any time, even after a delay is subtracted. */
  private static final long NEVER = Long.MIN_VALUE / 2;
  /** The end of a key that has no place in the agenda. */
  private static final long FOREVER = Long.MAX_VALUE;
  /** In place of the source partition, if timers are by the clock. */
  private static final int CLOCK = 0;

  private final EventTime names;
  private final long delay;
  private final long after;
  private final boolean timers;
  private final boolean isByClock;
  private transient EventTime.Columns at;
  private transient ExpressionEncoder.Serializer<Row> keyBytes;
  private transient Operator.Table progress;
  private transient Operator.Table newest;
  private transient Agenda.In agendas;
  private transient Map<Integer, Partition> partitions;

  /**
   * @param delay of the watermark, in microseconds.
   * @param after how long a state lives without a record, in microseconds; negative: for ever.
   * @param timers whether keys have timers.
   */
  public StateTimes(EventTime names, long delay, long after, boolean timers) {
    this(names, delay, after, timers, false);
  }

  private StateTimes(EventTime names, long delay, long after, boolean timers, boolean isByClock) {
    this.names = names;
    this.delay = delay;
    this.after = after;
    this.timers = timers;
    this.isByClock = isByClock;
  }

  /** Return the times of states that do not expire, and whose timers are by the clock. */
  public static StateTimes byClock(EventTime names) {
    return new StateTimes(names, 0, -1, true, true);
  }

  void open(StructType records, StructType keys, Operator.Tables tables) {
    at = names.in(records);
    keyBytes = ExpressionEncoder.apply(keys).createSerializer();
    progress = tables.table("progress", PARTITION, PROGRESS);
    newest = tables.table("newest", keys, timers ? NEWEST.add("timer", "bigint") : NEWEST);
    agendas = Agenda.In.of(tables, keys);
    partitions = new HashMap<>();
  }

  /** A key whose timer fires at a time, or whose state expires. */
  record Due(Row key, long time, boolean isTimer) {}

  boolean isTimeRow(Row record) {
    return at.isTimeRow(record);
  }

  /** Move the time of a record's source partition. Then {@link #next} returns the due keys. */
  void move(Row record) {
    if (isByClock && !isTimeRow(record)) return;
    Partition mine = partitionOf(record);
    if (isByClock ? at.timeOf(record) == mine.time : at.timeOf(record) <= mine.time) return;
    mine.time = at.timeOf(record);
    mine.save();
  }

  private Partition partitionOf(Row row) {
    return partitions.computeIfAbsent(isByClock ? CLOCK : at.partitionOf(row), Partition::new);
  }

  /**
   * Return the first key that is due in the source partition of a row, or null: in the order of times, and for one time of
   * the keys' bytes. It has no timer any more, or is forgotten if its state expires.
   */
  Due next(Row cause) {
    Partition mine = partitionOf(cause);
    while (true) {
      while (!mine.keys.isEmpty()) {
        Due due = mine.due(mine.keys.remove());
        if (due != null) return due;
      }
      if (mine.agenda.first() > mine.time - delay) return null;
      mine.end = mine.agenda.first();
      mine.keys.addAll(timers ? sorted(mine.agenda.removeFirst()) : mine.agenda.removeFirst());
      mine.save();
    }
  }

  /** Return keys in the order of their bytes. */
  private List<Row> sorted(List<Row> keys) {
    record Sorted(byte[] bytes, Row key) {}
    return keys.stream()
        .map(key -> new Sorted(((UnsafeRow) keyBytes.apply(key)).copy().getBytes(), key))
        .sorted((one, other) -> Arrays.compareUnsigned(one.bytes, other.bytes))
        .map(Sorted::key)
        .toList();
  }

  /** Return whether a record is late. Its time has been moved. */
  boolean isLate(Row record) {
    return !isByClock && at.timeOf(record) < partitionOf(record).time - delay;
  }

  /** Return the place of a call among those that a source record causes here. They are numbered from 0. */
  int turn(Row cause) {
    Partition mine = partitionOf(cause);
    Row stamp = cause.getStruct(at.stamp());
    if (!stamp.equals(mine.stamp)) mine.turns = 0;
    mine.stamp = stamp;
    return mine.turns++;
  }

  /** Note that the state of a key is that after a record. Args: timer: its new timer, {@link #KEPT} or {@link #NONE}. */
  void keep(Row key, Row record, long timer) {
    keep(key, partitionOf(record), isByClock ? NEVER : at.timeOf(record), timer);
  }

  /** Note that the state of a key is that after its timer has fired. Args: cause: the row that moved the time. */
  void keepAfterTimer(Row key, Row cause, long timer) {
    keep(key, partitionOf(cause), NEVER, timer);
  }

  private void keep(Row key, Partition mine, long time, long change) {
    Entry before = entry(key);
    long timer = !timers ? NONE : change != KEPT ? change : before == null ? NONE : before.timer;
    if (after < 0 && timer == NONE) {
      if (before != null) newest.remove(key);
      return;
    }
    long due = before == null ? FOREVER : before.due;
    Entry now = new Entry(before == null ? time : Math.max(before.time, time), due, timer);
    if (wanted(now) < due) now = mine.placed(key, now);
    if (!now.equals(before)) put(key, now);
  }

  /** Note that a key has no state any more. */
  void forget(Row key) {
    newest.remove(key);
  }

  /** The time of a key's newest record, the end under which the agenda has it, and its timer. */
  private record Entry(long time, long due, long timer) {}

  private Entry entry(Row key) {
    Row found = newest.get(key);
    if (found == null) return null;
    return new Entry(found.getLong(0), found.getLong(1), timers ? found.getLong(2) : NONE);
  }

  private void put(Row key, Entry entry) {
    newest.put(key, timers
        ? RowFactory.create(entry.time, entry.due, entry.timer)
        : RowFactory.create(entry.time, entry.due));
  }

  private long wanted(Entry entry) {
    if (entry.timer != NONE) return entry.timer;
    return after < 0 ? FOREVER : entry.time + after;
  }

  /** A source partition: its time, its agenda, and the keys of the end that has come. */
  private final class Partition {
    private final int number;
    private final Agenda agenda;
    private final Queue<Row> keys = new ArrayDeque<>();
    private long time = NEVER;
    private long end;
    private Row stamp;
    private int turns;

    Partition(int number) {
      this.number = number;
      Row found = progress.get(RowFactory.create(number));
      if (found != null) time = found.getLong(0);
      agenda = new Agenda(agendas, number, found == null ? 0 : found.getInt(1));
    }

    /** Return a key that is due at the end that has come, or null. */
    Due due(Row key) {
      Entry found = entry(key);
      if (found == null || found.due != end) return null; // another place in the agenda has replaced this one
      long wanted = wanted(found);
      if (wanted > end) {
        put(key, placed(key, found));
        return null;
      }
      if (found.timer == NONE || after < 0) {
        newest.remove(key);
      } else {
        put(key, new Entry(found.time, FOREVER, NONE));
      }
      return new Due(key, wanted, found.timer != NONE);
    }

    /** Give a key a place in the agenda, and return its entry with that. */
    Entry placed(Row key, Entry entry) {
      long wanted = wanted(entry);
      agenda.add(wanted, key);
      save();
      return new Entry(entry.time, wanted, entry.timer);
    }

    void save() {
      progress.put(RowFactory.create(number), RowFactory.create(time, agenda.size()));
    }
  }
}
