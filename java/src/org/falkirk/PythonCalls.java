package org.falkirk;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.TaskContext;
import org.apache.spark.util.TaskCompletionListener;

/**
 * The calls of a Python function by one task.
 *
 * <p>If its process dies or hangs, a new one gets the same request. A call has no effect but its answer, so no result is
 * lost, and none comes twice. If that process fails too, the request is the cause, and the task fails. An unused process of
 * another task would prove nothing: the same cause may have ended it as well.
 */
final class PythonCalls {
  /** The text of the task's error if the function must not be called again. The text of the function follows. */
  static final String REFUSED = "FALKIRK_PYTHON_REFUSED";
  /** The text of the task's error if two processes failed on one request. */
  static final String FAILED = "FALKIRK_PYTHON_FAILED";

  private static final int ATTEMPTS = 2;

  private final PythonCommand command;
  private PythonWorker worker;

  /** Take a process, which gets ready before the first call. The end of the task gives it back. */
  PythonCalls(PythonCommand command) {
    this.command = command;
    TaskContext task = TaskContext.get();
    if (task != null) task.addTaskCompletionListener((TaskCompletionListener) ended -> end());
    try {
      worker = PythonWorkers.take(command);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Return the answer to a request. */
  byte[] call(byte[] request) {
    for (int attempt = 1; ; attempt++) {
      try {
        if (!worker.isAlive()) {
          worker.close();
          worker = new PythonWorker(command);
        }
        return worker.ask(request);
      } catch (PythonWorker.Refused refused) {
        throw new IllegalStateException(REFUSED + "|" + refused.getMessage());
      } catch (IOException error) {
        if (Thread.currentThread().isInterrupted()) throw new UncheckedIOException(error); // the task is being ended
        System.err.println("falkirk: a Python worker was replaced: " + error.getMessage());
        if (attempt == ATTEMPTS) throw new IllegalStateException(FAILED + "|" + error.getMessage(), error);
      }
    }
  }

  /** Give the process back. One that is in a call can't be used again. */
  void end() {
    PythonWorkers.give(command, worker);
  }

  PythonWorker worker() {
    return worker;
  }
}
