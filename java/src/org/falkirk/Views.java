package org.falkirk;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * The rows of views that live regions look up, in the memory of this JVM. An executor of a cluster gets them from the driver
 * ({@link ViewReceiver}).
 *
 * <p>An epoch is loaded first, and published later: between the two, the host records that regions may read it. A task
 * notes the epoch of a row ({@link NewestEpoch}) and then asks for its rows ({@link ViewRows}). So a former epoch stays for
 * a while after the next one was published ({@link FormerEpochs}).
 */
public final class Views {
  private static final Map<String, Versions> VIEWS = new ConcurrentHashMap<>();

  private Views() {}

  /** The epochs of one view. */
  private static final class Versions {
    private final Map<Long, Rows> rows = new ConcurrentHashMap<>();
    private final FormerEpochs former = new FormerEpochs();
    private final Map<Long, Long> loads = new HashMap<>();
    private volatile long newest = Long.MIN_VALUE;
  }

  /** The rows of one epoch, by each of the keys with which they are looked up. */
  private static final class Rows {
    private final Map<List<Integer>, Map<Object, Object[]>> byKey = new HashMap<>();
    private final long bytes;

    Rows(long bytes) {
      this.bytes = bytes;
    }
  }

  /**
   * Load an epoch. No task sees it yet.
   *
   * @param view the handle of the view.
   * @param keys the places of the columns of each key.
   * @return the number of rows.
   */
  public static int load(String view, long epoch, Dataset<?> data, List<List<Integer>> keys) {
    InternalRow[] rows = data.queryExecution().executedPlan().executeCollect();
    put(view, epoch, rows, keys, data.schema());
    return rows.length;
  }

  /** Load the rows of an epoch. */
  static void put(String view, long epoch, InternalRow[] rows, List<List<Integer>> keys, StructType schema) {
    VIEWS.computeIfAbsent(view, name -> new Versions()).rows.put(epoch, loaded(rows, keys, schema));
  }

  private static Rows loaded(InternalRow[] rows, List<List<Integer>> keys, StructType schema) {
    Rows loaded = new Rows(FormerEpochs.bytesOf(rows, keys.size()));
    for (List<Integer> key : keys) loaded.byKey.put(List.copyOf(key), indexed(rows, key, schema));
    return loaded;
  }

  /** Load an epoch on an executor, unless it is there. Args: load: tells epochs with one number apart. */
  static void receive(String view, long epoch, long load, Supplier<ViewEpoch> sent) {
    Versions versions = VIEWS.computeIfAbsent(view, name -> new Versions());
    if (Long.valueOf(load).equals(versions.loads.get(epoch))) return;
    ViewEpoch found = sent.get();
    StructType schema = (StructType) DataType.fromJson(found.schema());
    versions.rows.put(epoch, loaded(found.rows(), found.keys(), schema));
    versions.loads.put(epoch, load);
  }

  /** Read the newest epoch of the driver on an executor, and forget the epochs that the driver has forgotten. */
  static void replace(String view, long newest, List<Long> published) {
    Versions versions = VIEWS.get(view);
    versions.newest = newest;
    versions.rows.keySet().retainAll(published);
    versions.loads.keySet().retainAll(published);
  }

  /** Forget all other views on an executor. */
  static void keep(Set<String> views) {
    VIEWS.keySet().retainAll(views);
  }

  private static Map<Object, Object[]> indexed(InternalRow[] rows, List<Integer> key, StructType schema) {
    Map<Object, List<InternalRow>> found = new HashMap<>(rows.length * 2);
    DataType[] types = key.stream().map(place -> schema.apply(place).dataType()).toArray(DataType[]::new);
    int[] places = key.stream().mapToInt(Integer::intValue).toArray();
    for (InternalRow row : rows) {
      Object value = key(row, places, types);
      if (value != null) found.computeIfAbsent(value, each -> new ArrayList<>(1)).add(row);
    }
    Map<Object, Object[]> indexed = new HashMap<>(found.size() * 2);
    found.forEach((value, list) -> indexed.put(value, list.toArray()));
    return indexed;
  }

  /** Return the values of a row at some places as one object; null if one of them is null: it equals nothing. */
  static Object key(InternalRow row, int[] places, DataType[] types) {
    if (places.length == 1) return row.isNullAt(places[0]) ? null : row.get(places[0], types[0]);
    List<Object> values = new ArrayList<>(places.length);
    for (int i = 0; i < places.length; i++) {
      if (row.isNullAt(places[i])) return null;
      values.add(row.get(places[i], types[i]));
    }
    return values;
  }

  /** Let the rows that come read an epoch that is loaded, and forget those that were replaced long ago. */
  public static void publish(String view, long epoch) {
    publish(view, epoch, System.nanoTime(), FormerEpochs.bytesMax(VIEWS.size()));
  }

  /** As above, at a time. Args: bytesMax: the memory that the view's former epochs may use for longer. */
  static synchronized void publish(String view, long epoch, long nowNs, long bytesMax) {
    Versions versions = VIEWS.get(view);
    if (versions == null || !versions.rows.containsKey(epoch)) {
      throw new IllegalStateException("epoch " + epoch + " of " + view + " is not loaded");
    }
    Rows before = versions.rows.get(versions.newest);
    if (versions.newest != epoch && before != null) versions.former.add(versions.newest, before.bytes, nowNs);
    versions.former.remove(epoch);
    versions.newest = epoch;
    versions.former.forget(nowNs, bytesMax);
    // An epoch that became void was loaded in vain.
    versions.rows.keySet().removeIf(each -> each != epoch && !versions.former.contains(each));
  }

  /** Forget all epochs of the views whose handles begin with a text. */
  public static void forget(String prefix) {
    VIEWS.keySet().removeIf(view -> view.startsWith(prefix));
  }

  /** Return the newest published epoch of a view. */
  static long newest(String view) {
    Versions versions = VIEWS.get(view);
    if (versions == null || versions.newest == Long.MIN_VALUE) {
      throw new IllegalStateException("no epoch of " + view + " is published in this JVM");
    }
    return versions.newest;
  }

  /** Return the rows of an epoch by a key. */
  static Map<Object, Object[]> rows(String view, long epoch, List<Integer> key) {
    Map<Object, Object[]> found = known(view, epoch, key);
    // A row may come from an executor that learned of its epoch first.
    if (found == null && ViewReceiver.refresh()) found = known(view, epoch, key);
    if (found == null) throw new IllegalStateException("epoch " + epoch + " of " + view + " is not in this JVM any more");
    return found;
  }

  private static Map<Object, Object[]> known(String view, long epoch, List<Integer> key) {
    Versions versions = VIEWS.get(view);
    Rows rows = versions == null ? null : versions.rows.get(epoch);
    return rows == null ? null : rows.byKey.get(key);
  }
}
