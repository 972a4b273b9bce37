package org.falkirk;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.util.TaskCompletionListener;

/**
 * The calls of a Python function by one task.
 *
 * <p>If its process dies or hangs, a new one gets the same request. A call has no effect but its answer, so no result is
 * lost, and none comes twice. If that process fails too, the request is the cause, and the task fails. An unused process of
 * another task would prove nothing: the same cause may have ended it as well.
 *
 * <p>Several requests may be under way. If their process fails, the cause may be any of them, because answers may be lost
 * with it. So a new process gets them one by one. Later requests are no cause: they wait, and are sent together again.
 */
final class PythonCalls {
  /** The text of the task's error if the function must not be called again. The text of the function follows. */
  static final String REFUSED = "FALKIRK_PYTHON_REFUSED";
  /** The text of the task's error if the Python of this machine can't run the function. The reason follows. */
  static final String UNSUITABLE = "FALKIRK_PYTHON_UNSUITABLE";
  /** The text of the task's error if two processes failed on one request. */
  static final String FAILED = "FALKIRK_PYTHON_FAILED";

  private static final int ATTEMPTS = 2;

  private final PythonCommand command;
  private final Deque<byte[]> underWay = new ArrayDeque<>();
  private PythonWorker worker;
  /** How many of the first requests under way a process failed with: they are asked one by one, the others wait. */
  private int suspects;
  /** How often each of them may fail. */
  private int attempts = ATTEMPTS;

  /** Take a process, which gets ready before the first call. The end of the task gives it back. */
  PythonCalls(PythonCommand command) {
    TaskContext task = TaskContext.get();
    if (task != null) task.addTaskCompletionListener((TaskCompletionListener) ended -> end());
    try {
      this.command = command.here();
      worker = PythonWorkers.take(this.command);
    } catch (PythonWorker.Refused refused) {
      throw refusal(refused);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Return the answer to a request. No other one is under way. */
  byte[] call(byte[] request) {
    return call(request, ATTEMPTS);
  }

  /** Send requests whose answers {@link #next} returns. */
  void send(List<byte[]> requests) {
    if (suspects == 0 && !worker.isAlive()) suspects = underWay.size(); // it got these, and will not answer them
    underWay.addAll(requests);
    if (suspects == 0) transmit(requests);
  }

  private void transmit(List<byte[]> requests) {
    try {
      replaceDead();
      worker.send(requests);
    } catch (PythonWorker.Refused refused) {
      throw refusal(refused);
    } catch (IOException error) {
      failed(error);
    }
  }

  /** Return the answer to the first request under way. */
  byte[] next() {
    if (suspects == 0) {
      try {
        if (worker.isAlive()) {
          byte[] answer = worker.receive();
          underWay.remove();
          return answer;
        }
        suspects = underWay.size(); // it has grown, and said that the answer before was its last one
      } catch (PythonWorker.Refused refused) {
        throw refusal(refused);
      } catch (IOException error) {
        failed(error);
      }
    }
    byte[] answer = call(underWay.element(), attempts);
    underWay.remove();
    suspects--;
    if (suspects == 0) {
      attempts = ATTEMPTS;
      if (!underWay.isEmpty()) transmit(List.copyOf(underWay));
    }
    return answer;
  }

  /** Ask all requests under way one by one. A single one has failed once, and one of several that hang wastes much time. */
  private void failed(IOException error) {
    report(error);
    suspects = underWay.size();
    if (suspects == 1 || error instanceof PythonWorker.Late) attempts = ATTEMPTS - 1;
  }

  private byte[] call(byte[] request, int most) {
    for (int attempt = 1; ; attempt++) {
      try {
        replaceDead();
        return worker.ask(request);
      } catch (PythonWorker.Refused refused) {
        throw refusal(refused);
      } catch (IOException error) {
        report(error);
        if (attempt == most) throw new IllegalStateException(FAILED + "|" + error.getMessage(), error);
      }
    }
  }

  private void replaceDead() throws IOException {
    if (worker.isAlive()) return;
    worker.close();
    worker = new PythonWorker(command);
  }

  private static void report(IOException error) {
    if (Thread.currentThread().isInterrupted()) throw new UncheckedIOException(error); // the task is being ended
    System.err.println("falkirk: a Python worker was replaced: " + error.getMessage());
  }

  private static IllegalStateException refusal(PythonWorker.Refused refused) {
    return new IllegalStateException((refused.isMachine ? UNSUITABLE : REFUSED) + "|" + refused.getMessage());
  }

  /** Give the process back. One that is in a call can't be used again. */
  void end() {
    if (worker == null) return; // there is none
    if (!underWay.isEmpty()) worker.close();
    PythonWorkers.give(command, worker);
  }

  PythonWorker worker() {
    return worker;
  }
}
