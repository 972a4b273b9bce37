package org.falkirk;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The producer of one task of a live region, or of all its tasks in this JVM if it is not fenced and has no twins.
 *
 * <p>The records that readers see are a prefix of the sent ones: after an error the lane sends nothing any more.
 *
 * <p>A fenced lane sends in transactions. They only fence: a successor calls `initTransactions` with the same
 * transactional id, and the broker then refuses this lane. A transaction is as short as possible, and its end has no
 * relation to a checkpoint, because the barrier of the next incarnation drops repeated results.
 */
final class Lane {
  private static final Duration CLOSING = Duration.ofSeconds(2);

  final int incarnation;
  private final LaneSettings.Fence fence;
  private final Figures figures;
  private final KafkaProducer<byte[], byte[]> producer;
  private final AtomicInteger users = new AtomicInteger();
  private final boolean twins;
  private final Marks marks = new Marks();
  /** The results that were dropped because the other twin had sent them. */
  private long dropped;
  private volatile Exception failure;
  /** The last batch in which a task used it, and the last one since then that ran here without using it. */
  private volatile long batch, visited = -1;

  /** Guards the transaction. A task that is cancelled while it waits for the lock is interrupted. */
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private boolean isOpen;
  /** A thread ends the open transaction, without the lock: those who wait for the end can be stopped. */
  private boolean isEnding;
  /** A twin waits for the end of the open transaction. */
  private boolean isDue;
  private boolean isClosed;
  /** How many transactions have begun. */
  private long begun;
  private long begunNs;
  /** The records that the open transaction has sent. */
  private final List<Sent> sent = new ArrayList<>();

  /** A record that was sent, and its cause: as of {@link Figures#cause}. */
  private record Sent(String topic, long cause) {}

  Lane(LaneSettings settings, int number) {
    incarnation = settings.incarnation;
    fence = settings.fence;
    twins = settings.twins;
    figures = Figures.of(settings.region);
    Properties options = settings.properties();
    options.computeIfPresent("client.id", (name, client) -> client + "-" + number); // or their metrics would collide
    if (fence != null) options.put("transactional.id", fence.ids() + number);
    producer = producer(options);
    if (fence == null) return;
    try {
      begin(settings.properties());
    } catch (RuntimeException error) {
      producer.close(Duration.ZERO);
      throw error;
    }
    Thread commits = new Thread(this::commitInTime, "falkirk-commits-" + settings.region + "-" + number);
    commits.setDaemon(true);
    commits.start();
  }

