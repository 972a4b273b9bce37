package org.falkirk;

import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/** Runs an operator in Spark's `transformWithState`, with Spark's states as its tables. */
final class KeyedProcessor extends StatefulProcessor<Integer, Row, Row> {
  private static final long serialVersionUID = 1L;

  private final StructType columns;
  private final Operator operator;
  /** On the driver. */
  private final transient Keyed.Input input;

  KeyedProcessor(Keyed.Input input, Operator operator) {
    columns = input.records().schema();
    this.operator = operator;
    this.input = input;
  }

  Keyed.Input input() {
    return input;
  }

  Operator operator() {
    return operator;
  }

  @Override
  public void init(OutputMode output, TimeMode time) {
    operator.open(columns, (name, key, value) -> new SparkTable(
        getHandle().getMapState(name, KnownEncoder.of(key), KnownEncoder.of(value), TTLConfig.NONE())));
  }

  @Override
  public scala.collection.Iterator<Row> handleInputRows(
      Integer number, scala.collection.Iterator<Row> records, TimerValues timers) {
    Iterator<Row> given = CollectionConverters.asJava(records);
    return CollectionConverters.asScala(new Results(given, operator));
  }

  /** The results of records, each computed when Spark asks for it, so that no result waits for a later record. */
  static final class Results implements Iterator<Row> {
    private final Iterator<Row> records;
    private final Operator operator;
    private Iterator<Row> ready = Collections.emptyIterator();

    Results(Iterator<Row> records, Operator operator) {
      this.records = records;
      this.operator = operator;
    }

    @Override
    public boolean hasNext() {
      while (!ready.hasNext() && records.hasNext()) {
        ready = operator.take(records.next());
      }
      return ready.hasNext();
    }

    @Override
    public Row next() {
      hasNext();
      return ready.next();
    }
  }

  private record SparkTable(MapState<Row, Row> state) implements Operator.Table {
    @Override
    public Row get(Row key) {
      return state.containsKey(key) ? state.getValue(key) : null;
    }

    @Override
    public void put(Row key, Row value) {
      state.updateValue(key, value);
    }

    @Override
    public void remove(Row key) {
      state.removeKey(key);
    }
  }
}
