package org.falkirk;

import java.io.Serializable;
import java.util.Iterator;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.StructType;

/**
 * A keyed operator: gets the records of one state partition, one at a time, and keeps its state in {@link Table}s.
 *
 * <p>All keys of a state partition share its tables. So an operator can hold facts that belong to no key, such as how far
 * time has come, and can delete the state of keys that have no more records. The records of each source partition arrive
 * in the order of their stamps; those of different ones in any order. Therefore results are the same in every replay only
 * if they depend on one source partition each.
 *
 * <p>It is sent to the tasks, which call `open` before the first record.
 */
interface Operator extends Serializable {
  /** Return the columns of the results, for records with these columns. */
  StructType results(StructType records);

  /** Make the tables. Their names and columns stay the same in all versions that can read a checkpoint. */
  void open(StructType records, Tables tables);

  /** Return the results of one record. */
  Iterator<Row> take(Row record);

  /** Return whether it needs time rows. */
  default boolean usesTime() {
    return false;
  }

  /** Return the operator whose results have the time rows, too, for a further one that needs them. */
  default Operator passingTime() {
    throw new IllegalStateException(getClass() + " gives no results with the time of its records");
  }

  /** Return how many operators it is. */
  default int size() {
    return 1;
  }

  /** Makes tables. */
  interface Tables {
    Table table(String name, StructType key, StructType value);
  }

  /** Rows by key. A key or a value may have nulls. */
  interface Table {
    /** Return the row of a key, or null. */
    Row get(Row key);

    void put(Row key, Row value);

    void remove(Row key);
  }
}
