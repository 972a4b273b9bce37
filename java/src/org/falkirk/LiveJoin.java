package org.falkirk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.StructType;

/**
 * Joins the records of two streams: each pair is a result once, when the later of its records arrives.
 *
 * <p>Records of the two streams arrive interleaved, anew in each replay. So the order of results differs, but not their
 * set. A record is late by the time of its own source partition. All records that are not late meet all their partners: a
 * row is kept until the watermark of each partition of the other source has passed the times of its possible partners. A
 * row that then has met none is a result by itself, if the kind of the join wants it.
 */
public final class LiveJoin implements TimedJoin {
  private static final long serialVersionUID = 1L;
  /** The ends in the agenda are rounded up to this, so that many rows share one. */
  static final long GRAIN_US = 100_000;

  private final JoinColumns columns;
  private final JoinSpec spec;
  private transient JoinColumns.In in;
  private transient Pairs pairs;
  private transient WaitingRows waiting;
  private transient Agenda.Sized agendas;
  private transient Table times;
  private transient Side[] sides;

  public LiveJoin(JoinColumns columns, JoinSpec spec) {
    this.columns = columns;
    this.spec = spec;
  }

  @Override
  public StructType results(StructType records) {
    return columns.results(records);
  }

  @Override
  public void open(StructType records, Tables tables) {
    in = columns.in(records);
    pairs = new Pairs(spec);
    waiting = new WaitingRows(tables, in.keys(), in.stamps());
    agendas = Agenda.Sized.of(tables, in.keys());
    times = SideTimes.table(tables);
    sides = null; // Spark's states can't be read before the first record
  }

  @Override
  public Iterator<Row> take(Row record) {
    if (in.isRefused(record)) return Collections.singleton(in.passed(record, false)).iterator();
    begin();
    Side mine = sides[in.sideOf(record)];
    List<Row> results = new ArrayList<>();
    if (mine.times.move(in.partitionOf(record), in.timeOf(record))) mine.other().close(record, results);
    if (in.isRecord(record)) meet(record, mine, results);
    return results.iterator();
  }

  /** A left row meets a partner, or leaves without one, before the times of its possible partners have passed. */
  @Override
  public long watermark() {
    begin();
    long rounded = spec.first().alone() ? GRAIN_US : 0;
    return Math.min(sides[0].times.watermark(), sides[1].times.watermark() - spec.first().reach() - rounded);
  }

  @Override
  public Iterator<Row> pass(long watermark) {
    begin();
    List<Row> results = new ArrayList<>();
    if (sides[0].times.pass(watermark)) sides[1].close(null, results);
    return results.iterator();
  }

  private void begin() {
    if (sides == null) sides = new Side[] {new Side(0), new Side(1)};
  }

  private void meet(Row record, Side mine, List<Row> results) {
    Side other = mine.other();
    long time = in.timeOf(record);
    if (mine.times.isLate(in.partitionOf(record), time)) {
      results.add(in.passed(record, true));
      return;
    }
    Row own = in.keyOf(record);
    Row stamp = in.stampOf(record);
    byte[] bytes = pairs.bytes(mine.number, in.rowOf(record));
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
    if (due < other.times.watermark()) {
      if (mine.spec.alone() && !paired) results.add(alone(record, mine.number, stamp, bytes));
    } else if (mine.spec.alone() || hasKey) {
      mine.keep(own, new WaitingRows.Waiting(stamp, time, paired, bytes), due);
    }
  }

  private Row pair(Row cause, Side mine, Row stamp, byte[] bytes, WaitingRows.Waiting other) {
    Row own = pairs.row(mine.number, bytes);
    Row theirs = pairs.row(1 - mine.number, other.bytes());
    int subs = spec.first().subs();
    return mine.number == 0
        ? in.result(cause, Stamps.ofPair(stamp, other.stamp(), subs), own, theirs)
        : in.result(cause, Stamps.ofPair(other.stamp(), stamp, subs), theirs, own);
  }

  private Row alone(Row cause, int number, Row stamp, byte[] bytes) {
    Row own = pairs.row(number, bytes);
    return number == 0 ? in.result(cause, stamp, own, null) : in.result(cause, stamp, null, own);
  }

  /** The left or the right stream: the times of its partitions, and when its rows can make no pair any more. */
  private final class Side {
    private final int number;
    private final JoinSpec.Side spec;
    private final SideTimes times;
    private final Agenda agenda;

    Side(int number) {
      this.number = number;
      spec = LiveJoin.this.spec.side(number);
      times = new SideTimes(LiveJoin.this.times, number, spec);
      agenda = agendas.read(number);
    }

    Side other() {
      return sides[1 - number];
    }

    void keep(Row own, WaitingRows.Waiting row, long due) {
      long end = due + Math.floorMod(-due, GRAIN_US);
      if (waiting.add(own, number, row, end)) {
        agenda.add(end, own);
        agendas.write(number, agenda);
      }
    }

    /** Remove the rows that can make no pair any more. Those that never did are results, if the join wants them. */
    void close(Row cause, List<Row> results) {
      long reached = other().times.watermark();
      if (agenda.first() >= reached) return;
      while (agenda.first() < reached) {
        for (Row own : agenda.removeFirst()) {
          for (WaitingRows.Waiting each : waiting.removeBefore(own, number, reached - spec.reach())) {
            if (spec.alone() && !each.paired()) results.add(alone(cause, number, each.stamp(), each.bytes()));
          }
        }
      }
      agendas.write(number, agenda);
    }
  }
}
