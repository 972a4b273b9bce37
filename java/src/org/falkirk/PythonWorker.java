package org.falkirk;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

/**
 * A Python process that answers requests, one after the other, over a Unix socket. Several requests may be under way.
 *
 * <p>A message is its size in four bytes, and then its bytes. The first one that arrives has the number of the process. The
 * first one that leaves is the setup of the command, and the others are requests. Each gets one answer, and a byte before
 * it says what it is. The process ends when the socket is closed.
 *
 * <p>Each error closes it: an answer may be on its way, and would be taken for that of the next request.
 */
final class PythonWorker implements Closeable {
  private static final int SIZE_BYTES = 4;
  private static final long LOOK_MS = 5;
  private static final int READ_BYTES = 1 << 16;
  /** The kinds of answers, see `falkirk/steps/live/row_worker.py`. */
  private static final byte ANSWER = 0;
  private static final byte REFUSAL = 1;
  private static final byte LAST_ANSWER = 2;
  private static final byte UNSUITABLE = 3;

  /** The function must not be called again: the text says why. */
  static final class Refused extends RuntimeException {
    private static final long serialVersionUID = 1L;
    /** The Python of this machine is the reason, and no request. */
    final boolean isMachine;

    Refused(String text, boolean isMachine) {
      super(text);
      this.isMachine = isMachine;
    }
  }

  private final PythonCommand command;
  private final Path address;
  private final ServerSocketChannel server;
  private ForkServer forks;
  /** Null before it has connected, and if it has ended since. */
  private ProcessHandle process;
  private SocketChannel channel;
  private Selector selector;
  /** Bytes that arrived and belong to no answer that was returned. It is always ready to be read. */
  private ByteBuffer arrived = ByteBuffer.allocate(READ_BYTES).flip();
  private boolean ends;

  /** Have the process forked. It gets ready while nobody waits for it. */
  PythonWorker(PythonCommand command) throws IOException {
    this.command = command;
    address = Path.of(command.folder(), "w-" + UUID.randomUUID().toString().replace("-", ""));
    server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    try {
      server.bind(UnixDomainSocketAddress.of(address));
      server.configureBlocking(false);
      forks = ForkServer.fork(command, address);
    } catch (IOException | Refused error) {
      server.close();
      Files.deleteIfExists(address);
      throw error;
    }
  }

  /** It took too long. */
  static final class Late extends IOException {
    private static final long serialVersionUID = 1L;

    Late(long limitMs) {
      super("it did not answer within " + limitMs + " ms");
    }
  }

  /**
   * Return the answer to a request. No other request is under way.
   *
   * @throws Refused if the function must not be called again.
   * @throws IOException if the process died, took too long, or wrote something other than an answer.
   */
  byte[] ask(byte[] request) throws IOException {
    send(List.of(request));
    return receive();
  }

  /** Send requests, without waiting for their answers. Errors are those of {@link #ask}. */
  void send(List<byte[]> requests) throws IOException {
    try {
      if (channel == null) connect();
      write(requests, command.callMs());
    } catch (IOException | RuntimeException error) {
      close();
      throw error;
    }
  }

  /** Return the next answer: that to the first request that has none. Errors are those of {@link #ask}. */
  byte[] receive() throws IOException {
    try {
      return answer(command.callMs());
    } catch (IOException | RuntimeException error) {
      close();
      throw error;
    }
  }

  /** Return whether it can answer another request. */
  boolean isAlive() {
    if (channel == null) return !ends && forks.isAlive();
    return !ends && channel.isOpen() && process != null && process.isAlive();
  }

  /** Return the number of the process; 0 before its first request. */
  long pid() {
    return process == null ? 0 : process.pid();
  }

