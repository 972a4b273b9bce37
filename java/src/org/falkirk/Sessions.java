package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Sessions: series of a key's records, each with its gap after it. A record may join two sessions.
 *
 * <p>A session's end moves with its records, but not its place in the agenda. When that place is due, the session closes,
 * or it gets a place at its present end.
 */
final class Sessions extends OpenWindows {
  private final WindowSpec spec;
  private final Operator.Table starts;

  Sessions(WindowSpec spec, StructType keys, Operator.Tables tables) {
    super(spec.aggregates(), keys, tables);
    this.spec = spec;
    starts = tables.table("starts", new StructType().add("key", keys), StructType.fromDDL("starts ARRAY<BIGINT>"));
  }

  @Override
  List<Window> add(Row key, int partition, long time, Row record, long watermark, Agendas agenda) {
    if (time + spec.size() <= watermark) return List.of();
    long start = time;
    long end = time + spec.size();
    long due = Long.MAX_VALUE;
    byte[] buffers = null;
    List<Long> mine = startsOf(key);
    List<Long> others = new ArrayList<>();
    for (long each : mine) {
      Row before = get(key, each, partition);
      boolean meets = each <= time + spec.size() && time <= before.getLong(0) && before.getLong(0) > watermark;
      if (!meets) {
        others.add(each);
        continue;
      }
      start = Math.min(start, each);
      end = Math.max(end, before.getLong(0));
      due = Math.min(due, before.getLong(1));
      byte[] more = before.getAs(3);
      buffers = buffers == null ? more : aggregates.merged(buffers, more);
      remove(key, each);
    }
    if (buffers == null) {
      due = end;
      agenda.add(end, key);
    }
    Window window = new Window(start, end, aggregates.updated(buffers == null ? aggregates.initial() : buffers, record));
    put(key, window, due, partition);
    others.add(start);
    others.sort(null);
    if (!others.equals(mine)) save(key, others);
    return List.of(window);
  }

  @Override
  List<Window> close(Row key, long end, Agendas agenda) {
    List<Window> closed = new ArrayList<>();
    List<Long> open = new ArrayList<>();
    for (long start : startsOf(key)) {
      Row found = get(key, start);
      Window window = new Window(start, found.getLong(0), found.getAs(3));
      if (found.getLong(1) == end && window.end() == end) {
        closed.add(window);
        remove(key, start);
        continue;
      }
      open.add(start);
      if (found.getLong(1) == end) {
        put(key, window, window.end(), found.getInt(2));
        agenda.add(window.end(), key);
      }
    }
    if (!closed.isEmpty()) save(key, open);
    return closed;
  }

  @Override
  void restore(Row key, Window window) {
    super.restore(key, window);
    List<Long> mine = new ArrayList<>(startsOf(key));
    mine.add(window.start());
    mine.sort(null);
    save(key, mine);
  }

  @Override
  void forget(Row key, Window window) {
    super.forget(key, window);
    save(key, startsOf(key).stream().filter(each -> each != window.start()).toList());
  }

  private List<Long> startsOf(Row key) {
    Row found = starts.get(RowFactory.create(key));
    return found == null ? List.of() : found.getList(0);
  }

  private void save(Row key, List<Long> sorted) {
    if (sorted.isEmpty()) {
      starts.remove(RowFactory.create(key));
    } else {
      starts.put(RowFactory.create(key), RowFactory.create(Scala.<Long>seq(sorted)));
    }
  }
}
