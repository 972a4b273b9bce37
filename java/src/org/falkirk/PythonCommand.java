package org.falkirk;

import java.io.IOException;
import java.io.Serializable;
import java.util.List;
import java.util.Map;

/**
 * How to get Python processes that answer requests: `falkirk/steps/live/row_worker.py`.
 *
 * @param id tells commands apart: two with the same id are equal.
 * @param words the command line of the server that forks them.
 * @param environment is added to that of this JVM.
 * @param folder for the socket. Only this user may enter it.
 * @param setup the pickled function that answers requests.
 * @param startMs a process that is not ready by then is replaced.
 * @param callMs a process whose answer takes longer is replaced.
 * @param shipped null: tasks run on the driver's machine. Else the names of files that Spark brings to executors: Falkirk's
 *     archive, and the user's. Then {@link ExecutorPython} completes the command there.
 */
public record PythonCommand(
    String id, List<String> words, Map<String, String> environment, String folder, byte[] setup, long startMs,
    long callMs, List<String> shipped) implements Serializable {
  /**
   * Return the command as it runs in this JVM, which has the task.
   *
   * @throws IOException if an executor can't make a folder.
   */
  PythonCommand here() throws IOException {
    return shipped == null ? this : ExecutorPython.command(this);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof PythonCommand command && command.id.equals(id);
  }

  @Override
  public int hashCode() {
    return id.hashCode();
  }
}