  private void connect() throws IOException {
    long deadline = deadline(command.startMs());
    // A server that has died or stands still has not seen the request, so this does not count as a failure of it.
    boolean isAnother = false;
    while ((channel = server.accept()) == null) {
      boolean isLate = System.nanoTime() > deadline;
      if (isLate) forks.kill();
      if (!isLate && forks.isAlive()) {
        pause();
      } else if (isAnother) {
        throw isLate
            ? new Late(command.startMs())
            : new EOFException("it ended before it was ready: code " + forks.exitCode());
      } else {
        isAnother = true;
        forks = ForkServer.fork(command, address);
        deadline = deadline(command.startMs());
      }
    }
    leaveAddress();
    channel.configureBlocking(false);
    selector = Selector.open();
    channel.register(selector, SelectionKey.OP_READ);
    process = ProcessHandle.of(ByteBuffer.wrap(answer(restMs(deadline))).getLong()).orElse(null);
    write(List.of(command.setup()), restMs(deadline));
    answer(restMs(deadline));
  }

  /** Write requests. The process may write answers meanwhile, and would wait for a reader of them. */
  private void write(List<byte[]> requests, long limitMs) throws IOException {
    int bytes = 0;
    for (byte[] each : requests) bytes += SIZE_BYTES + each.length;
    ByteBuffer out = ByteBuffer.allocate(bytes);
    for (byte[] each : requests) out.putInt(each.length).put(each);
    out.flip();
    long deadline = deadline(limitMs);
    while (out.hasRemaining()) {
      if (channel.write(out) > 0) deadline = deadline(limitMs);
      else if (!read()) select(SelectionKey.OP_WRITE | SelectionKey.OP_READ, deadline, limitMs);
    }
  }

  private byte[] answer(long limitMs) throws IOException {
    long deadline = deadline(limitMs);
    await(SIZE_BYTES, deadline, limitMs);
    int size = arrived.getInt();
    if (size < 1) throw new IOException("it wrote an answer of " + size + " bytes");
    await(size, deadline, limitMs);
    byte kind = arrived.get();
    byte[] answer = new byte[size - 1];
    arrived.get(answer);
    if (kind == REFUSAL || kind == UNSUITABLE) {
      throw new Refused(new String(answer, StandardCharsets.UTF_8), kind == UNSUITABLE);
    }
    if (kind != ANSWER && kind != LAST_ANSWER) throw new IOException("it wrote an answer of kind " + kind);
    ends = kind == LAST_ANSWER;
    return answer;
  }

  /** Wait until so many bytes have arrived. */
  private void await(int bytes, long deadline, long limitMs) throws IOException {
    if (arrived.capacity() < bytes) arrived = ByteBuffer.allocate(bytes).put(arrived).flip();
    while (arrived.remaining() < bytes) {
      if (!read()) select(SelectionKey.OP_READ, deadline, limitMs);
    }
  }

  /** Take what has arrived. Return whether there was something. */
  private boolean read() throws IOException {
    arrived.compact();
    if (!arrived.hasRemaining()) arrived = ByteBuffer.allocate(2 * arrived.capacity()).put(arrived.flip());
    int count = channel.read(arrived);
    arrived.flip();
    if (count < 0) throw new EOFException("it ended before it answered");
    return count > 0;
  }

  private void select(int operations, long deadline, long limitMs) throws IOException {
    long restMs = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
    if (restMs <= 0) throw new Late(limitMs);
    channel.keyFor(selector).interestOps(operations);
    selector.select(restMs);
    selector.selectedKeys().clear();
    if (Thread.currentThread().isInterrupted()) throw interrupted();
  }

  private static void pause() throws IOException {
    try {
      Thread.sleep(LOOK_MS);
    } catch (InterruptedException error) {
      throw interrupted();
    }
  }

  private static long deadline(long limitMs) {
    return System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(limitMs);
  }

  private static long restMs(long deadline) {
    return Math.max(1, TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime()));
  }

  private static InterruptedIOException interrupted() {
    Thread.currentThread().interrupt();
    return new InterruptedIOException("the task was interrupted");
  }

  private void leaveAddress() throws IOException {
    server.close();
    Files.deleteIfExists(address);
  }

  @Override
  public void close() {
    if (process != null) process.destroyForcibly();
    ends = true;
    try (ServerSocketChannel listening = server; SocketChannel open = channel; Selector waiting = selector) {
      leaveAddress();
    } catch (IOException error) {
      // the process is dead, and its socket has no other user
    }
  }
}
