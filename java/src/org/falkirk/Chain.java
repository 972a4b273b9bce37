package org.falkirk;

import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.sql.Row;

/**
 * Two keyed operators, one after the other, in one state partition: the second gets each result of the first one, after the
 * row steps between them. Either may be a chain.
 *
 * <p>All records of a key of either operator are in the same state partition, because the key of each contains the columns
 * that choose it. The first operator gives the results of a source partition in the order of their stamps. So the second
 * one gets its records as an operator alone would, and its results are in that order, too.
 */
final class Chain extends TwoOperators<Operator> {
  private static final long serialVersionUID = 1L;

  Chain(Operator first, RowSteps between, Operator second) {
    super(second.usesTime() ? first.passingTime() : first, between, second);
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
