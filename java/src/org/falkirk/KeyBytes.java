package org.falkirk;

import java.util.Arrays;
import java.util.Comparator;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** The bytes of keys. They order the results of windows that have the same end: see {@link Windows}. */
public final class KeyBytes implements UDF1<Row, byte[]> {
  private static final long serialVersionUID = 1L;

  private final StructType columns;
  private transient ExpressionEncoder.Serializer<Row> serializer;

  /** Args: columns: those of a key. */
  KeyBytes(StructType columns) {
    this.columns = columns;
  }

  /** Return rows with the bytes of a key in one more column. Args: key: a STRUCT column. name: of the new column. */
  public static Dataset<Row> added(Dataset<Row> rows, String key, String name) {
    StructType columns = (StructType) rows.schema().apply(key).dataType();
    var bytes = functions.udf(new KeyBytes(columns), DataTypes.BinaryType);
    return rows.withColumn(name, bytes.apply(functions.col(key)));
  }

  /** Return the order of keys: that of their bytes, without signs. Spark compares BINARY values in the same way. */
  Comparator<Row> order() {
    return (one, other) -> Arrays.compareUnsigned(call(one), call(other));
  }

  @Override
  public byte[] call(Row key) {
    if (serializer == null) serializer = ExpressionEncoder.apply(columns).createSerializer();
    return ((UnsafeRow) serializer.apply(key)).copy().getBytes();
  }
}
