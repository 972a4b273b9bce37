package org.falkirk;

import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.StructType;

/**
 * Two keyed operators, one after the other, in one state partition: the second gets each result of the first one, after the
 * row steps between them. Either may be a chain.
 *
 * <p>All records of a key of either operator are in the same state partition, because the key of each contains the columns
 * that choose it. The first operator gives the results of a source partition in the order of their stamps. So the second
 * one gets its records as an operator alone would, and its results are in that order, too.
 */
final class Chain implements Operator {
  private static final long serialVersionUID = 1L;

  private final Operator first;
  private final RowSteps between;
  private final Operator second;

  Chain(Operator first, RowSteps between, Operator second) {
    this.first = second.usesTime() ? first.passingTime() : first;
    this.between = between;
    this.second = second;
  }

  @Override
  public StructType results(StructType records) {
    return second.results(between.columns());
  }

  @Override
  public void open(StructType records, Tables tables) {
    int place = first.size();
    first.open(records, tables);
    second.open(between.columns(), (name, key, value) -> tables.table(name + "_" + place, key, value));
  }

  @Override
  public int size() {
    return first.size() + second.size();
  }

  @Override
  public boolean usesTime() {
    return first.usesTime();
  }

  @Override
  public Operator passingTime() {
    return new Chain(first.passingTime(), between, second.passingTime());
  }

  @Override
  public Iterator<Row> take(Row record) {
    return new Results(first.take(record));
  }

  /** The results of a record, each computed when it is asked for. */
  private final class Results implements Iterator<Row> {
    private final Iterator<Row> given;
    private Iterator<Row> rows = Collections.emptyIterator();
    private Iterator<Row> ready = Collections.emptyIterator();

    Results(Iterator<Row> given) {
      this.given = given;
    }

    @Override
    public boolean hasNext() {
      while (!ready.hasNext()) {
        if (rows.hasNext()) {
          ready = second.take(rows.next());
        } else if (given.hasNext()) {
          rows = between.apply(given.next()).iterator();
        } else {
          return false;
        }
      }
      return true;
    }

    @Override
    public Row next() {
      hasNext();
      return ready.next();
    }
  }
}
