package org.falkirk;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/**
 * The order of stamps, and those of joined rows: (source, partition, offset, other partition, other offset, sub-indexes of
 * the left, of the right).
 *
 * <p>A pair has the place of its left record, and that of its right one as the other place, with its partition plus 1. A row
 * without a partner has its own place, and 0 as the other partition. So both records identify a pair, in whichever order
 * they arrive.
 */
final class Stamps {
  private static final int PARTITION = 1;
  private static final int OFFSET = 2;
  private static final int OTHER = 3;
  private static final int SUBS = 5;

  private Stamps() {}

  /** Compare the numbers of two stamps, the first ones first. */
  static int compare(Row one, Row other) {
    for (int i = 0; i < one.size(); i++) {
      int found = Long.compare(((Number) one.get(i)).longValue(), ((Number) other.get(i)).longValue());
      if (found != 0) return found;
    }
    return 0;
  }

  /** Args: subs: the sub-indexes of the left stamp. */
  static Row ofPair(Row left, Row right, int subs) {
    Object[] values = new Object[left.size()];
    for (int i = 0; i < values.length; i++) {
      values[i] = i < SUBS + subs ? left.get(i) : right.get(i);
    }
    values[OTHER] = right.getInt(PARTITION) + 1;
    values[OTHER + 1] = right.getLong(OFFSET);
    return RowFactory.create(values);
  }
}
