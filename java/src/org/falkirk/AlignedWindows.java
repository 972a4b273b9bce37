package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.StructType;

/** Tumbling and sliding windows: all have the same size, and start at multiples of the slide after an offset. */
final class AlignedWindows extends OpenWindows {
  private final WindowSpec spec;

  AlignedWindows(WindowSpec spec, StructType keys, Operator.Tables tables) {
    super(spec.aggregates(), keys, tables);
    this.spec = spec;
  }

  @Override
  List<Window> add(Row key, int partition, long time, Row record, long watermark, Agendas agenda) {
    List<Window> found = new ArrayList<>();
    long last = time - Math.floorMod(time - spec.offset(), spec.slide());
    long first = last - (spec.size() - 1) / spec.slide() * spec.slide();
    for (long start = first; start <= last; start += spec.slide()) {
      long end = start + spec.size();
      if (end <= time || end <= watermark) continue;
      Row before = get(key, start, partition);
      if (before == null) agenda.add(end, key);
      byte[] buffers = before == null ? aggregates.initial() : before.<byte[]>getAs(3);
      Window window = new Window(start, end, aggregates.updated(buffers, record));
      put(key, window, end, partition);
      found.add(window);
    }
    return found;
  }

  @Override
  List<Window> close(Row key, long end, Agendas agenda) {
    long start = end - spec.size();
    Window window = new Window(start, end, get(key, start).getAs(3));
    remove(key, start);
    return List.of(window);
  }
}
