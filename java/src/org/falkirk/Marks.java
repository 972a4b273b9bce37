package org.falkirk;

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
  private record Channel(String topic, int to, long source, long partition) {}

  private final Map<Channel, Stamp> greatest = new HashMap<>();

  private static Channel channel(String topic, int to, Stamp stamp) {
    return new Channel(topic, to, stamp.source(), stamp.partition());
  }

  /** Returns whether no twin has sent this result. */
  boolean isNew(String topic, int to, Stamp stamp) {
    Stamp mark = greatest.get(channel(topic, to, stamp));
    return mark == null || stamp.compareTo(mark) > 0;
  }

  /** Notes a result that was handed to the producer. */
  void raise(String topic, int to, Stamp stamp) {
    greatest.put(channel(topic, to, stamp), stamp);
  }

  /** Raises, in {@code reached}, the greatest offset by "source partition". */
  void reached(Map<String, Long> reached) {
    greatest.forEach((channel, stamp) ->
        reached.merge(channel.source + " " + channel.partition, stamp.offset(), Math::max));
  }
}
