package org.falkirk;

import java.io.Closeable;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.Collection;
import java.util.Iterator;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.sql.Row;
import org.apache.spark.util.UninterruptibleThread;

/**
 * The rows of a task, read by a thread of their own, so that the task can send those that are there while it waits for an
 * answer.
 *
 * <p>Only this thread uses the iterator, and the task waits for its end before it ends. Else Spark would free memory or
 * close a consumer that the thread still uses. It is of the kind that Spark's Kafka source expects.
 */
final class RowsAhead implements Closeable {
  private static final Object END = new Object();

  private final BlockingQueue<Object> queue = new LinkedBlockingQueue<>();
  /** How many further rows the thread may read. */
  private final Semaphore room = new Semaphore(0);
  private final UninterruptibleThread thread;
  private boolean atEnd;
  private Throwable error;

  /** An error of the iterator, in place of a row. */
  private record Failure(Throwable error) {}

  /** Begin to read, as soon as {@link #allow} says so. */
  RowsAhead(Iterator<Row> rows) {
    TaskContext task = TaskContext.get();
    thread = new UninterruptibleThread("falkirk-rows-ahead") {
      @Override
      public void run() {
        if (task != null) TaskContext$.MODULE$.setTaskContext(task);
        read(rows);
      }
    };
    thread.setDaemon(true);
    thread.start();
  }

  private void read(Iterator<Row> rows) {
    try {
      room.acquire();
      while (rows.hasNext()) {
        queue.add(rows.next());
        room.acquire();
      }
      queue.add(END);
    } catch (InterruptedException ended) {
      // the task ends, and asks for no further row
    } catch (Throwable failed) {
      queue.add(new Failure(failed));
    }
  }

  /** Let the thread read so many further rows. */
  void allow(int rows) {
    room.release(rows);
  }

  /** Wait for a row, and add it to a collection. At the end of the rows, add none. The iterator's error comes from here. */
  void take(Collection<? super Row> rows) {
    try {
      if (!atEnd) add(queue.take(), rows);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new UncheckedIOException(new InterruptedIOException("the task was interrupted"));
    }
    if (error != null) throw RowsAhead.<RuntimeException>asThrown(error);
  }

  /** Add the rows that are there to a collection. */
  void poll(Collection<? super Row> rows) {
    for (Object next = atEnd ? null : queue.poll(); next != null; next = atEnd ? null : queue.poll()) add(next, rows);
  }

  private void add(Object next, Collection<? super Row> rows) {
    atEnd = next == END || next instanceof Failure;
    if (next instanceof Failure failure) error = failure.error();
    else if (next != END) rows.add((Row) next);
  }

  /** Return an error as one that needs no declaration: the task sees what it would see without the thread. */
  @SuppressWarnings("unchecked")
  private static <T extends Throwable> T asThrown(Throwable error) throws T {
    throw (T) error;
  }

  /** End the thread, and wait for it. */
  @Override
  public void close() {
    boolean interrupted = false;
    thread.interrupt();
    while (thread.isAlive()) {
      try {
        thread.join();
      } catch (InterruptedException error) {
        interrupted = true;
      }
    }
    if (interrupted) Thread.currentThread().interrupt();
  }
}
