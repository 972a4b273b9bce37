package org.falkirk;

import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/** The open windows of keys, with the buffers of their aggregates. A window is open until a watermark reaches its end. */
abstract class OpenWindows {
  /** A window of a key: [start, end) in microseconds. */
  record Window(long start, long end, byte[] buffers) {}

  /** Schedules a window: the time at which it is due may be before its end. */
  interface Agendas {
    void add(long end, Row key);
  }

  /** The columns of a window's value, after its key and its start. */
  static final StructType VALUE = StructType.fromDDL("end BIGINT, due BIGINT, partition INT, buffers BINARY");

  private static final int TEXT_MAX = 200;

  final Aggregates aggregates;
  private final Operator.Table open;

  OpenWindows(Aggregates aggregates, StructType keys, Operator.Tables tables) {
    this.aggregates = aggregates;
    open = tables.table("open", new StructType().add("key", keys).add("start", "bigint"), VALUE);
  }

  /** Add a record to its windows, and return them in the order of their starts. None: it is late for all of them. */
  abstract List<Window> add(Row key, int partition, long time, Row record, long watermark, Agendas agenda);

  /** Return the windows of a key that end at an end of the agenda, and forget them. */
  abstract List<Window> close(Row key, long end, Agendas agenda);

  /** Add a window that another epoch has left. */
  void restore(Row key, Window window) {
    put(key, window, window.end, 0);
  }

  /** Forget a window without the agenda. */
  void forget(Row key, Window window) {
    remove(key, window.start);
  }

  final Row get(Row key, long start, int partition) {
    Row found = open.get(RowFactory.create(key, start));
    if (found != null && found.getInt(2) != partition) {
      throw new IllegalStateException(splitKey(found.getInt(2), partition, key));
    }
    return found;
  }

  final Row get(Row key, long start) {
    return open.get(RowFactory.create(key, start));
  }

  final void put(Row key, Window window, long due, int partition) {
    open.put(
        RowFactory.create(key, window.start), RowFactory.create(window.end, due, partition, window.buffers));
  }

  final void remove(Row key, long start) {
    open.remove(RowFactory.create(key, start));
  }

  /** Return the text of the error if one key comes from two source partitions. Python knows its form. */
  static String splitKey(int before, int now, Row key) {
    String text = key.toString().replace('\n', ' ');
    String shown = text.substring(0, Math.min(TEXT_MAX, text.length()));
    return FirstOfKey.SPLIT_KEY + "|" + Math.min(before, now) + "|" + Math.max(before, now) + "|" + shown;
  }
}
