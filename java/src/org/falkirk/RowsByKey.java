package org.falkirk;

import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.Objects;
import java.util.Queue;
import org.apache.spark.sql.Row;

/** The results of rows that are sorted by key, in one epoch of a micro-batch. The first column of a row is its key. */
abstract class RowsByKey implements Iterator<Row> {
  private final Iterator<Row> rows;
  private final Queue<Row> ready = new ArrayDeque<>();
  private Row last;

  RowsByKey(Iterator<Row> rows) {
    this.rows = rows;
  }

  /** Take a row of the present key. */
  abstract void take(Row row);

  /** End the present key. Args: last: its last row. */
  abstract void end(Row last);

  /** Add a result. */
  final void give(Row result) {
    ready.add(result);
  }

  @Override
  public final boolean hasNext() {
    while (ready.isEmpty() && rows.hasNext()) {
      Row row = rows.next();
      if (last != null && !Objects.equals(last.getStruct(0), row.getStruct(0))) endOfKey();
      last = row;
      take(row);
    }
    if (ready.isEmpty()) endOfKey();
    return !ready.isEmpty();
  }

  @Override
  public final Row next() {
    hasNext();
    return ready.remove();
  }

  private void endOfKey() {
    if (last == null) return;
    end(last);
    last = null;
  }
}
