package org.falkirk;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.StructType;

/**
 * A join of the results of another join, its left stream, with the records of a further source. The other join may be one
 * of these, too.
 *
 * <p>Both run in one state partition, because the key of each contains the columns that choose it. A record has the columns
 * of the other join's records, or those of the further source, each as one struct. After the results of the other join,
 * this one gets their watermark. So it keeps a row until no partner can come, and never finds a result late.
 */
final class NextJoin extends TwoOperators<TimedJoin> implements TimedJoin {
  private static final long serialVersionUID = 1L;
  /** The columns of a record. */
  static final int FIRST = 0;
  static final int OTHER = 1;

  NextJoin(TimedJoin first, RowSteps between, TimedJoin second) {
    super(first, between, second);
  }

  @Override
  public void open(StructType records, Tables tables) {
    super.open((StructType) records.apply(FIRST).dataType(), tables);
  }

  @Override
  public Iterator<Row> take(Row record) {
    if (!record.isNullAt(OTHER)) return second.take(record.getStruct(OTHER));
    return passed(first.take(record.getStruct(FIRST)));
  }

  @Override
  public long watermark() {
    return second.watermark();
  }

  @Override
  public Iterator<Row> pass(long watermark) {
    return passed(first.pass(watermark));
  }

  private Iterator<Row> passed(Iterator<Row> given) {
    List<Row> results = new ArrayList<>();
    while (given.hasNext()) {
      for (Row row : between.apply(given.next())) {
        second.take(row).forEachRemaining(results::add);
      }
    }
    second.pass(first.watermark()).forEachRemaining(results::add);
    return results.iterator();
  }
}
