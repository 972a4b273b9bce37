package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * The keys of a source partition by the ends of their windows, first end first.
 *
 * <p>The different ends are a heap in a table. So neither a new end nor the removal of the first one needs a scan, and the
 * first one is also in memory. Many keys may have the same end.
 */
final class Agenda {
  /** The tables of all agendas of a state partition. */
  record In(Operator.Table ends, Operator.Table counts, Operator.Table keys) {
    static In of(Operator.Tables tables, StructType keys) {
      return new In(
          tables.table("ends", StructType.fromDDL("partition INT, place INT"), StructType.fromDDL("end BIGINT")),
          tables.table("counts", StructType.fromDDL("partition INT, end BIGINT"), StructType.fromDDL("keys INT")),
          tables.table(
              "agenda",
              StructType.fromDDL("partition INT, end BIGINT, number INT"),
              new StructType().add("key", keys)));
    }
  }

  /** The agendas of the sides of a join, with the numbers of their different ends. */
  record Sized(In in, Operator.Table sizes) {
    static Sized of(Operator.Tables tables, StructType keys) {
      Operator.Table sizes =
          tables.table("sizes", StructType.fromDDL("side INT"), StructType.fromDDL("ends INT"));
      return new Sized(In.of(tables, keys), sizes);
    }

    Agenda read(int side) {
      Row size = sizes.get(RowFactory.create(side));
      return new Agenda(in, side, size == null ? 0 : size.getInt(0));
    }

    void write(int side, Agenda agenda) {
      sizes.put(RowFactory.create(side), RowFactory.create(agenda.size()));
    }
  }

  private final In in;
  private final int partition;
  private int size;
  private long first;

  /** Args: size: the number of different ends, which the caller keeps. */
  Agenda(In in, int partition, int size) {
    this.in = in;
    this.partition = partition;
    this.size = size;
    first = size == 0 ? Long.MAX_VALUE : end(0);
  }

  int size() {
    return size;
  }

  /** Return the first end, or the greatest number. */
  long first() {
    return first;
  }

  void add(long end, Row key) {
    Row count = in.counts.get(RowFactory.create(partition, end));
    int number = count == null ? 0 : count.getInt(0);
    in.counts.put(RowFactory.create(partition, end), RowFactory.create(number + 1));
    in.keys.put(RowFactory.create(partition, end, number), RowFactory.create(key));
    if (number == 0) push(end);
  }

  /** Remove the first end, and return its keys. */
  List<Row> removeFirst() {
    List<Row> keys = new ArrayList<>();
    Row count = RowFactory.create(partition, first);
    for (int number = in.counts.get(count).getInt(0) - 1; number >= 0; number--) {
      Row place = RowFactory.create(partition, first, number);
      keys.add(in.keys.get(place).getStruct(0));
      in.keys.remove(place);
    }
    in.counts.remove(count);
    pop();
    return keys;
  }

  private void push(long end) {
    int place = size++;
    while (place > 0 && end((place - 1) / 2) > end) {
      put(place, end((place - 1) / 2));
      place = (place - 1) / 2;
    }
    put(place, end);
    first = Math.min(first, end);
  }

  private void pop() {
    long end = end(--size);
    in.ends.remove(RowFactory.create(partition, size));
    int place = 0;
    for (int child = 1; child < size; child = 2 * place + 1) {
      if (child + 1 < size && end(child + 1) < end(child)) child++;
      if (end(child) >= end) break;
      put(place, end(child));
      place = child;
    }
    if (size > 0) put(place, end);
    first = size == 0 ? Long.MAX_VALUE : end(0);
  }

  private long end(int place) {
    return in.ends.get(RowFactory.create(partition, place)).getLong(0);
  }

  private void put(int place, long end) {
    in.ends.put(RowFactory.create(partition, place), RowFactory.create(end));
  }
}
