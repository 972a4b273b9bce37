package org.falkirk;

import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/**
 * Fails a task that reads more rows of a file than the file's size explains. Each task has its own count.
 *
 * <p>Some bytes can claim any number of rows: Parquet repeats a value, bzip2 and zstd compress millions of equal lines to
 * a few bytes. Each row costs time and space. If several tasks read a large file, each counts its part.
 */
public final class RowsOfFile implements UDF2<Long, Long, Boolean> {
  private static final long serialVersionUID = 1L;

  private final long rows;
  private final long rowsPerByte;
  private long file;
  private long count;

  private RowsOfFile(long rows, long rowsPerByte) {
    this.rows = rows;
    this.rowsPerByte = rowsPerByte;
  }

  /**
   * Return a condition that holds for each row.
   *
   * @param file a number of the row's file. size: of the file, in bytes. rows, rowsPerByte: a file with more rows than both
   *     of these allow is refused.
   */
  public static Column within(Column file, Column size, long rows, long rowsPerByte) {
    UserDefinedFunction within = functions.udf(new RowsOfFile(rows, rowsPerByte), DataTypes.BooleanType);
    return within.asNondeterministic().apply(file, size); // Spark evaluates it once per row, before other conditions
  }

  @Override
  public Boolean call(Long file, Long size) {
    if (file != this.file) {
      this.file = file;
      count = 0;
    }
    if (++count > Math.max(rows, size * rowsPerByte)) {
      throw new IllegalStateException(
          "the file claims more than " + (count - 1) + " rows, too many for its size");
    }
    return true;
  }
}
