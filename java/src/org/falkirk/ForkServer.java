package org.falkirk;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * A Python process that has imported what workers need, and forks one for each address that it gets:
 * `falkirk/steps/live/row_worker.py`. A start takes 0.5 s of processor time, and a fork takes milliseconds.
 *
 * <p>This JVM has one for each command line. It ends with this JVM, because then its stdin ends, and its workers end with
 * it.
 */
final class ForkServer {
  private static final Map<List<Object>, ForkServer> SERVERS = new HashMap<>();

  /** The errors of a command that the system can't find, or must not run: ENOENT and EACCES. */
  private static final Pattern NOT_THERE = Pattern.compile("error(=|: )(2|13)\\b");

  private final Process process;

  private ForkServer(PythonCommand command) throws IOException {
    ProcessBuilder builder = new ProcessBuilder(command.words());
    builder.environment().putAll(command.environment());
    builder.redirectOutput(ProcessBuilder.Redirect.DISCARD).redirectError(ProcessBuilder.Redirect.INHERIT);
    try {
      process = builder.start();
    } catch (IOException error) {
      if (NOT_THERE.matcher(error.getMessage()).find()) throw new PythonWorker.Refused(error.getMessage(), true);
      throw error;
    }
  }

  /**
   * Ask for a worker that connects to an address, and return the server that was asked. It may have died meanwhile.
   *
   * @throws PythonWorker.Refused if this machine does not have the command.
   * @throws IOException if no process can be started.
   */
  static ForkServer fork(PythonCommand command, Path address) throws IOException {
    synchronized (SERVERS) {
      List<Object> key = List.of(command.words(), command.environment());
      ForkServer server = SERVERS.get(key);
      if (server == null || !server.isAlive()) SERVERS.put(key, server = new ForkServer(command));
      try {
        OutputStream addresses = server.process.getOutputStream();
        addresses.write((address + "\n").getBytes(StandardCharsets.UTF_8));
        addresses.flush();
      } catch (IOException error) {
        // it has died: who waits for the worker sees that
      }
      return server;
    }
  }

  boolean isAlive() {
    return process.isAlive();
  }

  /** Return the code with which it has ended. */
  int exitCode() {
    return process.exitValue();
  }

  /** Kill it, since it does not fork. The next worker is forked by another one. */
  void kill() {
    synchronized (SERVERS) {
      SERVERS.values().remove(this); // it counts as alive until the system has ended it
    }
    process.destroyForcibly();
  }
}
