package org.falkirk;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * A keyed step of a live region that calls Python with each record and the state of its key.
 *
 * <p>A request is the state as bytes, before them their size in four bytes (NONE: the key has no state), and the request of
 * the record. An answer is the new state in the same form (KEPT: as before), and the answer of the record. A result is the
 * record with the answer in place of its request. The process keeps no state, so another one can answer instead.
 *
 * <p>If states expire or have timers, or records have an order, a late record has its request in the column {@link #late}
 * instead of an answer.
 *
 * <p>If they have timers, eight bytes are before all that. Those of a request are the time of a timer that fires, whose
 * request has no record; or {@link StateTimes#NONE}. Those of an answer are the new timer, {@link StateTimes#NONE} or
 * {@link StateTimes#KEPT}. A timer fires before the record that makes it due, or right after the record that sets it, if it
 * is due by then. The result of a timer has the stamp of the record that makes it due. The column {@link #turn} has the
 * place of the call among those with this stamp in the state partition.
 *
 * <p>If records have an order, a record waits in the state until {@link TimeOrder} gives it. Its result has its own stamp.
 */
public final class PythonState implements Operator {
  private static final long serialVersionUID = 1L;
  private static final int NONE = -1;
  private static final int KEPT = -2;
  private static final StructType STATE = StructType.fromDDL("partition INT, state BINARY");

  private final String column;
  private final String key;
  private final String stamp;
  private final PythonCommand command;
  private final StateTimes times;
  private final String late;
  private final String turn;
  private final TimeOrder order;
  private transient int at, keyAt, stampAt, partitionAt;
  private transient Table states;
  private transient PythonCalls calls;

  /**
   * @param column the BINARY column with the request; null for a bad record.
   * @param key the STRUCT column with the key.
   * @param stamp a STRUCT column with the field `partition`.
   * @param times when states expire and timers fire; null: never.
   * @param late the name of the added column, if `times` is not null.
   * @param turn the name of the other added column, if there are timers, else null.
   */
  public PythonState(
      String column, String key, String stamp, PythonCommand command, StateTimes times, String late, String turn) {
    this(column, key, stamp, command, times, late, turn, null);
  }

  private PythonState(
      String column, String key, String stamp, PythonCommand command, StateTimes times, String late, String turn,
      TimeOrder order) {
    this.column = column;
    this.key = key;
    this.stamp = stamp;
    this.command = command;
    this.times = times;
    this.late = late;
    this.turn = turn;
    this.order = order;
  }

  /** Return a step whose states neither expire nor have timers, and which gets the records in an order. */
  public static PythonState inOrder(
      String column, String key, String stamp, PythonCommand command, TimeOrder order, String late) {
    return new PythonState(column, key, stamp, command, null, late, null, order);
  }

  @Override
  public boolean usesTime() {
    return hasLate();
  }

  @Override
  public StructType results(StructType records) {
    StructType columns = records.asNullable(); // the result of a timer has no values of a record
    if (hasLate()) columns = columns.add(late, "binary");
    return turn == null ? columns : columns.add(turn, "int");
  }

  @Override
  public void open(StructType records, Tables tables) {
    at = records.fieldIndex(column);
    keyAt = records.fieldIndex(key);
    stampAt = records.fieldIndex(stamp);
    partitionAt = ((StructType) records.apply(stampAt).dataType()).fieldIndex("partition");
    states = tables.table("states", (StructType) records.apply(keyAt).dataType(), STATE);
    if (times != null) times.open(records, (StructType) records.apply(keyAt).dataType(), tables);
    if (order != null) order.open(records, tables);
    if (TaskContext.get() != null) calls = new PythonCalls(command); // the driver opens it to learn the tables
  }

  @Override
  public Iterator<Row> take(Row record) {
    if (times != null && times.isTimeRow(record)) {
      times.move(record);
      return new Results(record, false);
    }
    if (order != null && order.isTimeRow(record)) {
      order.move(record);
      return new InOrder();
    }
    if (record.isNullAt(at)) return one(result(record, null, null, 0));
    if (order != null) return waiting(record);
    if (times == null) return one(called(record));
    times.move(record);
    if (times.isLate(record)) return one(result(record, null, (byte[]) record.get(at), 0));
    return new Results(record, true);
  }

  /** Return a late record, or the results of the records that leave now. */
  private Iterator<Row> waiting(Row record) {
    order.move(record);
    if (order.isLate(record)) return one(result(record, null, (byte[]) record.get(at), 0));
    order.hold(record);
    return new InOrder();
  }

  /** The results of the records that leave now. */
  private final class InOrder implements Iterator<Row> {
    private Row following = order.next();

    @Override
    public boolean hasNext() {
      return following != null;
    }

    @Override
    public Row next() {
      Row found = called(following);
      following = order.next();
      return found;
    }
  }

  private boolean hasLate() {
    return times != null || order != null;
  }

  /** The results of a row: of the timers that it makes due, of the record itself, and of a timer that is due after it. */
  private final class Results implements Iterator<Row> {
    private final Row cause;
    private boolean isWaiting;
    private Row ready;

    /** Args: isRecord: the row is no time row. */
    Results(Row cause, boolean isRecord) {
      this.cause = cause;
      isWaiting = isRecord;
    }

    @Override
    public boolean hasNext() {
      while (ready == null) {
        StateTimes.Due due = times.next(cause);
        if (due == null && !isWaiting) return false;
        if (due == null) {
          isWaiting = false;
          ready = called(cause);
        } else if (due.isTimer()) {
          ready = fired(due, cause);
        } else {
          states.remove(due.key());
        }
      }
      return true;
    }

    @Override
    public Row next() {
      hasNext();
      Row found = ready;
      ready = null;
      return found;
    }
  }

  /** Return the result of a record. */
  private Row called(Row record) {
    Row found = record.getStruct(keyAt);
    int partition = record.getStruct(stampAt).getInt(partitionAt);
    Row known = states.get(found);
    if (order == null && known != null && known.getInt(0) != partition) {
      throw new IllegalStateException(FirstOfKey.splitKey(known.getInt(0), partition, found));
    }
    Answer answer = new Answer(call(StateTimes.NONE, known, (byte[]) record.get(at)));
    save(found, partition, known, answer);
    if (times != null && answer.size >= 0) times.keep(found, record, answer.timer);
    return result(record, answer.rest, null, turn == null ? 0 : times.turn(record));
  }

  /** Return the result of a timer. It has no value in the columns of the record. */
  private Row fired(StateTimes.Due due, Row cause) {
    Row known = states.get(due.key());
    Answer answer = new Answer(call(due.time(), known, new byte[0]));
    save(due.key(), known.getInt(0), known, answer);
    if (answer.size != NONE) times.keepAfterTimer(due.key(), cause, answer.timer);
    Object[] values = new Object[cause.size()];
    values[keyAt] = due.key();
    values[stampAt] = cause.get(stampAt);
    return result(RowFactory.create(values), answer.rest, null, times.turn(cause));
  }

  private void save(Row found, int partition, Row known, Answer answer) {
    if (answer.size == NONE && known != null) {
      states.remove(found);
      if (times != null) times.forget(found);
    } else if (answer.size >= 0) {
      states.put(found, RowFactory.create(partition, answer.state));
    } else if (answer.size < KEPT) {
      throw new IllegalStateException(answer.size + " is not the size of a state");
    }
  }

  private byte[] call(long timer, Row known, byte[] row) {
    byte[] state = known == null ? null : (byte[]) known.get(1);
    int sizes = Integer.BYTES + (turn == null ? 0 : Long.BYTES);
    ByteBuffer request = ByteBuffer.allocate(sizes + (state == null ? 0 : state.length) + row.length);
    if (turn != null) request.putLong(timer);
    request.putInt(state == null ? NONE : state.length);
    if (state != null) request.put(state);
    if (calls == null) calls = new PythonCalls(command);
    return calls.call(request.put(row).array());
  }

  /** The parts of an answer. */
  private final class Answer {
    private final long timer;
    private final int size;
    private final byte[] state;
    private final byte[] rest;

    Answer(byte[] bytes) {
      ByteBuffer read = ByteBuffer.wrap(bytes);
      timer = turn == null ? StateTimes.NONE : read.getLong();
      size = read.getInt();
      state = new byte[Math.max(0, size)];
      read.get(state);
      rest = Arrays.copyOfRange(bytes, read.position(), bytes.length);
    }
  }

  private Row result(Row record, byte[] answer, byte[] lateRequest, int place) {
    Object[] values = new Object[record.size() + (hasLate() ? 1 : 0) + (turn == null ? 0 : 1)];
    for (int i = 0; i < record.size(); i++) {
      values[i] = i == at ? answer : record.get(i);
    }
    if (hasLate()) values[record.size()] = lateRequest;
    if (turn != null) values[record.size() + 1] = place;
    return RowFactory.create(values);
  }

  private static Iterator<Row> one(Row result) {
    return Collections.singleton(result).iterator();
  }
}