  private static KafkaProducer<byte[], byte[]> producer(Properties options) {
    Thread thread = Thread.currentThread();
    ClassLoader before = thread.getContextClassLoader();
    thread.setContextClassLoader(KafkaProducer.class.getClassLoader()); // Kafka loads classes by their names
    try {
      return new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer());
    } finally {
      thread.setContextClassLoader(before);
    }
  }

  /**
   * Takes the transactional id. The second look is the one that is needed: a successor changes the gate before it takes
   * the ids, so it has either changed the gate by now or will fence this lane. The first one spares the successor a
   * lane that an old task would take from it.
   */
  private void begin(Properties options) {
    try (Gate gate = new Gate(options, fence.gate())) {
      gate.require(fence.token());
      producer.initTransactions();
      gate.require(fence.token());
    }
  }

  void enter(long batch) {
    users.incrementAndGet();
    this.batch = batch;
    visited = -1;
  }

  /** Notes that its task of this batch runs here, too, and may not use it. */
  void visit(long batch) {
    if (batch == Math.max(this.batch, visited) + 1) visited = batch;
  }

  /**
   * Returns whether another JVM may have taken this lane's id since its last batch here. Twins run in one JVM, and number
   * their batches differently.
   */
  boolean isElsewhereBefore(long batch) {
    return fence != null && !twins && failure == null && batch != this.batch + 1 && batch != visited;
  }

  void leave() {
    users.decrementAndGet();
  }

  boolean isUsed() {
    return users.get() > 0;
  }

  /** Sends a record. `cause`: as of {@link Figures#cause}. */
  void send(ProducerRecord<byte[], byte[]> record, long cause) {
    check();
    try {
      if (fence == null) {
        sendPlain(record, cause);
        return;
      }
      lock.lockInterruptibly();
      try {
        awaitEnded();
        sendInTransaction(record, cause);
      } finally {
        lock.unlock();
      }
    } catch (Exception error) {
      throw failed(error);
    }
  }

  /** Waits, with the lock, while a transaction ends. */
  private void awaitEnded() throws InterruptedException {
    while (isEnding) changed.await();
    check();
  }

  private void sendPlain(ProducerRecord<byte[], byte[]> record, long cause) {
    String topic = record.topic();
    producer.send(record, (accepted, error) -> {
      if (error != null) failed(error);
      else figures.published(topic, cause, System.currentTimeMillis());
    });
  }

  /** Sends a record in the open transaction, or in a new one. Called with the lock. */
  private void sendInTransaction(ProducerRecord<byte[], byte[]> record, long cause) {
    if (!isOpen) {
      producer.beginTransaction();
      isOpen = true;
      begun++;
      begunNs = System.nanoTime();
      changed.signalAll();
    }
    producer.send(record, (accepted, error) -> {
      if (error != null) failed(error);
    });
    sent.add(new Sent(record.topic(), cause));
  }

  /**
   * Sends a record unless the other twin has sent it. Two queries call this with the same records.
   *
   * <p>The mark is raised after the producer has the record. A task that is stopped in {@code send} has handed nothing
   * over, and the other twin sends its own record. A failed producer or transaction ends both.
   */
  void sendOnce(ProducerRecord<byte[], byte[]> record, Stamp stamp, long cause) {
    String topic = record.topic();
    try {
      lock.lockInterruptibly();
      try {
        awaitEnded();
        if (!marks.isNew(topic, record.partition(), stamp)) {
          dropped++;
          return;
        }
        if (fence == null) sendPlain(record, cause);
        else sendInTransaction(record, cause);
        marks.raise(topic, record.partition(), stamp);
      } finally {
        lock.unlock();
      }
    } catch (InterruptedException | InterruptException error) {
      throw new IllegalStateException("its task was stopped", error);
    } catch (Exception error) {
      throw failed(error);
    }
  }

  /** Raises the greatest offset of the records whose results were sent, by "source partition"; returns what was dropped. */
  long reached(Map<String, Long> reached) {
    lock.lock();
    try {
      marks.reached(reached);
      return dropped;
    } finally {
      lock.unlock();
    }
  }

  /** Returns once readers can see all records that were sent, by either twin. */
  void finish() {
    check();
    try {
      if (fence == null) producer.flush();
      else if (twins) awaitCommit();
      else commit();
    } catch (InterruptedException | InterruptException error) {
      if (twins) throw new IllegalStateException("its task was stopped", error);
      throw failed(error);
    } catch (Exception error) {
      throw failed(error);
    }
    check();
  }

  /**
   * Sends the records that a failed task has handed over, if no successor can fence it. A fenced lane sends nothing more.
   * Another one has other tasks, too: if it failed them, Spark might report their errors, and not the error of the failed
   * task.
   */
  void abandon() {
    if (fence != null) {
      if (failure == null) failure = new IllegalStateException("its task has failed");
      return;
    }
    try {
      producer.flush();
    } catch (RuntimeException error) {
      // The task is being cancelled. Its successor flushes before it looks where the topic ends.
    }
  }

  /**
   * Returns once the open transaction has ended. Only the lane's own thread ends one of twins: a task that is stopped
   * meanwhile would leave a transaction in which the other twin can't send.
   */
  private void awaitCommit() throws InterruptedException {
    lock.lockInterruptibly();
    try {
      long mine = begun;
      isDue = isOpen;
      changed.signalAll();
      while (isOpen && begun == mine) {
        changed.await(100, TimeUnit.MILLISECONDS); // a failure is noted without the lock
        check();
      }
    } finally {
      lock.unlock();
    }
  }

  private void commit() throws InterruptedException {
    lock.lockInterruptibly();
    try {
      awaitEnded();
      if (!isOpen) return;
      isEnding = true;
    } finally {
      lock.unlock();
    }
    boolean ended = false;
    try {
      producer.commitTransaction();
      ended = true;
    } catch (RuntimeException error) {
      throw failed(error); // before anything can follow
    } finally {
      ended(ended);
    }
  }

  private void ended(boolean committed) {
    lock.lock();
    try {
      isEnding = false;
      if (committed) {
        isOpen = isDue = false;
        long nowMs = System.currentTimeMillis();
        sent.forEach(each -> figures.published(each.topic, each.cause, nowMs));
        sent.clear();
      }
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  private void commitInTime() {
    try {
      while (awaitDue()) commit();
    } catch (Exception error) {
      failed(error);
    }
  }

  /** Returns whether a transaction has to end now; false if the lane is closed. */
  private boolean awaitDue() throws InterruptedException {
    lock.lock();
    try {
      while (!isClosed) {
        long waitNs = begunNs + TimeUnit.MILLISECONDS.toNanos(fence.commitMs()) - System.nanoTime();
        if (!isOpen) changed.await();
        else if (waitNs > 0 && !isDue) changed.awaitNanos(waitNs);
        else return true;
      }
      return false;
    } finally {
      lock.unlock();
    }
  }

  private IllegalStateException failed(Exception error) {
    if (failure == null) failure = error;
    return new IllegalStateException("a lane of incarnation " + incarnation + " has failed: " + error, error);
  }

  private void check() {
    if (failure != null) throw failed(failure);
  }

  void close() {
    lock.lock();
    try {
      isClosed = true;
      changed.signalAll();
    } finally {
      lock.unlock();
    }
    producer.close(CLOSING); // it aborts an open transaction
  }
}
