package org.falkirk;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.UUID;
import org.apache.spark.api.plugin.PluginContext;

/**
 * Reports the figures of an executor to its driver, where ReportedFigures takes them in.
 *
 * <p>A report has the counts since this JVM began, so a report that is lost or repeated changes no sum. It also has the
 * samples since the last report. So until the driver has confirmed a report, the same one is sent again, and no other.
 */
final class FiguresReporter {
  static final long PERIOD_MS = 1000;
  /** The id of the executor in the JVM of a driver with a local master. */
  private static final String DRIVER = "driver";

  private final PluginContext driver;
  /** A name that no other JVM has. Spark may give the id of an executor again. */
  private final String executor;
  private long number;
  /** The counts that the driver has. */
  private HashMap<String, HashMap<String, ArrayList<Long>>> known = new HashMap<>();
  /** A report that the driver has not confirmed; null: there is none. Classes of Falkirk can't be in it. */
  private Object[] sent;
  private Thread thread;

  FiguresReporter(PluginContext driver) {
    this.driver = driver;
    executor = driver.executorID() + "/" + UUID.randomUUID();
  }

  /** Begin to report. Returns null if this JVM is the driver: its figures are there already. */
  static FiguresReporter begin(PluginContext context) {
    if (DRIVER.equals(context.executorID())) return null;
    Figures.report();
    FiguresReporter made = new FiguresReporter(context);
    made.thread = new Thread(made::run, "falkirk-figures");
    made.thread.setDaemon(true);
    made.thread.start();
    return made;
  }

  void end() {
    thread.interrupt();
  }

  private void run() {
    try {
      while (true) {
        Thread.sleep(PERIOD_MS);
        report();
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  /** Send what has changed since the last report, or the report that the driver has not confirmed. */
  @SuppressWarnings("unchecked")
  void report() throws InterruptedException {
    if (sent == null) {
      HashMap<String, HashMap<String, ArrayList<Long>>> counts = Figures.counts();
      ArrayList<Object[]> read = new ArrayList<>(), published = new ArrayList<>();
      Figures.takeSamples(read, published);
      if (counts.equals(known) && read.isEmpty() && published.isEmpty()) return;
      sent = new Object[] {executor, ++number, counts, read, published};
    }
    try {
      if ((long) driver.ask(sent) < (long) sent[1]) return;
      known = (HashMap<String, HashMap<String, ArrayList<Long>>>) sent[2];
      sent = null;
    } catch (InterruptedException error) {
      throw error;
    } catch (Exception error) {
      // the driver is away or busy; the next round sends it again
    }
  }
}
