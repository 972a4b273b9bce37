package org.falkirk;

import java.io.Closeable;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.TaskCompletionListener;

/**
 * A step of a live region that calls Python for each row. Answers have the order of the rows.
 *
 * <p>While the process computes, the task sends further rows that have arrived. So many rows share the exchanges, and a
 * single row does not wait for others.
 */
public final class PythonStep {
  private PythonStep() {}

  /**
   * Replace requests by their answers.
   *
   * @param column a BINARY column: the request, or null for a row that needs no answer.
   */
  public static Dataset<Row> apply(Dataset<Row> rows, String column, PythonCommand command) {
    StructType columns = rows.schema();
    int at = columns.fieldIndex(column);
    MapPartitionsFunction<Row, Row> answered = each -> new Answered(each, at, new PythonCalls(command));
    return rows.mapPartitions(answered, Encoders.row(columns));
  }

  /** The rows of a task with their answers. */
  static final class Answered implements Iterator<Row>, Closeable {
    /** How many rows may have been read without an answer. */
    private static final int ROWS = 128;
    /** Fewer, if their answers take longer together: a checkpoint waits for them. */
    private static final double AHEAD_NS = 1e7;
    /** No further row is sent while the requests of so many bytes are under way. */
    private static final int BYTES = 1 << 18;
    /** The weight of the newest answer in the mean time of an answer. */
    private static final double NEWEST = 0.1;

    private final RowsAhead ahead;
    private final int at;
    private final PythonCalls calls;
    private final Deque<Row> rows = new ArrayDeque<>();
    private final Deque<Row> unsent = new ArrayDeque<>();
    private int bytes, allowed;
    private double answerNs = AHEAD_NS;

    Answered(Iterator<Row> rows, int at, PythonCalls calls) {
      this.at = at;
      this.calls = calls;
      ahead = new RowsAhead(rows);
      allow();
      TaskContext task = TaskContext.get();
      if (task != null) task.addTaskCompletionListener((TaskCompletionListener) ended -> close());
    }

    @Override
    public boolean hasNext() {
      if (rows.isEmpty() && unsent.isEmpty()) ahead.take(unsent);
      return !(rows.isEmpty() && unsent.isEmpty());
    }

    @Override
    public Row next() {
      if (!hasNext()) throw new NoSuchElementException();
      send();
      Row row = rows.remove();
      Row answered = row.isNullAt(at) ? row : answered(row);
      allowed--;
      allow();
      return answered;
    }

    private Row answered(Row row) {
      long begun = System.nanoTime();
      byte[] answer = calls.next();
      answerNs += NEWEST * (System.nanoTime() - begun - answerNs);
      bytes -= ((byte[]) row.get(at)).length;
      Object[] values = new Object[row.size()];
      for (int i = 0; i < values.length; i++) values[i] = i == at ? answer : row.get(i);
      return RowFactory.create(values);
    }

    /** Let further rows be read, so that those without an answer are as many as may be. */
    private void allow() {
      int more = (int) Math.max(1, Math.min(ROWS, AHEAD_NS / answerNs)) - allowed;
      if (more <= 0) return;
      allowed += more;
      ahead.allow(more);
    }

    @Override
    public void close() {
      ahead.close();
    }

    /** Send what has arrived. If many rows are under way, wait until there are more to send together. */
    private void send() {
      if (rows.size() > ROWS / 2) return;
      ahead.poll(unsent);
      List<byte[]> requests = new ArrayList<>();
      while (!unsent.isEmpty() && (bytes < BYTES || rows.isEmpty())) {
        Row row = unsent.remove();
        rows.add(row);
        if (row.isNullAt(at)) continue;
        byte[] request = (byte[]) row.get(at);
        bytes += request.length;
        requests.add(request);
      }
      if (!requests.isEmpty()) calls.send(requests);
    }
  }
}
