package org.falkirk;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32C;
import java.util.zip.ZipEntry;
import java.util.zip.ZipInputStream;
import net.jpountz.lz4.LZ4BlockInputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Reads the files that Spark needs to load one version of a RocksDB state, and compares them with their checksums.
 *
 * <p>Spark reads them too, but it often reports another task's lost connection instead of its own finding. A version is
 * a snapshot ({@code VERSION_ID.zip}, which names shared files in {@code SSTs/}), or the changes since another version
 * ({@code VERSION_ID.changelog}, which begins with the names of the versions before it, back to a snapshot). Beside each of
 * them, {@code NAME.crc} has its size and its CRC32C; Hadoop has checksums of its own for all files.
 */
public final class StateFiles {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final byte[] LZ4 = "LZ4Block".getBytes(StandardCharsets.US_ASCII);
  /** The versions of a changelog's format from this one on name the versions before. */
  private static final int WITH_LINEAGE = 3;

  private static final int BUFFER_BYTES = 1 << 16;

  private final FileSystem files;
  private final Path folder;

  private StateFiles(FileSystem files, Path folder) {
    this.files = files;
    this.folder = folder;
  }

  private record Version(long number, String id) {
    String name(String kind) {
      return number + "_" + id + kind;
    }
  }

  /** A file that is missing, or that has other content than was written. */
  private static final class Damaged extends IOException {
    private static final long serialVersionUID = 1;

    Damaged(String reason) {
      super(reason);
    }
  }

  /**
   * Returns the version of the damaged file and the damage, with a space in between; empty if no damage was found.
   *
   * <p>A file that can't be read for another reason, such as missing rights, says nothing about its content.
   *
   * @param folder the folder of the files of one state store, of one partition
   * @param number the version to load
   * @param id Spark's unique id of that version
   */
  public static String damage(Configuration hadoop, String folder, long number, String id) throws IOException {
    Path path = new Path(folder);
    StateFiles found = new StateFiles(path.getFileSystem(hadoop), path);
    List<Version> left = new ArrayList<>(List.of(new Version(number, id)));
    while (!left.isEmpty()) {
      Version next = left.remove(0);
      try {
        if (found.readSnapshot(next)) {
          return "";
        }
        List<Version> before = found.readChanges(next);
        if (left.isEmpty()) {
          left.addAll(before);
        }
      } catch (Damaged | ChecksumException error) {
        return next.number + " " + error.getMessage();
      }
    }
    return "";
  }

  /** Checks a snapshot and the files that it names. Returns whether there is one. */
  private boolean readSnapshot(Version version) throws IOException {
    Path path = new Path(folder, version.name(".zip"));
    if (!files.exists(path)) {
      return false;
    }
    byte[] content = read(path, true);
    try (ZipInputStream zip = new ZipInputStream(new ByteArrayInputStream(content))) {
      for (ZipEntry entry = zip.getNextEntry(); entry != null; entry = zip.getNextEntry()) {
        if (entry.getName().equals("metadata")) {
          for (Path named : named(zip.readAllBytes())) {
            read(named, false);
          }
        }
      }
    }
    return true;
  }

  /** Returns the shared files of a snapshot. Its metadata is the version of its format, and JSON in the next line. */
  private List<Path> named(byte[] metadata) throws IOException {
    String text = new String(metadata, StandardCharsets.UTF_8);
    JsonNode found = JSON.readTree(text.substring(text.indexOf('\n') + 1));
    List<Path> paths = new ArrayList<>();
    found.path("sstFiles").forEach(f -> paths.add(new Path(folder, "SSTs/" + f.path("dfsSstFileName").asText())));
    found.path("logFiles").forEach(f -> paths.add(new Path(folder, "logs/" + f.path("dfsLogFileName").asText())));
    return paths;
  }

  /** Checks a changelog. Returns the versions before it, newest first, or none if its format does not name them. */
  private List<Version> readChanges(Version version) throws IOException {
    byte[] content = read(new Path(folder, version.name(".changelog")), true);
    List<Version> before = new ArrayList<>();
    if (content.length < LZ4.length || !startsWith(content, LZ4)) {
      return before;
    }
    InputStream unpacked = LZ4BlockInputStream.newBuilder().build(new ByteArrayInputStream(content));
    try (DataInputStream changes = new DataInputStream(unpacked)) {
      String format = changes.readUTF();
      if (format.matches("v\\d+") && Integer.parseInt(format.substring(1)) >= WITH_LINEAGE) {
        for (JsonNode each : JSON.readTree(changes.readUTF())) {
          before.add(new Version(each.path("version").asLong(), each.path("checkpointUniqueId").asText()));
        }
      }
    }
    before.removeIf(each -> each.number >= version.number);
    before.sort((one, other) -> Long.compare(other.number, one.number));
    return before;
  }

  private static boolean startsWith(byte[] content, byte[] start) {
    for (int i = 0; i < start.length; i++) {
      if (content[i] != start[i]) {
        return false;
      }
    }
    return true;
  }

  /** Reads a whole file; returns its content if asked for. Hadoop's checksums are compared on the way. */
  private byte[] read(Path path, boolean wanted) throws IOException {
    CRC32C sum = new CRC32C();
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    long size = 0;
    try (InputStream input = new BufferedInputStream(files.open(path))) {
      byte[] buffer = new byte[BUFFER_BYTES];
      for (int n = input.read(buffer); n >= 0; n = input.read(buffer)) {
        sum.update(buffer, 0, n);
        size += n;
        if (wanted) {
          content.write(buffer, 0, n);
        }
      }
    } catch (FileNotFoundException error) {
      throw new Damaged(path.getName() + " is missing");
    } catch (EOFException error) {
      throw new Damaged(path.getName() + " is too short");
    }
    compare(path, size, sum.getValue());
    return content.toByteArray();
  }

  private void compare(Path path, long size, long sum) throws IOException {
    JsonNode written;
    try (InputStream input = files.open(path.suffix(".crc"))) {
      written = JSON.readTree(input);
    } catch (FileNotFoundException error) {
      return; // an SST file, or Spark was told to write no checksums
    } catch (com.fasterxml.jackson.core.JsonProcessingException error) {
      throw new Damaged(path.getName() + ".crc can't be read");
    }
    if (written.path("mainFileSize").asLong(size) != size) {
      throw new Damaged(path.getName() + " has " + size + " bytes instead of " + written.path("mainFileSize").asLong());
    }
    if (written.path("algorithm").asText().equals("CRC32C") && written.path("value").asLong() != sum) {
      throw new Damaged(path.getName() + " has other content than Spark wrote");
    }
  }
}
