package org.falkirk;

import org.apache.spark.sql.types.StructType;

/**
 * Two keyed operators in one state partition: the second gets the results of the first one, after the row steps between
 * them. Each may be two operators, too.
 *
 * <p>The tables of the second one have the number of operators before it in their names, which a checkpoint has.
 */
abstract class TwoOperators<T extends Operator> implements Operator {
  private static final long serialVersionUID = 1L;

  final T first;
  final RowSteps between;
  final T second;

  TwoOperators(T first, RowSteps between, T second) {
    this.first = first;
    this.between = between;
    this.second = second;
  }

  @Override
  public StructType results(StructType records) {
    return second.results(between.columns());
  }

  /** Args: records: the columns of the first operator's records. */
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
}
