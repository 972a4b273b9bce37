package org.falkirk;

import java.util.Iterator;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/** A step of a live region that calls Python for each row, and has the answer before it reads the next one. */
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

  private record Answered(Iterator<Row> rows, int at, PythonCalls calls) implements Iterator<Row> {
    @Override
    public boolean hasNext() {
      return rows.hasNext();
    }

    @Override
    public Row next() {
      Row row = rows.next();
      if (row.isNullAt(at)) return row;
      Object[] values = new Object[row.size()];
      for (int i = 0; i < values.length; i++) {
        values[i] = i == at ? calls.call((byte[]) row.get(at)) : row.get(i);
      }
      return RowFactory.create(values);
    }
  }
}
