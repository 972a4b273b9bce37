package org.falkirk;

import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Aggregates all records of each key: `groupBy(…).agg(…)` in a {@link Chain}. Each record gives the updated result of its key.
 *
 * <p>A result has the columns of its record, of which only the stamp and the key have values, and a STRUCT with the
 * aggregates. A bad record is a result as it is.
 */
public final class RunningAggregates implements Operator {
  private static final long serialVersionUID = 1L;
  private static final StructType STATE = StructType.fromDDL("partition INT, buffers BINARY");

  private final EventTime names;
  private final String key;
  private final String values;
  private final Aggregates aggregates;
  private transient int keyAt, stampAt, partitionAt, badAt;
  private transient Table states;

  /** Args: names: `time` is not used. key: the STRUCT column with the key. values: the name of the added column. */
  public RunningAggregates(EventTime names, String key, String values, Aggregates aggregates) {
    this.names = names;
    this.key = key;
    this.values = values;
    this.aggregates = aggregates;
  }

  @Override
  public StructType results(StructType records) {
    return records.asNullable().add(values, aggregates.results());
  }

  @Override
  public void open(StructType records, Tables tables) {
    keyAt = records.fieldIndex(key);
    stampAt = records.fieldIndex(names.stamp());
    partitionAt = ((StructType) records.apply(stampAt).dataType()).fieldIndex("partition");
    badAt = records.fieldIndex(names.bad());
    aggregates.open(records);
    states = tables.table("aggregates", (StructType) records.apply(keyAt).dataType(), STATE);
  }

  @Override
  public Iterator<Row> take(Row record) {
    Object[] result = new Object[record.size() + 1];
    if (!record.isNullAt(badAt)) {
      for (int i = 0; i < record.size(); i++) {
        result[i] = record.get(i);
      }
    } else {
      Row own = record.getStruct(keyAt);
      int partition = record.getStruct(stampAt).getInt(partitionAt);
      Row before = states.get(own);
      if (before != null && before.getInt(0) != partition) {
        throw new IllegalStateException(FirstOfKey.splitKey(before.getInt(0), partition, own));
      }
      byte[] buffers = aggregates.updated(before == null ? aggregates.initial() : before.getAs(1), record);
      states.put(own, RowFactory.create(partition, buffers));
      result[stampAt] = record.get(stampAt);
      result[keyAt] = own;
      result[record.size()] = aggregates.evaluated(buffers);
    }
    return Collections.singleton(RowFactory.create(result)).iterator();
  }
}
