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
 * <p>If states expire, a late record has its request in the column {@link #late} instead of an answer.
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
  private final StateExpiry expiry;
  private final String late;
  private transient int at, keyAt, stampAt, partitionAt;
  private transient Table states;
  private transient PythonCalls calls;

  /**
   * @param column the BINARY column with the request; null for a bad record.
   * @param key the STRUCT column with the key.
   * @param stamp a STRUCT column with the field `partition`.
   * @param expiry when states expire; null: they don't.
   * @param late the name of the added column, if states expire.
   */
  public PythonState(
      String column, String key, String stamp, PythonCommand command, StateExpiry expiry, String late) {
    this.column = column;
    this.key = key;
    this.stamp = stamp;
    this.command = command;
    this.expiry = expiry;
    this.late = late;
  }

  @Override
  public StructType results(StructType records) {
    return expiry == null ? records : records.add(late, "binary");
  }

  @Override
  public void open(StructType records, Tables tables) {
    at = records.fieldIndex(column);
    keyAt = records.fieldIndex(key);
    stampAt = records.fieldIndex(stamp);
    partitionAt = ((StructType) records.apply(stampAt).dataType()).fieldIndex("partition");
    states = tables.table("states", (StructType) records.apply(keyAt).dataType(), STATE);
    if (expiry != null) expiry.open(records, (StructType) records.apply(keyAt).dataType(), tables);
    if (TaskContext.get() != null) calls = new PythonCalls(command); // the driver opens it to learn the tables
  }

  @Override
  public Iterator<Row> take(Row record) {
    if (expiry != null && expiry.isTimeRow(record)) {
      expiry.move(record, states::remove);
      return Collections.emptyIterator();
    }
    if (record.isNullAt(at)) return one(record, null, null);
    if (expiry != null) {
      expiry.move(record, states::remove);
      if (expiry.isLate(record)) return one(record, null, (byte[]) record.get(at));
    }
    Row found = record.getStruct(keyAt);
    int partition = record.getStruct(stampAt).getInt(partitionAt);
    Row known = states.get(found);
    if (known != null && known.getInt(0) != partition) {
      throw new IllegalStateException(FirstOfKey.splitKey(known.getInt(0), partition, found));
    }
    if (calls == null) calls = new PythonCalls(command);
    byte[] answer = calls.call(request(known == null ? null : (byte[]) known.get(1), (byte[]) record.get(at)));
    int size = ByteBuffer.wrap(answer).getInt();
    int rest = Integer.BYTES + Math.max(0, size);
    if (size == NONE && known != null) {
      states.remove(found);
      if (expiry != null) expiry.forget(found);
    } else if (size >= 0) {
      states.put(found, RowFactory.create(partition, Arrays.copyOfRange(answer, Integer.BYTES, rest)));
      if (expiry != null) expiry.keep(found, record);
    } else if (size < KEPT) {
      throw new IllegalStateException(size + " is not the size of a state");
    }
    return one(record, Arrays.copyOfRange(answer, rest, answer.length), null);
  }

  private static byte[] request(byte[] state, byte[] row) {
    ByteBuffer request = ByteBuffer.allocate(Integer.BYTES + (state == null ? 0 : state.length) + row.length);
    request.putInt(state == null ? NONE : state.length);
    if (state != null) request.put(state);
    return request.put(row).array();
  }

  private Iterator<Row> one(Row record, byte[] answer, byte[] lateRequest) {
    Object[] values = new Object[record.size() + (expiry == null ? 0 : 1)];
    for (int i = 0; i < record.size(); i++) {
      values[i] = i == at ? answer : record.get(i);
    }
    if (expiry != null) values[record.size()] = lateRequest;
    return Collections.singleton(RowFactory.create(values)).iterator();
  }
}
