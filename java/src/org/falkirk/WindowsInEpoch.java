package org.falkirk;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Aggregates the records of each key by windows in one epoch of a micro-batch: see {@link Windows}.
 *
 * <p>Rows are sorted by key, and those of a key by their stamps, after the key's open windows. Their columns:
 *
 * <ul>
 *   <li>key STRUCT;
 *   <li>open STRUCT: the start, the end and the buffers of an open window;
 *   <li>time, greatest BIGINT: the time of a record, and the time by which it may be late;
 *   <li>after BIGINT: the time that closes windows at the end of the epoch;
 *   <li>origin STRUCT: the source partition whose time it is, which stays with the window;
 *   <li>row STRUCT: the columns of a record.
 * </ul>
 */
public final class WindowsInEpoch {
  /** The columns of a result and of a state, after the key. */
  private static final StructType BOUNDS = StructType.fromDDL("start BIGINT, end BIGINT");

  private WindowsInEpoch() {}

  /**
   * Return rows of three kinds: a `result`, the `letter` of a late record, and the `state` of an open window, each in the
   * column of its name.
   *
   * @param kind the name of the column with the kind.
   */
  public static Dataset<Row> of(Dataset<Row> sorted, String kind, WindowSpec spec) {
    StructType columns = sorted.schema();
    StructType keyed = new StructType().add("key", columns.apply("key").dataType());
    for (var each : BOUNDS.fields()) {
      keyed = keyed.add(each);
    }
    StructType found = new StructType()
        .add(kind, "string")
        .add("result", keyed.add("values", spec.aggregates().results()))
        .add("state", keyed.add("buffers", "binary").add("origin", columns.apply("origin").dataType()))
        .add("letter", columns.apply("row").dataType());
    MapPartitionsFunction<Row, Row> made = rows -> new Found(rows, spec, columns);
    return sorted.mapPartitions(made, Encoders.row(found));
  }

  static final class Found extends RowsByKey {
    private final WindowSpec spec;
    private final Map<String, Map<Object, Row>> tables = new HashMap<>();
    private final OpenWindows windows;

    Found(Iterator<Row> rows, WindowSpec spec, StructType columns) {
      super(rows);
      this.spec = spec;
      StructType keys = (StructType) columns.apply("key").dataType();
      windows = spec.open(keys, (StructType) columns.apply("row").dataType(), this::table);
    }

    /** Return a table for the present key alone. So the last column of the table's key is enough. */
    private Operator.Table table(String name, StructType key, StructType value) {
      Map<Object, Row> mine = tables.computeIfAbsent(name, each -> new HashMap<>());
      int at = key.size() - 1;
      return new Operator.Table() {
        private Object part(Row wanted) {
          return at == 0 ? 0 : wanted.get(at);
        }

        @Override
        public Row get(Row wanted) {
          return mine.get(part(wanted));
        }

        @Override
        public void put(Row wanted, Row found) {
          mine.put(part(wanted), found);
        }

        @Override
        public void remove(Row wanted) {
          mine.remove(part(wanted));
        }
      };
    }

    @Override
    void take(Row row) {
      Row key = row.getStruct(0);
      if (!row.isNullAt(1)) {
        Row open = row.getStruct(1);
        windows.restore(key, new OpenWindows.Window(open.getLong(0), open.getLong(1), open.getAs(2)));
        return;
      }
      long watermark = row.getLong(3) - spec.delay();
      closeBefore(key, watermark);
      List<OpenWindows.Window> found =
          windows.add(key, 0, row.getLong(2), row.getStruct(6), watermark, (end, each) -> {});
      if (found.isEmpty()) give(RowFactory.create("letter", null, null, row.getStruct(6)));
      if (spec.updates()) found.forEach(each -> give(result(key, each)));
    }

    private Row result(Row key, OpenWindows.Window window) {
      Row values = spec.aggregates().evaluated(window.buffers());
      return RowFactory.create(
          "result", RowFactory.create(key, window.start(), window.end(), values), null, null);
    }

    /** Close the windows of the present key whose end a watermark has reached. */
    private void closeBefore(Row key, long watermark) {
      for (OpenWindows.Window each : open()) {
        if (each.end() > watermark) break;
        windows.forget(key, each);
        if (!spec.updates()) give(result(key, each));
      }
    }

    /** Return the open windows of the present key, in the order of their ends. */
    private List<OpenWindows.Window> open() {
      List<OpenWindows.Window> open = new ArrayList<>();
      tables.get("open").forEach((start, value) ->
          open.add(new OpenWindows.Window((Long) start, value.getLong(0), value.getAs(3))));
      open.sort(Comparator.comparingLong(OpenWindows.Window::end));
      return open;
    }

    @Override
    void end(Row last) {
      closeBefore(last.getStruct(0), last.getLong(4) - spec.delay());
      for (OpenWindows.Window each : open()) {
        Row state = RowFactory.create(last.get(0), each.start(), each.end(), each.buffers(), last.get(5));
        give(RowFactory.create("state", null, state, null));
      }
      tables.values().forEach(Map::clear);
    }
  }
}
