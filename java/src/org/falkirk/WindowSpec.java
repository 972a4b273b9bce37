package org.falkirk;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.expressions.TimeWindow;
import org.apache.spark.sql.types.StructType;

/**
 * Windows, and the aggregates of their records. All times are in microseconds.
 *
 * @param size of a window, or the gap of a session. slide: 0 for sessions. offset: windows start at it, and whole slides
 *     before and after it.
 * @param delay of the watermark. updates: each record gives results of its windows. Otherwise each window gives one result
 *     when it closes.
 */
public record WindowSpec(long size, long slide, long offset, long delay, boolean updates, Aggregates aggregates)
    implements Serializable {

  /** Return windows by the texts of their intervals, in the form that Spark knows. Args: slide: empty for sessions. */
  public static WindowSpec of(
      String size, String slide, String offset, long delay, boolean updates, Aggregates aggregates) {
    return new WindowSpec(micros(size), micros(slide), micros(offset), delay, updates, aggregates);
  }

  private static long micros(String interval) {
    return interval.isEmpty() ? 0 : TimeWindow.getIntervalInMicroSeconds(interval);
  }

  OpenWindows open(StructType keys, StructType records, Operator.Tables tables) {
    aggregates.open(records);
    return slide == 0 ? new Sessions(this, keys, tables) : new AlignedWindows(this, keys, tables);
  }
}
