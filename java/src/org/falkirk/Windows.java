package org.falkirk;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Aggregates the records of each key by windows of their times: `groupBy(window(…), …).agg(…)` after `withWatermark`.
 *
 * <p>A record is late for a window if the window's end is not after the watermark of the record's source partition. It is
 * late if that holds for all its windows. A window of a key closes when the watermark reaches its end. So the record that
 * closes a window, and the windows that it closes, depend only on the records up to it in its source partition.
 *
 * <p>A result has the columns of its record, {@link #COLUMNS}, the key, and the aggregates. Results of a window that closes
 * have the stamp of the record that moved the time. Bad and late records are results, too.
 */
public final class Windows implements Operator {
  private static final long serialVersionUID = 1L;
  /** Whether the record is late, the window, and the place of the result among those with the same stamp. */
  static final StructType COLUMNS = StructType.fromDDL("late BOOLEAN, start BIGINT, end BIGINT, place INT");

  private static final StructType PARTITION = StructType.fromDDL("partition INT");
  private static final StructType PROGRESS = StructType.fromDDL("time BIGINT, ends INT");
  /** Less than any time, even after a delay is subtracted. */
  private static final long NEVER = Long.MIN_VALUE / 2;

  private final EventTime names;
  private final String key;
  private final String prefix;
  private final WindowSpec spec;
  private transient EventTime.Columns at;
  private transient int keyAt;
  private transient KeyBytes keyBytes;
  private transient OpenWindows windows;
  private transient Agenda.In agendas;
  private transient Table progress;
  private transient Map<Integer, Partition> partitions;

  /** Args: key: the STRUCT column with the key. prefix: begins the names of the added columns. */
  public Windows(EventTime names, String key, String prefix, WindowSpec spec) {
    this.names = names;
    this.key = key;
    this.prefix = prefix;
    this.spec = spec;
  }

  @Override
  public boolean usesTime() {
    return true;
  }

  @Override
  public StructType results(StructType records) {
    StructType columns = records.asNullable(); // the result of a window has no values of a record
    for (var each : COLUMNS.fields()) {
      columns = columns.add(prefix + each.name(), each.dataType());
    }
    return columns.add(prefix + "values", spec.aggregates().results());
  }

  @Override
  public void open(StructType records, Tables tables) {
    at = names.in(records);
    keyAt = records.fieldIndex(key);
    StructType keys = (StructType) records.apply(keyAt).dataType();
    keyBytes = new KeyBytes(keys);
    progress = tables.table("progress", PARTITION, PROGRESS);
    agendas = Agenda.In.of(tables, keys);
    windows = spec.open(keys, records, tables);
    partitions = new HashMap<>();
  }

  @Override
  public Iterator<Row> take(Row record) {
    if (at.isBad(record) && !at.isTimeRow(record)) return passed(record, false);
    Partition mine = partitions.computeIfAbsent(at.partitionOf(record), Partition::new);
    mine.move(at.timeOf(record));
    Closing closing = new Closing(record, mine);
    if (spec.updates()) closing.forEachRemaining(each -> {});
    if (at.isBad(record)) return closing;
    int ends = mine.agenda.size();
    Row own = record.getStruct(keyAt);
    List<OpenWindows.Window> found =
        windows.add(own, mine.number, at.timeOf(record), record, mine.watermark(), mine.agenda::add);
    if (mine.agenda.size() != ends) mine.save();
    if (found.isEmpty()) return passed(record, true);
    if (!spec.updates()) return closing;
    List<Row> results = new ArrayList<>();
    for (OpenWindows.Window each : found) {
      results.add(result(record, own, each, results.size()));
    }
    return results.iterator();
  }

  /** Return a record as it is. */
  private Iterator<Row> passed(Row record, boolean late) {
    Object[] values = values(record);
    values[record.size()] = late;
    values[record.size() + 3] = 0;
    return Collections.singleton(RowFactory.create(values)).iterator();
  }

  private Row result(Row record, Row own, OpenWindows.Window window, int place) {
    Object[] values = values(null);
    values[at.stamp()] = record.get(at.stamp());
    values[keyAt] = own;
    Object[] added = {false, window.start(), window.end(), place, spec.aggregates().evaluated(window.buffers())};
    System.arraycopy(added, 0, values, at.size(), added.length);
    return RowFactory.create(values);
  }

  private Object[] values(Row record) {
    Object[] values = new Object[at.size() + COLUMNS.size() + 1];
    for (int i = 0; record != null && i < at.size(); i++) {
      values[i] = record.get(i);
    }
    return values;
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

    long watermark() {
      return time - spec.delay();
    }

    void move(long to) {
      if (to <= time) return;
      time = to;
      save();
    }

    void save() {
      progress.put(RowFactory.create(number), RowFactory.create(time, agenda.size()));
    }
  }

  /** The results of the windows that a row closes, in the order of their ends, and for one end of their keys' bytes. */
  private final class Closing implements Iterator<Row> {
    private final Row cause;
    private final Partition mine;
    private final long watermark;
    private final Queue<Row> keys = new ArrayDeque<>();
    private final Queue<Row> ready = new ArrayDeque<>();
    private long end;
    private int place;

    Closing(Row cause, Partition mine) {
      this.cause = cause;
      this.mine = mine;
      watermark = mine.watermark();
    }

    @Override
    public boolean hasNext() {
      while (ready.isEmpty()) {
        if (!keys.isEmpty()) {
          close(keys.remove());
        } else if (mine.agenda.first() <= watermark) {
          end = mine.agenda.first();
          List<Row> found = mine.agenda.removeFirst();
          found.sort(keyBytes.order());
          keys.addAll(found);
          mine.save();
        } else {
          return false;
        }
      }
      return true;
    }

    private void close(Row own) {
      int ends = mine.agenda.size();
      for (OpenWindows.Window each : windows.close(own, end, mine.agenda::add)) {
        ready.add(spec.updates() ? cause : result(cause, own, each, place++));
      }
      if (mine.agenda.size() != ends) mine.save();
    }

    @Override
    public Row next() {
      hasNext();
      return ready.remove();
    }
  }
}
