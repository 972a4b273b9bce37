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
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

/**
 * A Python process that answers requests, one after the other, over a Unix socket.
 *
 * <p>A message is its size in four bytes, and then its bytes. The first message is the setup of the command, the others
 * are requests. Each gets one answer, and a byte before it says what it is. The process ends when the socket is closed.
 *
 * <p>Each error closes it: an answer may be on its way, and would be taken for that of the next request.
 */
final class PythonWorker implements Closeable {
  private static final int SIZE_BYTES = 4;
  private static final long LOOK_MS = 5;
  /** The kinds of answers, see `falkirk/frames/row_worker.py`. */
  private static final byte ANSWER = 0;
  private static final byte REFUSAL = 1;
  private static final byte LAST_ANSWER = 2;

  /** The function must not be called again: the text says why. */
  static final class Refused extends RuntimeException {
    private static final long serialVersionUID = 1L;

    Refused(String text) {
      super(text);
    }
  }

  private final PythonCommand command;
  private final Path address;
  private final ServerSocketChannel server;
  private final Process process;
  private SocketChannel channel;
  private Selector selector;
  private boolean ends;

  /** Start the process. It gets ready while nobody waits for it. */
  PythonWorker(PythonCommand command) throws IOException {
    this.command = command;
    address = Path.of(command.folder(), "w-" + UUID.randomUUID().toString().replace("-", ""));
    server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    try {
      server.bind(UnixDomainSocketAddress.of(address));
      server.configureBlocking(false);
      List<String> words = new ArrayList<>(command.words());
      words.add(address.toString());
      ProcessBuilder builder = new ProcessBuilder(words);
      builder.environment().putAll(command.environment());
      builder.redirectError(ProcessBuilder.Redirect.INHERIT);
      process = builder.start();
    } catch (IOException error) {
      server.close();
      Files.deleteIfExists(address);
      throw error;
    }
  }

  /**
   * Return the answer to a request.
   *
   * @throws Refused if the function must not be called again.
   * @throws IOException if the process died, took too long, or wrote something other than an answer.
   */
  byte[] ask(byte[] request) throws IOException {
    try {
      if (channel == null) connect();
      return exchange(request, command.callMs());
    } catch (IOException | RuntimeException error) {
      close();
      throw error;
    }
  }

  /** Return whether it can answer another request. */
  boolean isAlive() {
    return !ends && process.isAlive() && (channel == null || channel.isOpen());
  }

  long pid() {
    return process.pid();
  }

  private void connect() throws IOException {
    long deadline = deadline(command.startMs());
    while (channel == null) {
      channel = server.accept();
      if (channel != null) break;
      if (!process.isAlive()) throw new EOFException("it ended before it was ready: code " + process.exitValue());
      if (System.nanoTime() > deadline) throw late(command.startMs());
      try {
        Thread.sleep(LOOK_MS);
      } catch (InterruptedException error) {
        throw interrupted();
      }
    }
    leaveAddress();
    channel.configureBlocking(false);
    selector = Selector.open();
    channel.register(selector, SelectionKey.OP_READ);
    exchange(command.setup(), Math.max(1, TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime())));
  }

  private byte[] exchange(byte[] request, long limitMs) throws IOException {
    long deadline = deadline(limitMs);
    ByteBuffer out = ByteBuffer.allocate(SIZE_BYTES + request.length).putInt(request.length).put(request).flip();
    while (out.hasRemaining()) {
      if (channel.write(out) == 0) await(SelectionKey.OP_WRITE, deadline, limitMs);
    }
    int size = read(SIZE_BYTES, deadline, limitMs).getInt();
    if (size < 1) throw new IOException("it wrote an answer of " + size + " bytes");
    byte[] answer = read(size, deadline, limitMs).array();
    byte kind = answer[0];
    if (kind == REFUSAL) throw new Refused(new String(answer, 1, size - 1, StandardCharsets.UTF_8));
    if (kind != ANSWER && kind != LAST_ANSWER) throw new IOException("it wrote an answer of kind " + kind);
    ends = kind == LAST_ANSWER;
    return Arrays.copyOfRange(answer, 1, size);
  }

  private ByteBuffer read(int size, long deadline, long limitMs) throws IOException {
    ByteBuffer in = ByteBuffer.allocate(size);
    while (in.hasRemaining()) {
      int count = channel.read(in);
      if (count < 0) throw new EOFException("it ended before it answered");
      if (count == 0) await(SelectionKey.OP_READ, deadline, limitMs);
    }
    return in.flip();
  }

  private void await(int operation, long deadline, long limitMs) throws IOException {
    long restMs = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
    if (restMs <= 0) throw late(limitMs);
    channel.keyFor(selector).interestOps(operation);
    selector.select(restMs);
    selector.selectedKeys().clear();
    if (Thread.currentThread().isInterrupted()) throw interrupted();
  }

  private static long deadline(long limitMs) {
    return System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(limitMs);
  }

  private static IOException late(long limitMs) {
    return new IOException("it did not answer within " + limitMs + " ms");
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
    process.destroyForcibly();
    ends = true;
    try (ServerSocketChannel listening = server; SocketChannel open = channel; Selector waiting = selector) {
      leaveAddress();
    } catch (IOException error) {
      // the process is dead, and its socket has no other user
    }
  }
}
