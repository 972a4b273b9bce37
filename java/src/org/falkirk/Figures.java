package org.falkirk;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Counts the records that the lanes of a region have published, and measures their latency, in this JVM. The driver of a
 * cluster also has the counts that its executors have reported ({@link ReportedFigures}).
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

  /** Whether this JVM reports to its driver. Then another executor may have read the record of a result. */
  private static volatile boolean reports;

  /** The numbers of a stamp that are the place of its record. */
  private static final int PLACE = 3;

  private final Map<String, Written> written = new ConcurrentHashMap<>();
  private final Map<Long, Arrivals> arrivals = new ConcurrentHashMap<>();
  /** The number of joins of its query. */
  private volatile int joins;
  /** Null unless this JVM reports. */
  private final FarResults far;

  /** @param reports as of the JVM. */
  Figures(boolean reports) {
    far = reports ? new FarResults() : null;
  }

  /** The published records of one topic. The last count is of those above all bounds. */
  private static final class Written {
    final LongAdder records = new LongAdder(), sumMs = new LongAdder();
    final AtomicLongArray counts = new AtomicLongArray(BOUNDS_MS.length + 1);

    /** Returns the number of records, the sum of their latencies, and the counts. */
    ArrayList<Long> describe() {
      ArrayList<Long> numbers = new ArrayList<>(List.of(records.sum(), sumMs.sum()));
      for (int i = 0; i < counts.length(); i++) numbers.add(counts.get(i));
      return numbers;
    }
  }

  /** The records of one partition that were read. Several tasks may note at the same time. */
  private static final class Arrivals {
    final AtomicLongArray slots = new AtomicLongArray(KEPT);
    /** The greatest offset. */
    final AtomicLong reached = new AtomicLong(-1);
  }

  static Figures of(String region) {
    return REGIONS.computeIfAbsent(region, name -> new Figures(reports));
  }

  /** Sets the number of joins of the region's query. Its stamps name a record for each, besides the first one. */
  void joined(int joins) {
    this.joins = joins;
  }

  /** Has the figures of this JVM reported. Called before the first task begins. */
  static void report() {
    reports = true;
  }

  /**
   * Notes when a record was written that a region reads, and returns its offset: an expression of the query.
   *
   * @param crosses another executor may publish its results.
   */
  public static long note(
      UTF8String region, int source, int partition, long offset, long timestampUs, boolean crosses) {
    Figures figures = BY_TEXT.get(region);
    if (figures == null) {
      figures = of(region.toString());
      BY_TEXT.put(region.copy(), figures);
    }
    figures.note(source, partition, offset, timestampUs / 1000, crosses);
    return offset;
  }

  void note(int source, int partition, long offset, long atMs, boolean crosses) {
    arrived(source, partition, offset, atMs);
    if (crosses && far != null && atMs >= 0) far.read(place(source, partition), offset, atMs);
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

  /**
   * Returns the cause of a result for {@link #published}: the timestamp of its record in milliseconds; -1: it is not known;
   * less: another executor may have read the record.
   */
  long cause(byte[] header) {
    long[] numbers = numbers(header);
    if (numbers == null) return -1;
    long atMs = arrivedMs(numbers);
    return atMs >= 0 || far == null || isPair(numbers) ? atMs : far.cause(place(numbers[0], numbers[1]), numbers[2]);
  }

  private static boolean isPair(long[] numbers) {
    for (int i = PLACE; i < numbers.length; i += 2) {
      if (numbers[i] != 0) return true;
    }
    return false;
  }

  /** Returns the numbers of a result's stamp, as far as they name records; null: it is another header. */
  private long[] numbers(byte[] header) {
    int at = 0;
    for (int slashes = 0; slashes < 2; at++) {
      if (at >= header.length) return null;
      if (header[at] == '/') slashes++;
    }
    // source, partition, offset; for each join, the last one first: the right record's partition plus 1, and its offset
    long[] numbers = new long[PLACE + 2 * joins];
    int found = 0;
    for (; at < header.length && header[at] != '/'; at++) {
      if (header[at] == '.' && ++found == numbers.length) break;
      if (header[at] != '.') numbers[found] = numbers[found] * 10 + header[at] - '0';
    }
    return found < 2 ? null : numbers;
  }

  private long arrivedMs(long[] numbers) {
    long mine = arrivedMs(place(numbers[0], numbers[1]), numbers[2]);
    long last = mine;
    for (int i = PLACE; i < numbers.length; i += 2) {
      if (numbers[i] == 0) continue; // this join has found no record
      long other = arrivedMs(place((numbers.length - i) / 2, numbers[i] - 1), numbers[i + 1]);
      if (far != null && Math.min(mine, other) < 0) return -1; // another executor may have read the last one
      last = Math.max(last, other);
    }
    return last;
  }

  private long arrivedMs(long place, long offset) {
    Arrivals from = arrivals.get(place);
    if (from == null) return -1;
    long slot = from.slots.get((int) (offset & (KEPT - 1)));
    return slot != 0 && slot >>> TIME_BITS == lap(offset) ? slot & TIME_MASK : -1;
  }

  /** Counts a record that readers can see now. `cause`: as of {@link #cause}. */
  void published(String topic, long cause, long nowMs) {
    to(topic).records.increment();
    if (cause >= 0) measure(topic, nowMs - cause, 1);
    else if (cause < -1) far.published(topic, cause, nowMs);
  }

  private Written to(String topic) {
    return written.computeIfAbsent(topic, name -> new Written());
  }

  /** Takes in the latency of results. `weight`: how many results have it. */
  void measure(String topic, long latencyMs, long weight) {
    Written to = to(topic);
    long shownMs = Math.max(0, latencyMs); // clocks differ
    int place = Arrays.binarySearch(BOUNDS_MS, shownMs);
    to.counts.addAndGet(place < 0 ? -place - 1 : place, weight);
    to.sumMs.add(shownMs * weight);
  }

  /** Adds what an executor has counted since its last report. `before`: the numbers of that one; null: there is none. */
  void add(String topic, List<Long> now, List<Long> before) {
    Written to = to(topic);
    long[] more = new long[now.size()];
    for (int i = 0; i < more.length; i++) more[i] = now.get(i) - (before == null ? 0 : before.get(i));
    to.records.add(more[0]);
    to.sumMs.add(more[1]);
    for (int i = 0; i < to.counts.length(); i++) to.counts.addAndGet(i, more[i + 2]);
  }

  /** Returns the counts of this JVM for a report, by region and topic. */
  static HashMap<String, HashMap<String, ArrayList<Long>>> counts() {
    HashMap<String, HashMap<String, ArrayList<Long>>> regions = new HashMap<>();
    REGIONS.forEach((region, figures) -> figures.written.forEach((topic, to) ->
        regions.computeIfAbsent(region, name -> new HashMap<>()).put(topic, to.describe())));
    return regions;
  }

  /** Adds the samples of this JVM to the lists of a report. */
  static void takeSamples(List<Object[]> read, List<Object[]> published) {
    REGIONS.forEach((region, figures) -> figures.take(region, read, published));
  }

  void take(String region, List<Object[]> read, List<Object[]> published) {
    if (far != null) far.take(region, read, published);
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
