package org.falkirk;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructType;

/** Rows as the bytes of Spark's rows, as a state keeps them. */
final class StoredRows {
  private final int size;
  private final ExpressionEncoder.Serializer<Row> toBytes;
  private final ExpressionEncoder.Deserializer<Row> toRow;

  StoredRows(StructType columns) {
    size = columns.size();
    ExpressionEncoder<Row> made = KnownEncoder.of(columns);
    toBytes = made.createSerializer();
    toRow =
        made.resolveAndBind(made.resolveAndBind$default$1(), made.resolveAndBind$default$2()).createDeserializer();
  }

  byte[] bytes(Row row) {
    return ((UnsafeRow) toBytes.apply(row)).copy().getBytes();
  }

  Row row(byte[] bytes) {
    return toRow.apply(unsafe(bytes));
  }

  UnsafeRow unsafe(byte[] bytes) {
    UnsafeRow row = new UnsafeRow(size);
    row.pointTo(bytes, bytes.length);
    return row;
  }
}
