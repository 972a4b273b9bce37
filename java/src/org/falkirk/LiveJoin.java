package org.falkirk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Joins the records of two streams: each pair is a result once, when the later of its records arrives.
 *
 * <p>Records of the two streams arrive interleaved, anew in each replay. So the order of results differs, but not their
 * set. A record is late by the time of its own source partition. All records that are not late meet all their partners: a
 * row is kept until the watermark of each partition of the other source has passed the times of its possible partners. A
 * row that then has met none is a result by itself, if the kind of the join wants it.
 *
 * <p>A record has the column of its side, with its columns. A result has both columns, or one and a null, and the stamps of
 * its records as one: see {@link Stamps}. Bad and late records are results, too; late ones have `true` in one more column.
 */
public final class LiveJoin implements Operator {
  private static final long serialVersionUID = 1L;
  /** The ends in the agenda are rounded up to this, so that many rows share one. */
  static final long GRAIN_US = 100_000;

  private static final StructType PARTITION = StructType.fromDDL("side INT, partition INT");
  private static final StructType TIME = StructType.fromDDL("time BIGINT");
  private static final StructType SIDE = StructType.fromDDL("side INT");
  private static final StructType ENDS = StructType.fromDDL("ends INT");
  /** Less than any time, even after a delay is subtracted. */
  private static final long NEVER = Long.MIN_VALUE / 2;

  private final EventTime names;
  private final String key;
  private final String side;
  private final List<String> columns;
  private final String late;
  private final JoinSpec spec;
  private transient EventTime.Columns at;
  private transient int keyAt;
  private transient int sideAt;
  private transient int[] columnAt;
  private transient Pairs pairs;
  private transient WaitingRows waiting;
  private transient Agenda.In agendas;
  private transient Table times;
  private transient Table ends;
  private transient Side[] sides;

  /**
   * @param key the STRUCT column with the key. side: the INT column with 0 for left and 1 for right records. left, right:
   *     the STRUCT columns with their columns. late: the name of the added column.
   */
  public LiveJoin(EventTime names, String key, String side, String left, String right, String late, JoinSpec spec) {
    this.names = names;
    this.key = key;
    this.side = side;
    this.columns = List.of(left, right);
    this.late = late;
    this.spec = spec;
  }

  @Override
  public StructType results(StructType records) {
    return records.add(late, "boolean");
  }

  @Override
  public void open(StructType records, Tables tables) {
    at = names.in(records);
    keyAt = records.fieldIndex(key);
    sideAt = records.fieldIndex(side);
    columnAt = columns.stream().mapToInt(records::fieldIndex).toArray();
    StructType keys = (StructType) records.apply(keyAt).dataType();
    pairs = new Pairs(spec);
    waiting = new WaitingRows(tables, keys, records.apply(at.stamp()).dataType());
    agendas = Agenda.In.of(tables, keys);
    times = tables.table("times", PARTITION, TIME);
    ends = tables.table("sizes", SIDE, ENDS);
    sides = null; // Spark's states can't be read before the first record
  }

  @Override
  public Iterator<Row> take(Row record) {
    if (at.isBad(record) && !at.isTimeRow(record)) return Collections.singleton(passed(record, false)).iterator();
    if (sides == null) sides = new Side[] {new Side(0), new Side(1)};
    Side mine = sides[record.getInt(sideAt)];
    List<Row> results = new ArrayList<>();
    if (mine.move(at.partitionOf(record), at.timeOf(record))) mine.other().close(record, results);
    if (!at.isBad(record)) meet(record, mine, results);
    return results.iterator();
  }

  private void meet(Row record, Side mine, List<Row> results) {
    Side other = mine.other();
    long time = at.timeOf(record);
    if (time < mine.times[at.partitionOf(record)] - mine.spec.delay()) {
      results.add(passed(record, true));
      return;
    }
    Row own = record.getStruct(keyAt);
    Row stamp = record.getStruct(at.stamp());
    byte[] bytes = pairs.bytes(mine.number, record.getStruct(columnAt[mine.number]));
    boolean paired = false;
    boolean hasKey = !own.anyNull();
    int count = hasKey ? waiting.count(own, other.number) : 0;
    for (int place = 0; place < count; place++) {
      WaitingRows.Waiting each = waiting.get(own, other.number, place);
      if (!pairs.is(mine.number, bytes, time, each)) continue;
      paired = true;
      results.add(pair(record, mine, stamp, bytes, each));
      if (other.spec.alone() && !each.paired()) waiting.put(own, other.number, place, each.withPartner());
    }
    long due = time + mine.spec.reach();
    if (due < other.watermark) {
      if (mine.spec.alone() && !paired) results.add(alone(record, mine.number, stamp, bytes));
    } else if (mine.spec.alone() || hasKey) {
      mine.keep(own, new WaitingRows.Waiting(stamp, time, paired, bytes), due);
    }
  }

