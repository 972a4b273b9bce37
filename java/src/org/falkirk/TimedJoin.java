package org.falkirk;

import java.util.Iterator;
import org.apache.spark.sql.Row;

/**
 * A join whose results may be the left stream of another join, in the same state partition.
 *
 * <p>The time of a result is that of its left record. All results depend on the set of records alone, so those of the other
 * join do, too.
 */
interface TimedJoin extends Operator {
  /** Return a time, in microseconds, before which no further result has its time. It depends on the state alone. */
  long watermark();

  /**
   * Take in that no further left record is before a time, and return the results that leave because of it.
   *
   * @param watermark of the join that gives the left records, after all of its results so far.
   */
  Iterator<Row> pass(long watermark);
}
