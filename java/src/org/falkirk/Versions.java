package org.falkirk;

import java.util.Comparator;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * The versions of the keys of a table, each from its time until that of the next one, or until it is too old.
 *
 * <p>A version is dropped when no record at or after a floor can need it. A key has one place in the agenda: when its oldest
 * version may be dropped. A place that a change has made wrong does nothing when it is due.
 */
final class Versions {
  /** A version. Of several with the same time, the one with the greatest stamp is the newest. */
  record Version(Row stamp, long time, byte[] bytes) {
    private static final Comparator<Version> ORDER = Comparator.comparingLong(Version::time)
        .thenComparing(Version::stamp, Stamps::compare);
  }

  /** Where the versions of a key are: the place of the oldest, their count, and the place in the agenda. */
  private record Head(long first, int count, long end) {
    Row row() {
      return RowFactory.create(first, count, end);
    }
  }

  private static final long NONE = Long.MAX_VALUE;

  private final Operator.Table heads;
  private final Operator.Table rows;
  private final long reach;
  private Agenda agenda;

  /** Args: reach: a version is this much older than its record at most. */
  Versions(Operator.Tables tables, StructType keys, DataType stamp, long reach) {
    StructType key = new StructType().add("key", keys);
    heads = tables.table("table", key, StructType.fromDDL("first BIGINT, count INT, end BIGINT"));
    rows = tables.table(
        "versions",
        key.add("place", "bigint"),
        new StructType().add("stamp", stamp).add("time", "bigint").add("row", "binary"));
    this.reach = reach;
  }

  /** Begin with the agenda of former batches. */
  void begin(Agenda former) {
    agenda = former;
  }

  Agenda agenda() {
    return agenda;
  }

  /** Return the newest version that is not later than a time, or null. */
  Version asOf(Row key, long time) {
    Head head = head(key);
    long low = head.first;
    long high = head.first + head.count;
    Version found = null;
    for (long place = high - 1; low < high; place = (low + high) / 2) { // the last one first: most records are new
      Version each = get(key, place);
      if (each.time <= time) {
        found = each;
        low = place + 1;
      } else {
        high = place;
      }
    }
    return found == null || time - found.time > reach ? null : found;
  }

  /** Add a version, and return whether the agenda has changed. */
  boolean add(Row key, Version version, long floor) {
    Head head = head(key);
    long place = head.first + head.count;
    for (; place > head.first; place--) {
      Version before = get(key, place - 1);
      if (Version.ORDER.compare(before, version) < 0) break;
      put(key, place, before);
    }
    put(key, place, version);
    return settle(key, new Head(head.first, head.count + 1, head.end), floor);
  }

  /** Drop the versions that no record at or after a floor can need, and return whether there were any. */
  boolean drop(long floor) {
    if (agenda.first() > floor) return false;
    while (agenda.first() <= floor) {
      long end = agenda.first();
      for (Row key : agenda.removeFirst()) {
        Head head = head(key);
        if (head.end == end) settle(key, new Head(head.first, head.count, NONE), floor);
      }
    }
    return true;
  }

  /** Drop what can be dropped of a key, and enter its next place. Return whether the agenda has changed. */
  private boolean settle(Row key, Head head, long floor) {
    long first = head.first;
    int count = head.count;
    long due = due(key, first, count);
    for (; count > 0 && due <= floor; due = due(key, first, count)) {
      rows.remove(RowFactory.create(key, first));
      first++;
      count--;
    }
    if (count == 0) {
      heads.remove(RowFactory.create(key));
      return false;
    }
    long end = due == NONE ? NONE : due + Math.floorMod(-due, LiveJoin.GRAIN_US);
    boolean isEarlier = end < head.end;
    heads.put(RowFactory.create(key), new Head(first, count, isEarlier ? end : head.end).row());
    if (isEarlier) agenda.add(end, key);
    return isEarlier;
  }

  /** Return the least floor at which the oldest version of a key is not needed. */
  private long due(Row key, long first, int count) {
    if (count == 0) return NONE;
    long next = count > 1 ? get(key, first + 1).time : NONE;
    return reach == JoinSpec.UNBOUNDED ? next : Math.min(next, get(key, first).time + reach + 1);
  }

  private Head head(Row key) {
    Row found = heads.get(RowFactory.create(key));
    return found == null ? new Head(0, 0, NONE) : new Head(found.getLong(0), found.getInt(1), found.getLong(2));
  }

  private Version get(Row key, long place) {
    Row found = rows.get(RowFactory.create(key, place));
    return new Version(found.getStruct(0), found.getLong(1), found.getAs(2));
  }

  private void put(Row key, long place, Version version) {
    rows.put(RowFactory.create(key, place), RowFactory.create(version.stamp, version.time, version.bytes));
  }
}
