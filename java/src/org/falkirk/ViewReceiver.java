package org.falkirk;

import java.util.List;
import java.util.Map;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.broadcast.Broadcast;

/**
 * The copies of views on an executor: fetches epochs from the driver's ViewSender.
 *
 * <p>Each task asks once before its first lookup: after a rollback of a view, its regions start again, and must not read what
 * became void. A thread asks again and again meanwhile. An executor that the driver does not answer reads an older epoch
 * for longer. That is right: the notes of the driver say which epochs a record may have read at most.
 */
final class ViewReceiver {
  private static final long LOOK_MS = 10;

  /** Null in a JVM that is no executor with {@link ClusterPlugin}. */
  private static volatile PluginContext driver;
  private static long known = -1;

  private ViewReceiver() {}

  static synchronized void begin(PluginContext context) {
    driver = context;
    known = -1;
  }

  static void end() {
    driver = null;
  }

  /** Learn what is published by now, if this JVM is an executor. Return whether it is one. */
  static boolean refresh() {
    if (driver == null) return false;
    fetch();
    Looking.begin();
    return true;
  }

  @SuppressWarnings("unchecked")
  private static synchronized void fetch() {
    PluginContext asked = driver;
    if (asked == null) return;
    Object[] answer;
    try {
      answer = (Object[]) asked.ask(known);
    } catch (Exception error) {
      throw new IllegalStateException("the driver does not say which epochs of views are published", error);
    }
    if (answer.length == 1) return;
    Map<String, Object[]> views = (Map<String, Object[]>) answer[1];
    views.forEach((view, about) -> {
      for (Object[] epoch : (List<Object[]>) about[1]) {
        Broadcast<ViewEpoch> data = (Broadcast<ViewEpoch>) epoch[2];
        Views.receive(view, (long) epoch[0], (long) epoch[1], data::value);
      }
      Views.replace(view, (long) about[0], ((List<Object[]>) about[1]).stream().map(each -> (long) each[0]).toList());
    });
    Views.keep(views.keySet());
    known = (long) answer[0];
  }

  /** The thread that asks, from the first lookup on. */
  private static final class Looking {
    private static final Thread THREAD = new Thread(Looking::look, "falkirk-views");

    static {
      THREAD.setDaemon(true);
      THREAD.start();
    }

    private Looking() {}

    static void begin() {}

    private static void look() {
      try {
        while (driver != null) {
          Thread.sleep(LOOK_MS);
          try {
            fetch();
          } catch (RuntimeException error) {
            // the next task, or the next look, asks again
          }
        }
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
      }
    }
  }
}
