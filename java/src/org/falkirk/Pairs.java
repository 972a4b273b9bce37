package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructType;

/** Tells which rows make a pair, by Spark's own evaluation of the condition. Rows are kept as the bytes of Spark's rows. */
final class Pairs {
  private final long within;
  private final List<ExpressionEncoder.Serializer<Row>> toBytes = new ArrayList<>();
  private final List<ExpressionEncoder.Deserializer<Row>> toRow = new ArrayList<>();
  private final int[] sizes = new int[2];
  private final BasePredicate condition;

  Pairs(JoinSpec spec) {
    within = spec.within();
    List<Attribute> all = new ArrayList<>();
    for (int side = 0; side < 2; side++) {
      StructType columns = new StructType();
      for (Attribute each : spec.columns(side)) {
        columns = columns.add(each.name(), ((Expression) each).dataType().asNullable(), true);
      }
      sizes[side] = columns.size();
      all.addAll(spec.columns(side));
      toBytes.add(ExpressionEncoder.apply(columns).createSerializer());
      ExpressionEncoder<Row> made = ExpressionEncoder.apply(columns);
      toRow.add(
          made.resolveAndBind(made.resolveAndBind$default$1(), made.resolveAndBind$default$2()).createDeserializer());
    }
    condition = Predicate.create(spec.condition(), Scala.<Attribute>seq(all));
    condition.initialize(0);
  }

  byte[] bytes(int side, Row row) {
    return ((UnsafeRow) toBytes.get(side).apply(row)).copy().getBytes();
  }

  Row row(int side, byte[] bytes) {
    return toRow.get(side).apply(unsafe(side, bytes));
  }

  /** Return whether a row makes a pair with a row of the other side. */
  boolean is(int side, byte[] bytes, long time, WaitingRows.Waiting other) {
    if (within != JoinSpec.UNBOUNDED && Math.abs(time - other.time()) > within) return false;
    UnsafeRow mine = unsafe(side, bytes);
    UnsafeRow theirs = unsafe(1 - side, other.bytes());
    return condition.eval(side == 0 ? new JoinedRow(mine, theirs) : new JoinedRow(theirs, mine));
  }

  private UnsafeRow unsafe(int side, byte[] bytes) {
    UnsafeRow row = new UnsafeRow(sizes[side]);
    row.pointTo(bytes, bytes.length);
    return row;
  }
}
