package org.falkirk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.StructType;

/**
 * Joins each record of a stream, the left side, with the newest version of its key in a table, the right side, that is not
 * later than the record.
 *
 * <p>A record waits until the watermark of each partition of the table has passed it. Then all versions that are not late
 * and not later have arrived, so its result is a function of both inputs, in whichever order they arrive. The order of
 * results is not. Of versions with the same time, the one with the greatest stamp is the newest.
 *
 * <p>A version is kept as long as a record that waits, or that is not late when it arrives, can need it. None of these is
 * older than the *floor*: the lesser of both watermarks.
 */
public final class AsOfJoin implements TimedJoin {
  private static final long serialVersionUID = 1L;
  private static final int STREAM = 0;
  private static final int TABLE = 1;

  private final JoinColumns columns;
  private final JoinSpec.Side stream;
  private final JoinSpec.Side table;
  private transient JoinColumns.In in;
  private transient StoredRows[] stored;
  private transient WaitingRows waiting;
  private transient Versions versions;
  private transient Agenda.Sized agendas;
  private transient Table times;
  private transient SideTimes[] sides;
  private transient Agenda due;

  /** Args: stream, table: the sides. The reach of the table limits how much older a version than its record may be. */
  public AsOfJoin(JoinColumns columns, JoinSpec.Side stream, JoinSpec.Side table) {
    this.columns = columns;
    this.stream = stream;
    this.table = table;
  }

  @Override
  public StructType results(StructType records) {
    return columns.results(records);
  }

  @Override
  public void open(StructType records, Tables tables) {
    in = columns.in(records);
    stored = new StoredRows[] {new StoredRows(in.columns(STREAM)), new StoredRows(in.columns(TABLE))};
    waiting = new WaitingRows(tables, in.keys(), in.stamps());
    agendas = Agenda.Sized.of(tables, in.keys());
    versions = new Versions(tables, in.keys(), in.stamps(), table.reach());
    times = SideTimes.table(tables);
    sides = null; // Spark's states can't be read before the first record
  }

  @Override
  public Iterator<Row> take(Row record) {
    if (in.isRefused(record)) return Collections.singleton(in.passed(record, false)).iterator();
    begin();
    int number = in.sideOf(record);
    List<Row> results = new ArrayList<>();
    if (sides[number].move(in.partitionOf(record), in.timeOf(record))) {
      if (number == TABLE) leave(record, results);
      if (versions.drop(floor())) agendas.write(TABLE, versions.agenda());
    }
    if (!in.isRecord(record)) return results.iterator();
    if (sides[number].isLate(in.partitionOf(record), in.timeOf(record))) {
      results.add(in.passed(record, true));
    } else if (number == TABLE) {
      keep(record);
    } else {
      look(record, results);
    }
    return results.iterator();
  }

  @Override
  public long watermark() {
    begin();
    return floor();
  }

  @Override
  public Iterator<Row> pass(long watermark) {
    begin();
    if (sides[STREAM].pass(watermark) && versions.drop(floor())) agendas.write(TABLE, versions.agenda());
    return Collections.emptyIterator();
  }

  private void begin() {
    if (sides != null) return;
    sides = new SideTimes[] {new SideTimes(times, STREAM, stream), new SideTimes(times, TABLE, table)};
    due = agendas.read(STREAM);
    versions.begin(agendas.read(TABLE));
  }

  private long floor() {
    return Math.min(sides[STREAM].watermark(), sides[TABLE].watermark());
  }

  private void keep(Row record) {
    Row key = in.keyOf(record);
    if (key.anyNull()) return;
    byte[] bytes = stored[TABLE].bytes(in.rowOf(record));
    Versions.Version version = new Versions.Version(in.stampOf(record), in.timeOf(record), bytes);
    if (versions.add(key, version, floor())) agendas.write(TABLE, versions.agenda());
  }

  private void look(Row record, List<Row> results) {
    Row key = in.keyOf(record);
    long time = in.timeOf(record);
    byte[] bytes = stored[STREAM].bytes(in.rowOf(record));
    WaitingRows.Waiting row = new WaitingRows.Waiting(in.stampOf(record), time, false, bytes);
    if (key.anyNull() || time < sides[TABLE].watermark()) {
      join(record, key, row, results);
    } else if (waiting.add(key, STREAM, row, time)) {
      due.add(time, key);
      agendas.write(STREAM, due);
    }
  }

  /** Join the records that the watermark of the table has passed. */
  private void leave(Row cause, List<Row> results) {
    long reached = sides[TABLE].watermark();
    if (due.first() >= reached) return;
    while (due.first() < reached) {
      for (Row key : due.removeFirst()) {
        waiting.removeBefore(key, STREAM, reached).forEach(each -> join(cause, key, each, results));
      }
    }
    agendas.write(STREAM, due);
  }

  private void join(Row cause, Row key, WaitingRows.Waiting row, List<Row> results) {
    Versions.Version found = key.anyNull() ? null : versions.asOf(key, row.time());
    Row own = stored[STREAM].row(row.bytes());
    if (found != null) {
      Row stamp = Stamps.ofPair(row.stamp(), found.stamp(), stream.subs());
      results.add(in.result(cause, stamp, own, stored[TABLE].row(found.bytes())));
    } else if (stream.alone()) {
      results.add(in.result(cause, row.stamp(), own, null));
    }
  }
}
