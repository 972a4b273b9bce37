package org.falkirk;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;

/** The lanes of this JVM. A lane stays open between the batches of its incarnation. */
public final class Lanes {
  private static final Map<String, Place> PLACES = new ConcurrentHashMap<>();
  /** By region: tasks of older incarnations get no lane. */
  private static final Map<String, Integer> OLDEST = new ConcurrentHashMap<>();

  private Lanes() {}

  /** The lane of one task of a region; at most one incarnation has it. */
  private static final class Place {
    volatile Lane lane;
  }

  /**
   * Returns the lane of a task.
   *
   * @param batch of the query. Spark may have run the last batch's task in another JVM, where it took the lane's id. Then
   *     this JVM's lane is fenced, and is opened again.
   */
  static Lane take(LaneSettings settings, int number, long batch) {
    if (number >= settings.lanes) {
      throw new IllegalStateException("task " + number + " has no lane: there are " + settings.lanes);
    }
    Place place = PLACES.computeIfAbsent(settings.region + "/" + number, name -> new Place());
    synchronized (place) {
      Lane known = place.lane;
      if (settings.incarnation < OLDEST.getOrDefault(settings.region, 0)) {
        throw new IllegalStateException("FALKIRK_FENCED: " + settings.incarnation + " has been replaced");
      }
      if (known != null && known.incarnation > settings.incarnation) {
        throw new IllegalStateException("incarnation " + known.incarnation + " has replaced " + settings.incarnation);
      }
      if (known == null || known.incarnation < settings.incarnation || known.isElsewhereBefore(batch)) {
        if (known != null) known.close();
        place.lane = null;
        place.lane = known = new Lane(settings, number);
      }
      known.enter(batch);
      return known;
    }
  }

  /** Notes that a task runs in this JVM which may not use its lane in this batch. */
  static void visit(LaneSettings settings, int number, long batch) {
    Place place = PLACES.get(settings.region + "/" + number);
    Lane known = place == null ? null : place.lane;
    if (known != null && known.incarnation == settings.incarnation) known.visit(batch);
  }

  /** Refuses tasks of older incarnations of a region. After that, {@link #inUse} reports all that have a lane. */
  public static void refuseBefore(String region, int incarnation) {
    OLDEST.put(region, incarnation);
    PLACES.forEach((name, place) -> {
      if (!isOf(name, region)) return;
      synchronized (place) {
        // A task that was taking a lane has it by now.
      }
    });
  }

  /** Returns whether a task uses a lane of this region. */
  public static boolean inUse(String region) {
    for (Map.Entry<String, Place> each : PLACES.entrySet()) {
      Lane lane = each.getValue().lane;
      if (isOf(each.getKey(), region) && lane != null && lane.isUsed()) return true;
    }
    return false;
  }

  /**
   * Returns what twins have sent: how many results were dropped because the other twin had sent them, and then, for each
   * partition of the input, source, partition and the greatest offset whose results were handed to a producer.
   */
  public static String reached(String region) {
    Map<String, Long> reached = new TreeMap<>();
    long[] dropped = {0};
    PLACES.forEach((name, place) -> {
      Lane lane = place.lane;
      if (isOf(name, region) && lane != null) dropped[0] += lane.reached(reached);
    });
    StringBuilder text = new StringBuilder().append(dropped[0]);
    reached.forEach((partition, offset) -> text.append(' ').append(partition).append(' ').append(offset));
    return text.toString();
  }

  /** Sends the rest of the records of a region's lanes, which no task uses, and closes them. */
  public static void close(String region) {
    Figures.forgetArrivals(region);
    PLACES.forEach((name, place) -> {
      synchronized (place) {
        if (!isOf(name, region) || place.lane == null) return;
        try {
          place.lane.finish();
        } catch (RuntimeException error) {
          // The lane has failed. Its query reports the error, or the next incarnation has fenced the lane.
        }
        place.lane.close();
        place.lane = null;
      }
    });
  }

  private static boolean isOf(String name, String region) {
    return name.substring(0, name.lastIndexOf('/')).equals(region);
  }
}
