package org.falkirk;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * The epochs of views that the executors of a cluster look up, in the driver's JVM: {@link Views} for executors.
 *
 * <p>Executors ask for what is published ({@link ViewReceiver}), and fetch the rows of an epoch as a broadcast. So they learn
 * of an epoch after the driver has published it, and never before.
 */
public final class ViewSender {
  private static final Map<String, Sent> VIEWS = new HashMap<>();
  private static long loads, changes;

  private ViewSender() {}

  /** An epoch. After a rollback, other rows may have the same number. Each load has another number. */
  private record Loaded(long load, long bytes, Broadcast<ViewEpoch> data) {}

  /** The epochs of one view. */
  private static final class Sent {
    private final Map<Long, Loaded> epochs = new HashMap<>();
    private final FormerEpochs former = new FormerEpochs();
    private long newest = Long.MIN_VALUE;

    private boolean isPublished(long epoch) {
      return epoch == newest || former.contains(epoch);
    }
  }

  /** Load an epoch. No task sees it yet. Arguments and result are those of {@link Views#load}. */
  public static int load(String view, long epoch, Dataset<?> data, List<List<Integer>> keys) {
    InternalRow[] rows = data.queryExecution().executedPlan().executeCollect();
    ArrayList<List<Integer>> places = new ArrayList<>();
    for (List<Integer> key : keys) places.add(new ArrayList<>(key));
    JavaSparkContext context = JavaSparkContext.fromSparkContext(data.sparkSession().sparkContext());
    long bytes = FormerEpochs.bytesOf(rows, keys.size());
    Broadcast<ViewEpoch> sent = context.broadcast(new ViewEpoch(data.schema().json(), places, rows));
    synchronized (ViewSender.class) {
      Sent epochs = VIEWS.computeIfAbsent(view, name -> new Sent());
      Loaded before = epochs.epochs.put(epoch, new Loaded(++loads, bytes, sent));
      if (before != null) before.data().destroy();
      if (epochs.isPublished(epoch)) changes++;
    }
    return rows.length;
  }

  /** Let the rows that come read an epoch that is loaded, and forget those that were replaced long ago. */
  public static synchronized void publish(String view, long epoch) {
    Sent sent = VIEWS.get(view);
    if (sent == null || !sent.epochs.containsKey(epoch)) {
      throw new IllegalStateException("epoch " + epoch + " of " + view + " is not loaded");
    }
    long nowNs = System.nanoTime();
    Loaded before = sent.epochs.get(sent.newest);
    if (sent.newest != epoch && before != null) sent.former.add(sent.newest, before.bytes(), nowNs);
    sent.former.remove(epoch);
    sent.newest = epoch;
    sent.former.forget(nowNs, FormerEpochs.bytesMax(VIEWS.size()));
    for (Iterator<Map.Entry<Long, Loaded>> all = sent.epochs.entrySet().iterator(); all.hasNext(); ) {
      Map.Entry<Long, Loaded> each = all.next();
      if (sent.isPublished(each.getKey())) continue;
      each.getValue().data().destroy();
      all.remove();
    }
    changes++;
  }

  /** Forget all epochs of the views whose handles begin with a text. */
  public static synchronized void forget(String prefix) {
    for (Iterator<Map.Entry<String, Sent>> all = VIEWS.entrySet().iterator(); all.hasNext(); ) {
      Map.Entry<String, Sent> each = all.next();
      if (!each.getKey().startsWith(prefix)) continue;
      for (Loaded loaded : each.getValue().epochs.values()) loaded.data().destroy();
      all.remove();
    }
    changes++;
  }

  /**
   * Return what is published: the number of changes, and unless it is `known` a map from views to the number of the newest
   * epoch and a list of epochs: their numbers, loads and rows. Classes of Falkirk can't be in the answer to an executor.
   */
  static synchronized Object[] published(long known) {
    if (known == changes) return new Object[] {changes};
    HashMap<String, Object[]> views = new HashMap<>();
    VIEWS.forEach((view, sent) -> {
      ArrayList<Object[]> epochs = new ArrayList<>();
      sent.epochs.forEach((epoch, loaded) -> {
        if (sent.isPublished(epoch)) epochs.add(new Object[] {epoch, loaded.load(), loaded.data()});
      });
      if (!epochs.isEmpty()) views.put(view, new Object[] {sent.newest, epochs});
    });
    return new Object[] {changes, views};
  }
}
