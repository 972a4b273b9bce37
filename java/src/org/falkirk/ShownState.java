package org.falkirk;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Shows as JSON what keyed operators keep as bytes, for `falkirk state`. */
public final class ShownState {
  private ShownState() {}

  /** Return a kept row. Args: columns: its columns as JSON. */
  public static String row(String columns, byte[] bytes) {
    return new StoredRows((StructType) DataType.fromJson(columns)).row(bytes).json();
  }

  /** Return the results of the buffers of aggregates. Args: records: the columns of the records. */
  public static String results(Aggregates aggregates, StructType records, byte[] buffers) {
    aggregates.open(records);
    return aggregates.evaluated(buffers).json();
  }
}
