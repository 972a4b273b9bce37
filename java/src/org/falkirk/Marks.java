package org.falkirk;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * The results that the twins of a region have sent in one lane: the greatest stamp of each channel.
 *
 * <p>Twins are two queries that compute the same results at different times. In each channel both compute them in the same
 * order, so a result is new if its stamp is above the mark of its channel. A channel ends at an output partition: the
 * records that readers see are a prefix of the sent ones only within one.
 *
 * <p>Not thread-safe: a lane's lock guards it.
 */
final class Marks {
  private static final int SOURCE = 0, PARTITION = 1, OFFSET = 2;

  private record Channel(String topic, int to, long source, long partition) {}

  private final Map<Channel, long[]> greatest = new HashMap<>();

  /** Returns the numbers of the stamp in a header, as {@link Stamp} has them. */
  static long[] stamp(byte[] header) {
    int at = 0;
    for (int slashes = 0; slashes < 2; at++) {
      if (at >= header.length) throw new IllegalArgumentException("a header without a stamp");
      if (header[at] == '/') slashes++;
    }
    long[] numbers = new long[8];
    int found = 0;
    for (; at < header.length && header[at] != '/'; at++) {
      if (header[at] != '.') numbers[found] = numbers[found] * 10 + header[at] - '0';
      else if (++found == numbers.length) numbers = Arrays.copyOf(numbers, 2 * found);
    }
    if (found < OFFSET) throw new IllegalArgumentException("a header without a stamp");
    return Arrays.copyOf(numbers, found + 1);
  }

  /** Returns the source partition of a stamp. */
  static int partition(long[] stamp) {
    return (int) stamp[PARTITION];
  }

  private static Channel channel(String topic, int to, long[] stamp) {
    return new Channel(topic, to, stamp[SOURCE], stamp[PARTITION]);
  }

  /** Returns whether no twin has sent this result. */
  boolean isNew(String topic, int to, long[] stamp) {
    long[] mark = greatest.get(channel(topic, to, stamp));
    return mark == null || Arrays.compare(stamp, mark) > 0;
  }

  /** Notes a result that was handed to the producer. */
  void raise(String topic, int to, long[] stamp) {
    greatest.put(channel(topic, to, stamp), stamp);
  }

  /** Raises, in {@code reached}, the greatest offset by "source partition". */
  void reached(Map<String, Long> reached) {
    greatest.forEach((channel, stamp) ->
        reached.merge(channel.source + " " + channel.partition, stamp[OFFSET], Math::max));
  }
}
