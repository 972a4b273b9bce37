package org.falkirk;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * The Python processes of this JVM that no task uses. They outlive the batches of a query, since loading a
 * function may take seconds.
 *
 * <p>A process that nobody has used for a minute is ended.
 */
final class PythonWorkers {
  private static final long KEPT_NS = TimeUnit.MINUTES.toNanos(1);
  private static final long LOOK_MS = TimeUnit.SECONDS.toMillis(10);
  private static final Map<PythonCommand, Deque<Idle>> IDLE = new HashMap<>();
  private static Thread sweeper;

  private PythonWorkers() {}

  private record Idle(PythonWorker worker, long sinceNs) {}

  /** Return a process of a command, which nobody else uses. */
  static PythonWorker take(PythonCommand command) throws IOException {
    synchronized (IDLE) {
      Deque<Idle> idle = IDLE.getOrDefault(command, new ArrayDeque<>());
      while (!idle.isEmpty()) {
        PythonWorker worker = idle.pop().worker();
        if (worker.isAlive()) return worker;
        worker.close();
      }
    }
    return new PythonWorker(command);
  }

  /** Give back a process that has answered all requests. */
  static void give(PythonCommand command, PythonWorker worker) {
    if (!worker.isAlive()) {
      worker.close();
      return;
    }
    synchronized (IDLE) {
      IDLE.computeIfAbsent(command, each -> new ArrayDeque<>()).push(new Idle(worker, System.nanoTime()));
      if (sweeper == null) {
        sweeper = new Thread(PythonWorkers::sweep, "falkirk-python-workers");
        sweeper.setDaemon(true);
        sweeper.start();
      }
    }
  }

  private static void sweep() {
    try {
      while (true) {
        Thread.sleep(LOOK_MS);
        endUnused(System.nanoTime() - KEPT_NS);
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  /** End the processes that were given back before a time. */
  static void endUnused(long beforeNs) {
    synchronized (IDLE) {
      for (Iterator<Deque<Idle>> all = IDLE.values().iterator(); all.hasNext(); ) {
        Deque<Idle> idle = all.next();
        while (!idle.isEmpty() && idle.peekLast().sinceNs() - beforeNs < 0) idle.removeLast().worker().close();
        if (idle.isEmpty()) all.remove();
      }
    }
  }
}
