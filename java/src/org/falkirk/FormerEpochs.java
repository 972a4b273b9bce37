package org.falkirk;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * The epochs of a view that a newer one has replaced, and which of them stay in memory.
 *
 * <p>A row notes an epoch and asks for its rows later. In between, Python functions may answer, and the row may wait behind
 * others. So an epoch stays as long as a region may take before it counts as hanging, if there is memory for it. Without
 * Python, a row asks at once.
 */
final class FormerEpochs {
  /** How long a former epoch stays in any case. */
  static final long KEPT_NS = 10_000_000_000L;
  /** How long it stays if there is memory for it. By default a region hangs after 3.5 minutes at the latest. */
  static final long KEPT_LONG_NS = 600_000_000_000L;
  /** The memory that all former epochs of a JVM may use together. */
  private static final long BYTES_MAX = Runtime.getRuntime().maxMemory() / 10;
  /** A row in a hash map, besides its values. */
  private static final long ROW_BYTES = 100;

  /** Args: replacedAtNs: when a newer epoch was published. */
  private record Former(long replacedAtNs, long bytes) {}

  /** In the order in which they were replaced. */
  private final LinkedHashMap<Long, Former> epochs = new LinkedHashMap<>();

  /** Return how much memory rows use. Args: keys: how many maps have them. */
  static long bytesOf(InternalRow[] rows, int keys) {
    long bytes = ROW_BYTES * rows.length * keys;
    for (InternalRow row : rows) bytes += row instanceof UnsafeRow known ? known.getSizeInBytes() : ROW_BYTES;
    return bytes;
  }

  /** Return how much memory the former epochs of a view may use for longer. Args: views: how many there are. */
  static long bytesMax(int views) {
    return BYTES_MAX / Math.max(1, views);
  }

  /** A newer epoch was published. */
  void add(long epoch, long bytes, long nowNs) {
    epochs.remove(epoch);
    epochs.put(epoch, new Former(nowNs, bytes));
  }

  /** The epoch is the newest one again. */
  void remove(long epoch) {
    epochs.remove(epoch);
  }

  boolean contains(long epoch) {
    return epochs.containsKey(epoch);
  }

  /**
   * Forget those that were replaced long ago, the oldest first.
   *
   * @param bytesMax what the others may use.
   */
  void forget(long nowNs, long bytesMax) {
    long bytes = 0;
    List<Long> oldestFirst = new ArrayList<>(epochs.keySet());
    for (int i = oldestFirst.size() - 1; i >= 0; i--) {
      long epoch = oldestFirst.get(i);
      Former former = epochs.get(epoch);
      long sinceNs = nowNs - former.replacedAtNs();
      bytes += former.bytes();
      if (sinceNs > KEPT_LONG_NS || sinceNs > KEPT_NS && bytes > bytesMax) epochs.remove(epoch);
    }
  }
}
