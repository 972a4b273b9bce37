package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructType;

/** Tells which rows make a pair, by Spark's own evaluation of the condition. */
final class Pairs {
  private final long within;
  private final List<StoredRows> rows = new ArrayList<>();
  private final BasePredicate condition;

  Pairs(JoinSpec spec) {
    within = spec.within();
    List<Attribute> all = new ArrayList<>();
    for (int side = 0; side < 2; side++) {
      StructType columns = new StructType();
      for (Attribute each : spec.columns(side)) {
        columns = columns.add(each.name(), ((Expression) each).dataType().asNullable(), true);
      }
      all.addAll(spec.columns(side));
      rows.add(new StoredRows(columns));
    }
    condition = Predicate.create(spec.condition(), Scala.<Attribute>seq(all));
    condition.initialize(0);
  }

  byte[] bytes(int side, Row row) {
    return rows.get(side).bytes(row);
  }

  Row row(int side, byte[] bytes) {
    return rows.get(side).row(bytes);
  }

  /** Return whether a row makes a pair with a row of the other side. */
  boolean is(int side, byte[] bytes, long time, WaitingRows.Waiting other) {
    if (within != JoinSpec.UNBOUNDED && Math.abs(time - other.time()) > within) return false;
    UnsafeRow mine = rows.get(side).unsafe(bytes);
    UnsafeRow theirs = rows.get(1 - side).unsafe(other.bytes());
    return condition.eval(side == 0 ? new JoinedRow(mine, theirs) : new JoinedRow(theirs, mine));
  }
}
