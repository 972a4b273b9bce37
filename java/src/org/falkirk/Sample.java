package org.falkirk;

import java.util.ArrayList;
import java.util.List;

/**
 * A sample of the records of one partition, or of their results.
 *
 * <p>The offset alone decides whether a record belongs to a level, and each level has half of the records of the one below.
 * So two JVMs choose the same records, without a message between them: those of the higher of their two levels.
 */
final class Sample {
  /** At most so many are kept between two reports. */
  static final int MAX = 256;

  private static final int LEVEL_MAX = 40;
  /** Spreads offsets evenly over all numbers of 64 bits. */
  private static final long SPREAD = 0x9E3779B97F4A7C15L;

  private record Seen(long offset, long atMs, String topic) {}

  private final List<Seen> seen = new ArrayList<>();
  private volatile int level;

  /** Returns whether the records of a level include this one. */
  static boolean isIn(long offset, int level) {
    return level == 0 || (offset + 1) * SPREAD >>> (Long.SIZE - level) == 0;
  }

  boolean wants(long offset) {
    return isIn(offset, level);
  }

  /** Takes in a record. `topic`: of its result; null: it is a record that was read. */
  void add(long offset, long atMs, String topic) {
    if (!wants(offset)) return;
    synchronized (this) {
      while (seen.size() >= MAX && level < LEVEL_MAX) {
        int higher = level + 1;
        level = higher;
        seen.removeIf(each -> !isIn(each.offset, higher));
      }
      if (seen.size() < MAX && wants(offset)) seen.add(new Seen(offset, atMs, topic));
    }
  }

  /** Adds what was taken in to a report, and begins anew: region, place, level, offsets, times and topics. */
  synchronized void take(String region, long place, List<Object[]> to) {
    if (!seen.isEmpty()) {
      long[] offsets = seen.stream().mapToLong(Seen::offset).toArray();
      long[] times = seen.stream().mapToLong(Seen::atMs).toArray();
      String[] topics = seen.stream().map(Seen::topic).toArray(String[]::new);
      to.add(new Object[] {region, place, level, offsets, times, topics});
      seen.clear();
    }
    if (level > 0) level--; // the rate may have fallen
  }
}
