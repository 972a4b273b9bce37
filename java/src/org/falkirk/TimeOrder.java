package org.falkirk;

import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.Comparator;
import java.util.Queue;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.StructType;

/**
 * Holds the records of a state partition until the watermark of each source partition has passed them, and gives them in
 * the order of their times, then of their stamps.
 *
 * <p>Records of several source partitions arrive interleaved, anew in each replay. A record that is late by the time of its
 * own partition is refused. So once the least watermark has passed a time, no earlier record can arrive, and the order is
 * a function of the input. The moment at which a record leaves is not.
 */
public final class TimeOrder implements Serializable {
  private static final long serialVersionUID = 1L;
  /** The only source, and the only agenda. */
  private static final int ONE = 0;

  private final EventTime names;
  private final long delay;
  private final int sourcePartitions;
  private transient EventTime.Columns at;
  private transient Operator.Table times;
  private transient Agenda.Sized agendas;
  private transient SideTimes watermarks;
  private transient Agenda held;
  private transient Queue<Row> ready;

  /** Args: delay: of the watermark, in microseconds. sourcePartitions: the number of partitions of the source. */
  public TimeOrder(EventTime names, long delay, int sourcePartitions) {
    this.names = names;
    this.delay = delay;
    this.sourcePartitions = sourcePartitions;
  }

  void open(StructType records, Operator.Tables tables) {
    at = names.in(records);
    times = SideTimes.table(tables);
    agendas = Agenda.Sized.of(tables, records);
    watermarks = null; // Spark's states can't be read before the first record
    ready = new ArrayDeque<>();
  }

  boolean isTimeRow(Row row) {
    return at.isTimeRow(row);
  }

  /** Move the time of a row's source partition. Then {@link #next} returns the records that it lets leave. */
  void move(Row row) {
    if (watermarks == null) {
      watermarks = new SideTimes(times, ONE, new JoinSpec.Side(delay, 0, false, sourcePartitions, 0));
      held = agendas.read(ONE);
    }
    watermarks.move(at.partitionOf(row), at.timeOf(row));
  }

  /** Return whether a record is late. Its time has been moved. */
  boolean isLate(Row record) {
    return watermarks.isLate(at.partitionOf(record), at.timeOf(record));
  }

  /** Keep a record that is not late. */
  void hold(Row record) {
    int ends = held.size();
    held.add(at.timeOf(record), record);
    if (held.size() != ends) agendas.write(ONE, held);
  }

  /** Return the next record, which is held no longer; or null, if a partition may still have an earlier one. */
  Row next() {
    if (ready.isEmpty() && held.first() < watermarks.watermark()) {
      held.removeFirst().stream().sorted(Comparator.comparing(this::stampOf, Stamps::compare)).forEach(ready::add);
      agendas.write(ONE, held);
    }
    return ready.poll();
  }

  private Row stampOf(Row record) {
    return record.getStruct(at.stamp());
  }
}
