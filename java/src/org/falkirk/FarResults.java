package org.falkirk;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * The results of a region of which another executor may have read the record, on this executor: samples of the records
 * that it reads, and of the results that it publishes. {@link ReportedFigures} brings both together.
 */
final class FarResults {
  /** How many results can wait for their publication; a power of two. */
  static final int KEPT = 1 << 12;

  private record Waiting(long number, long place, long offset) {}

  private final AtomicReferenceArray<Waiting> waiting = new AtomicReferenceArray<>(KEPT);
  private final AtomicLong last = new AtomicLong(1);
  private final Map<Long, Sample> read = new ConcurrentHashMap<>(), published = new ConcurrentHashMap<>();

  void read(long place, long offset, long atMs) {
    of(read, place).add(offset, atMs, null);
  }

  /** Returns a number below -1 for a result that the sample wants, otherwise -1. */
  long cause(long place, long offset) {
    if (!of(published, place).wants(offset)) return -1;
    long number = last.incrementAndGet();
    waiting.set((int) (number & (KEPT - 1)), new Waiting(number, place, offset));
    return -number;
  }

  /** Takes in that readers can see a result. `cause`: as of {@link #cause}. */
  void published(String topic, long cause, long nowMs) {
    Waiting found = waiting.get((int) (-cause & (KEPT - 1)));
    if (found == null || found.number != -cause) return; // too many came after it
    of(published, found.place).add(found.offset, nowMs, topic);
  }

  private static Sample of(Map<Long, Sample> samples, long place) {
    return samples.computeIfAbsent(place, each -> new Sample());
  }

  /** Adds the samples since the last call to the lists of a report: see {@link Sample#take}. */
  void take(String region, List<Object[]> read, List<Object[]> published) {
    this.read.forEach((place, sample) -> sample.take(region, place, read));
    this.published.forEach((place, sample) -> sample.take(region, place, published));
  }
}