  private Row passed(Row record, boolean isLate) {
    Object[] values = values(record);
    values[at.size()] = isLate;
    return RowFactory.create(values);
  }

  private Row pair(Row cause, Side mine, Row stamp, byte[] bytes, WaitingRows.Waiting other) {
    boolean isLeft = mine.number == 0;
    Object[] values = result(cause);
    values[at.stamp()] = isLeft
        ? Stamps.ofPair(stamp, other.stamp(), spec.first().subs())
        : Stamps.ofPair(other.stamp(), stamp, spec.first().subs());
    values[columnAt[mine.number]] = pairs.row(mine.number, bytes);
    values[columnAt[1 - mine.number]] = pairs.row(1 - mine.number, other.bytes());
    return RowFactory.create(values);
  }

  private Row alone(Row cause, int number, Row stamp, byte[] bytes) {
    Object[] values = result(cause);
    values[at.stamp()] = stamp;
    values[columnAt[number]] = pairs.row(number, bytes);
    values[columnAt[1 - number]] = null;
    return RowFactory.create(values);
  }

  private Object[] result(Row cause) {
    Object[] values = values(cause);
    values[at.bad()] = null;
    values[at.size()] = false;
    return values;
  }

  private Object[] values(Row record) {
    Object[] values = new Object[at.size() + 1];
    for (int i = 0; i < at.size(); i++) {
      values[i] = record.get(i);
    }
    return values;
  }

  /** The left or the right stream: the times of its partitions, and when its rows can make no pair any more. */
  private final class Side {
    private final int number;
    private final JoinSpec.Side spec;
    private final long[] times;
    private final Agenda agenda;
    /** The least watermark of its partitions. */
    private long watermark;

    Side(int number) {
      this.number = number;
      spec = LiveJoin.this.spec.side(number);
      times = new long[spec.partitions()];
      for (int partition = 0; partition < times.length; partition++) {
        Row found = LiveJoin.this.times.get(RowFactory.create(number, partition));
        times[partition] = found == null ? NEVER : found.getLong(0);
      }
      Row size = ends.get(RowFactory.create(number));
      agenda = new Agenda(agendas, number, size == null ? 0 : size.getInt(0));
      watermark = least() - spec.delay();
    }

    Side other() {
      return sides[1 - number];
    }

    private long least() {
      long found = Long.MAX_VALUE;
      for (long each : times) {
        found = Math.min(found, each);
      }
      return found;
    }

    /** Take in the time of a partition, and return whether the watermark has moved. */
    boolean move(int partition, long time) {
      if (time <= times[partition]) return false;
      times[partition] = time;
      LiveJoin.this.times.put(RowFactory.create(number, partition), RowFactory.create(time));
      long before = watermark;
      watermark = least() - spec.delay();
      return watermark > before;
    }

    void keep(Row own, WaitingRows.Waiting row, long due) {
      long end = due + Math.floorMod(-due, GRAIN_US);
      if (waiting.add(own, number, row, end)) {
        agenda.add(end, own);
        ends.put(RowFactory.create(number), RowFactory.create(agenda.size()));
      }
    }

    /** Remove the rows that can make no pair any more. Those that never did are results, if the join wants them. */
    void close(Row cause, List<Row> results) {
      long reached = other().watermark;
      if (agenda.first() >= reached) return;
      while (agenda.first() < reached) {
        for (Row own : agenda.removeFirst()) {
          for (WaitingRows.Waiting each : waiting.removeBefore(own, number, reached - spec.reach())) {
            if (spec.alone() && !each.paired()) results.add(alone(cause, number, each.stamp(), each.bytes()));
          }
        }
      }
      ends.put(RowFactory.create(number), RowFactory.create(agenda.size()));
    }
  }
}
