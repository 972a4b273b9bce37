package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** The rows of both sides of a join that may still make a pair, by their key and side, in no order. */
final class WaitingRows {
  /**
   * A row of one side.
   *
   * @param paired it has made a pair. bytes: its columns.
   */
  record Waiting(Row stamp, long time, boolean paired, byte[] bytes) {
    Waiting withPartner() {
      return new Waiting(stamp, time, true, bytes);
    }
  }

  private final Operator.Table heads;
  private final Operator.Table rows;

  WaitingRows(Operator.Tables tables, StructType keys, DataType stamp) {
    StructType side = new StructType().add("key", keys).add("side", "int");
    heads = tables.table("heads", side, StructType.fromDDL("count INT, end BIGINT"));
    rows = tables.table(
        "rows",
        side.add("place", "int"),
        new StructType().add("stamp", stamp).add("time", "bigint").add("paired", "boolean").add("row", "binary"));
  }

  int count(Row key, int side) {
    Row head = heads.get(RowFactory.create(key, side));
    return head == null ? 0 : head.getInt(0);
  }

  Waiting get(Row key, int side, int place) {
    Row found = rows.get(RowFactory.create(key, side, place));
    return new Waiting(found.getStruct(0), found.getLong(1), found.getBoolean(2), found.getAs(3));
  }

  void put(Row key, int side, int place, Waiting row) {
    rows.put(
        RowFactory.create(key, side, place), RowFactory.create(row.stamp, row.time, row.paired, row.bytes));
  }

  /** Add a row, and return whether the end is another one than that of the row before. */
  boolean add(Row key, int side, Waiting row, long end) {
    Row head = heads.get(RowFactory.create(key, side));
    int count = head == null ? 0 : head.getInt(0);
    put(key, side, count, row);
    heads.put(RowFactory.create(key, side), RowFactory.create(count + 1, end));
    return head == null || head.getLong(1) != end;
  }

  /** Remove and return the rows of a key and side with earlier times. */
  List<Waiting> removeBefore(Row key, int side, long time) {
    List<Waiting> removed = new ArrayList<>();
    Row head = heads.get(RowFactory.create(key, side));
    if (head == null) return removed;
    int count = head.getInt(0);
    for (int place = 0; place < count; ) {
      Waiting each = get(key, side, place);
      if (each.time >= time) {
        place++;
        continue;
      }
      removed.add(each);
      count--;
      if (place < count) put(key, side, place, get(key, side, count));
      rows.remove(RowFactory.create(key, side, count));
    }
    if (count == 0) {
      heads.remove(RowFactory.create(key, side));
    } else {
      heads.put(RowFactory.create(key, side), RowFactory.create(count, head.getLong(1)));
    }
    return removed;
  }
}
