package org.falkirk;

import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Observation;
import org.apache.spark.sql.Row;
import scala.concurrent.Await;
import scala.concurrent.duration.Duration;

/** Rows with an observation of them, which waits in the JVM: Python would ask again and again whether there is one. */
public final class Observed {
  private final Observation observation = new Observation();
  private final Dataset<Row> data;

  /** @param columns aggregates, which the first job that reads the rows computes */
  public Observed(Dataset<Row> rows, List<Column> columns) {
    data = rows.observe(observation, columns.get(0), columns.subList(1, columns.size()).toArray(new Column[0]));
  }

  /** Returns the observed rows. */
  public Dataset<Row> data() {
    return data;
  }

  /** Returns the name of the observation in plans. */
  public String name() {
    return observation.name();
  }

  /**
   * Returns the values by name, as JSON; an empty object if Spark has left out the part of the plan that observes; null if
   * Spark does not publish them in time.
   *
   * @param waitMs how long to wait
   */
  public String values(long waitMs) throws InterruptedException {
    try {
      Await.ready(observation.future(), Duration.create(waitMs, TimeUnit.MILLISECONDS));
    } catch (TimeoutException late) {
      return null;
    }
    Row row = observation.getRow();
    return row.length() == 0 ? "{}" : row.json();
  }
}
