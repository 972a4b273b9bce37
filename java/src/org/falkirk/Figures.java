package org.falkirk;

import java.util.Arrays;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Counts the records that the lanes of a region have published, and measures their latency, in this JVM.
 *
 * <p>The latency is the time from the timestamp of a record that the region reads until its result is visible. The
 * query calls {@link #note} for each record that it reads. A result's header names that record by source, partition and
 * offset. That of a pair of a join names both records, and the later of them counts. Only the newest records of a
 * partition are kept: a result of an older one is counted, but not measured.
 */
public final class Figures {
  /** The upper bounds of the buckets in milliseconds: `falkirk/runtime/spark/figures.py` has the same. */
  static final long[] BOUNDS_MS = {
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000
  };
  /** How many records of a partition are kept; a power of two. */
  static final int KEPT = 1 << 13;

  private static final int KEPT_BITS = Integer.numberOfTrailingZeros(KEPT);
  /** A slot has the time in its lower bits, enough until the year 2109, and the offset's next bits above. */
  private static final int TIME_BITS = 42;
  private static final long TIME_MASK = (1L << TIME_BITS) - 1, LAP_MASK = (1L << (Long.SIZE - TIME_BITS)) - 1;

  private static final Map<String, Figures> REGIONS = new ConcurrentHashMap<>();
  /** The same figures by the text that a query has. */
  private static final Map<UTF8String, Figures> BY_TEXT = new ConcurrentHashMap<>();

  private final Map<String, Written> written = new ConcurrentHashMap<>();
  private final Map<Long, Arrivals> arrivals = new ConcurrentHashMap<>();
  /** Whether its query joins two sources. */
  private volatile boolean joins;

  private Figures() {}

  /** The published records of one topic. The last count is of those above all bounds. */
  private static final class Written {
    final LongAdder records = new LongAdder(), sumMs = new LongAdder();
    final AtomicLongArray counts = new AtomicLongArray(BOUNDS_MS.length + 1);
  }

  /** The records of one partition that were read. Several tasks may note at the same time. */
  private static final class Arrivals {
    final AtomicLongArray slots = new AtomicLongArray(KEPT);
    /** The greatest offset. */
    final AtomicLong reached = new AtomicLong(-1);
  }

  static Figures of(String region) {
    return REGIONS.computeIfAbsent(region, name -> new Figures());
  }

  /** Sets whether the query of a region joins two sources. Then its stamps name two records. */
  public static void joined(String region, boolean joins) {
    of(region).joins = joins;
  }

  /** Notes when a record was written that a region reads, and returns its offset: an expression of the query. */
  public static long note(UTF8String region, int source, int partition, long offset, long timestampUs) {
    Figures figures = BY_TEXT.get(region);
    if (figures == null) {
      figures = of(region.toString());
      BY_TEXT.put(region.copy(), figures);
    }
    figures.arrived(source, partition, offset, timestampUs / 1000);
    return offset;
  }

  void arrived(int source, int partition, long offset, long atMs) {
    Arrivals to = arrivals.computeIfAbsent(place(source, partition), p -> new Arrivals());
    if (offset > to.reached.getPlain()) to.reached.setRelease(offset);
    if (atMs < 0) return; // Kafka has no timestamp of it
    to.slots.set((int) (offset & (KEPT - 1)), lap(offset) << TIME_BITS | (atMs & TIME_MASK));
  }

  private static long place(long source, long partition) {
    return source << Integer.SIZE | partition;
  }

  private static long lap(long offset) {
    return (offset >>> KEPT_BITS) & LAP_MASK;
  }

  /** Returns the timestamp of the record that caused a result, in milliseconds; -1: it is not known. */
  long arrivedMs(byte[] header) {
    int at = 0;
    for (int slashes = 0; slashes < 2; at++) {
      if (at >= header.length) return -1;
      if (header[at] == '/') slashes++;
    }
    long[] numbers = {0, 0, 0, 0, 0}; // source, partition, offset; of a pair: right partition plus 1, right offset
    int found = 0;
    for (; at < header.length && header[at] != '/'; at++) {
      if (header[at] == '.' && ++found == numbers.length) break;
      if (header[at] != '.') numbers[found] = numbers[found] * 10 + header[at] - '0';
    }
    if (found < 2) return -1;
    long mine = arrivedMs(place(numbers[0], numbers[1]), numbers[2]);
    // In the stamps of other regions these numbers are sub-indexes.
    return numbers[3] == 0 || !joins ? mine : Math.max(mine, arrivedMs(place(1, numbers[3] - 1), numbers[4]));
  }

  private long arrivedMs(long place, long offset) {
    Arrivals from = arrivals.get(place);
    if (from == null) return -1;
    long slot = from.slots.get((int) (offset & (KEPT - 1)));
    return slot != 0 && slot >>> TIME_BITS == lap(offset) ? slot & TIME_MASK : -1;
  }

  /** Counts a record that readers can see now. `arrivedMs`: as of {@link #arrivedMs}. */
  void published(String topic, long arrivedMs, long nowMs) {
    Written to = written.computeIfAbsent(topic, name -> new Written());
    to.records.increment();
    if (arrivedMs < 0) return;
    long latencyMs = Math.max(0, nowMs - arrivedMs); // clocks differ
    int place = Arrays.binarySearch(BOUNDS_MS, latencyMs);
    to.counts.incrementAndGet(place < 0 ? -place - 1 : place);
    to.sumMs.add(latencyMs);
  }

  /** Forgets the records that a region has read, once no query of it runs. The counts stay. */
  static void forgetArrivals(String region) {
    Figures figures = REGIONS.get(region);
    if (figures != null) figures.arrivals.clear();
  }

  /**
   * Returns how far a region has read since its query began, as JSON: source, partition and greatest offset of each
   * partition of which it has read a record.
   */
  public static String reached(String region) {
    StringJoiner places = new StringJoiner(",", "[", "]");
    Figures figures = REGIONS.get(region);
    if (figures == null) return "[]";
    figures.arrivals.forEach((place, from) ->
        places.add("[" + (place >> Integer.SIZE) + "," + place.intValue() + "," + from.reached.get() + "]"));
    return places.toString();
  }

  /** Returns the figures of the regions whose names begin so, as JSON: region, topic, and what is counted. */
  public static String describe(String prefix) {
    StringJoiner regions = new StringJoiner(",", "{", "}");
    REGIONS.forEach((region, figures) -> {
      if (region.startsWith(prefix)) regions.add(quoted(region) + ":" + figures.describe());
    });
    return regions.toString();
  }

  private String describe() {
    StringJoiner topics = new StringJoiner(",", "{", "}");
    written.forEach((topic, to) -> topics.add(quoted(topic) + ":{\"records\":" + to.records.sum() + ",\"counts\":"
        + to.counts + ",\"sum_ms\":" + to.sumMs.sum() + "}"));
    return topics.toString();
  }

  private static String quoted(String text) {
    return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
  }
}
