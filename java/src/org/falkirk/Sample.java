package org.falkirk;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A sample of the records of one partition, or of their results.
 *
 * <p>The offset alone decides whether a record belongs to a level, and each level has half of the records of the one below.
 * So two JVMs choose the same records, without a message between them: those of the higher of their two levels.
 */
final class Sample {
  /** At most so many entries are kept between two reports. */
  static final int MAX = 256;

  private static final int LEVEL_MAX = 40;
  /** Spreads offsets evenly over all numbers of 64 bits. */
  private static final long SPREAD = 0x9E3779B97F4A7C15L;

  /**
   * A record that was read, or results of one record. A record may have thousands of results, as the last one of a window
   * has, and a level excludes all of them or none. So those of similar times have one entry.
   *
   * @param distance from the time of the first result, as its number of bits.
   */
  private record Seen(long offset, String topic, int distance) {}

  private static final class Times {
    private final long firstMs;
    private long count, beyondMs;

    Times(long firstMs) {
      this.firstMs = firstMs;
    }

    void add(long atMs) {
      count++;
      beyondMs += atMs - firstMs;
    }

    long meanMs() {
      return firstMs + beyondMs / count;
    }
  }

  private final Map<Seen, Times> seen = new HashMap<>();
  private volatile int level;

  /** Returns whether the records of a level include this one. */
  static boolean isIn(long offset, int level) {
    return level == 0 || (offset + 1) * SPREAD >>> (Long.SIZE - level) == 0;
  }

  boolean wants(long offset) {
    return isIn(offset, level);
  }

  /** Takes in a record. `topic`: of its result; null: it is a record that was read. `max`: as {@link #MAX}, or less. */
  void add(long offset, long atMs, String topic, int max) {
    if (!wants(offset)) return;
    synchronized (this) {
      Times first = seen.get(new Seen(offset, topic, 0));
      long passedMs = first == null ? 0 : Math.max(0, atMs - first.firstMs);
      Seen mine = new Seen(offset, topic, Long.SIZE - Long.numberOfLeadingZeros(passedMs));
      if (!seen.containsKey(mine)) {
        while (seen.size() >= max && level < LEVEL_MAX) {
          int higher = level + 1;
          level = higher;
          seen.keySet().removeIf(each -> !isIn(each.offset, higher));
        }
        if (seen.size() >= max || !wants(offset)) return;
      }
      seen.computeIfAbsent(mine, each -> new Times(atMs)).add(atMs);
    }
  }

  /**
   * Adds what was taken in to a report, and begins anew: region, place, level, and of each entry the offset, the mean time,
   * the topic, and the number of results.
   */
  synchronized void take(String region, long place, List<Object[]> to) {
    if (!seen.isEmpty()) {
      int size = seen.size(), at = 0;
      long[] offsets = new long[size], times = new long[size], counts = new long[size];
      String[] topics = new String[size];
      for (Map.Entry<Seen, Times> each : seen.entrySet()) {
        offsets[at] = each.getKey().offset;
        topics[at] = each.getKey().topic;
        times[at] = each.getValue().meanMs();
        counts[at++] = each.getValue().count;
      }
      to.add(new Object[] {region, place, level, offsets, times, topics, counts});
      seen.clear();
    }
    if (level > 0) level--; // the rate may have fallen
  }
}
