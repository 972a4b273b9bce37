package org.falkirk;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.spark.SparkFiles;
import org.apache.spark.api.python.PythonUtils;

/**
 * How a command of the driver runs on an executor: with the files that Spark has brought here, and a folder of this JVM
 * for sockets.
 *
 * <p>The program is Falkirk's archive, `falkirk/steps/live/on_executor.py`. Its modules are searched where Spark's own
 * Python workers search them: in the user's archives, among the files of Spark, in Spark, and in the PYTHONPATH of the
 * executor.
 */
final class ExecutorPython {
  private static final String PATH = "PYTHONPATH";
  /** The path of a socket has at most 107 bytes, and those below this one take 64. */
  private static final int PLACE_BYTES_MAX = 43;
  private static Path folder;

  private ExecutorPython() {}

  /**
   * Return a command as it runs here.
   *
   * @throws IOException if the folder can't be made.
   */
  static PythonCommand command(PythonCommand given) throws IOException {
    String sockets = folder().toString();
    List<String> words = new ArrayList<>(given.words());
    words.add(SparkFiles.get(given.shipped().get(0)));
    words.add(sockets);
    Map<String, String> environment = new HashMap<>(given.environment());
    environment.put(PATH, path(given.shipped().subList(1, given.shipped().size())));
    return new PythonCommand(
        given.id(), words, environment, sockets, given.setup(), given.startMs(), given.callMs(), null);
  }

  /** Return where modules are searched. Args: archives: of the user, the first one first. */
  private static String path(List<String> archives) {
    List<String> places = new ArrayList<>(archives.stream().map(SparkFiles::get).toList());
    places.add(new File(SparkFiles.getRootDirectory()).getAbsolutePath());
    places.add(PythonUtils.sparkPythonPath());
    places.add(System.getenv().getOrDefault(PATH, ""));
    return String.join(File.pathSeparator, places.stream().filter(place -> !place.isEmpty()).toList());
  }

  /** Return a folder that only this user may enter. It ends with this JVM, or, after a kill, with its fork server. */
  private static synchronized Path folder() throws IOException {
    if (folder == null || !Files.isDirectory(folder)) {
      Path own = Path.of(System.getProperty("java.io.tmpdir")).toAbsolutePath();
      Path place = own.toString().getBytes(StandardCharsets.UTF_8).length > PLACE_BYTES_MAX ? Path.of("/tmp") : own;
      Path made = Files.createTempDirectory(place, "falkirk-"); // with the rights of its user alone
      Runtime.getRuntime().addShutdownHook(new Thread(() -> delete(made)));
      folder = made;
    }
    return folder;
  }

  private static void delete(Path made) {
    try (Stream<Path> found = Files.walk(made)) {
      for (Path each : found.sorted(Comparator.reverseOrder()).toList()) Files.deleteIfExists(each);
    } catch (IOException error) {
      // the fork server deletes it, too
    }
  }
}
