package org.falkirk;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Takes in the reports of executors: adds their counts to the {@link Figures} of this JVM, the driver's.
 *
 * <p>A report has the counts since the executor's JVM began. The difference from its last report is added,
 * so the counts of an executor that has ended stay, and those of its successor are added to them. A report that is not newer than the
 * last one of its executor is ignored.
 *
 * <p>If one executor reads a record and another one publishes its result, neither knows the latency. Both report samples
 * ({@link Sample}). Here they meet, and each result that is found stands for all that its sample has left out.
 */
final class ReportedFigures {
  static final ReportedFigures DRIVER = new ReportedFigures();
  /** So many records and so many results of a partition wait for each other. */
  static final int KEPT = 1 << 11;

  /** The last report of an executor: its number, and its counts by region and topic. */
  private static final class Last {
    private long number;
    private Map<String, HashMap<String, ArrayList<Long>>> counts = Map.of();

    private List<Long> of(String region, String topic) {
      HashMap<String, ArrayList<Long>> topics = counts.get(region);
      return topics == null ? null : topics.get(topic);
    }
  }

  private record Place(String region, long place) {}

  private record Read(long atMs, int level) {}

  private record Published(String topic, long atMs, int level) {}

  /** The newest entries of a map. */
  private static final class Newest<T> extends LinkedHashMap<Long, T> {
    private static final long serialVersionUID = 1L;

    @Override
    protected boolean removeEldestEntry(Map.Entry<Long, T> eldest) {
      return size() > KEPT;
    }
  }

  /** The records and results of a partition, by offset. */
  private static final class Meeting {
    private final Newest<Read> read = new Newest<>();
    private final Newest<List<Published>> waiting = new Newest<>();
  }

  private final Map<String, Last> executors = new HashMap<>();
  private final Map<Place, Meeting> meetings = new HashMap<>();

  /** Takes in a report of {@link FiguresReporter}, and returns the number of the newest one of its executor. */
  @SuppressWarnings("unchecked")
  synchronized long take(Object[] report) {
    Last last = executors.computeIfAbsent((String) report[0], name -> new Last());
    long number = (long) report[1];
    if (number <= last.number) return last.number;
    var counts = (HashMap<String, HashMap<String, ArrayList<Long>>>) report[2];
    counts.forEach((region, topics) -> topics.forEach((topic, now) ->
        Figures.of(region).add(topic, now, last.of(region, topic))));
    ((List<Object[]>) report[3]).forEach(this::read);
    ((List<Object[]>) report[4]).forEach(this::published);
    last.number = number;
    last.counts = counts;
    return number;
  }

  private void read(Object[] sample) {
    String region = (String) sample[0];
    Meeting meeting = meetingOf(sample);
    long[] offsets = (long[]) sample[3], times = (long[]) sample[4];
    for (int i = 0; i < offsets.length; i++) {
      Read read = new Read(times[i], (int) sample[2]);
      meeting.read.put(offsets[i], read);
      List<Published> waiting = meeting.waiting.remove(offsets[i]);
      if (waiting != null) waiting.forEach(each -> measure(region, read, each));
    }
  }

  private void published(Object[] sample) {
    Meeting meeting = meetingOf(sample);
    long[] offsets = (long[]) sample[3], times = (long[]) sample[4];
    String[] topics = (String[]) sample[5];
    for (int i = 0; i < offsets.length; i++) {
      Published published = new Published(topics[i], times[i], (int) sample[2]);
      Read read = meeting.read.get(offsets[i]);
      if (read != null) measure((String) sample[0], read, published);
      else meeting.waiting.computeIfAbsent(offsets[i], offset -> new ArrayList<>()).add(published);
    }
  }

  private Meeting meetingOf(Object[] sample) {
    return meetings.computeIfAbsent(new Place((String) sample[0], (long) sample[1]), place -> new Meeting());
  }

  private static void measure(String region, Read read, Published published) {
    long weight = 1L << Math.max(read.level, published.level);
    Figures.of(region).measure(published.topic, published.atMs - read.atMs, weight);
  }
}
