package org.falkirk;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * The checkpoint of a live region on a cluster whose home is in an object store: Spark's logs are on the driver's
 * machine, and the executors write the state files into the object store.
 *
 * <p>Each incarnation of the region has a folder of its own, so a former one that still writes changes nothing of the
 * present one:
 *
 * <pre>
 * falkirk://bucket/HOME/regions/REGION/INCARNATION/live/offsets/…   a file of the driver's machine
 * falkirk://bucket/HOME/regions/REGION/INCARNATION/live/state/…     an object, at the same place with the scheme s3a
 * s3a://bucket/HOME/regions/REGION/INCARNATION/base.json            the state files of former incarnations: a list of
 *                                                                   the folder and the size of each one, by its path
 * s3a://bucket/HOME/regions/REGION/INCARNATION/gone/state/…         an empty object for each file that Spark has deleted
 * </pre>
 *
 * <p>A deletion hides a file, and the object stays: an older checkpoint may have it, and a later incarnation may read it.
 * The driver deletes objects (falkirk/runtime/spark/live/written_checkpoints.py). Names of most state files have
 * an id that is used once. Of the others, the object of this incarnation counts.
 */
public final class RegionFiles extends FileSystem {
  private static final String SCHEME = "falkirk", STORE = "s3a", LIVE = "/live", STATE = "state", GONE = "gone";
  /** The file with the state files of former incarnations. */
  static final String BASE = "base.json";
  /** The names of files that no two incarnations write: with an id. */
  private static final Pattern UNIQUE = Pattern.compile(".*(?:\\.sst|/\\d+_[^/]+\\.(?:zip|changelog)(?:\\.crc)?)");

  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int KEPT = 64;
  /** For each folder of a query of this driver, the local folder of its logs. */
  private static final Map<String, Path> LOGS = new ConcurrentHashMap<>();

  private URI uri;
  private Path working;
  /** The contents of the files {@link #BASE} that were read last. */
  private final Map<String, NavigableMap<String, Former>> bases =
      new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, NavigableMap<String, Former>> eldest) {
          return size() > KEPT;
        }
      };

  /** A state file of a former incarnation. */
  private record Former(Path path, long size) {}

  /** A path of this file system: the folder of the incarnation, and the path in its checkpoint. */
  private record Place(String incarnation, String name) {
    static Place of(Path path) {
      String text = path.toUri().getPath();
      int end = text.endsWith(LIVE) ? text.length() - LIVE.length() : text.lastIndexOf(LIVE + "/");
      if (end < 0) {
        throw new IllegalArgumentException(path + " is in no checkpoint");
      }
      int begin = Math.min(text.length(), end + LIVE.length() + 1);
      return new Place(text.substring(0, end), text.substring(begin));
    }

    boolean isState() {
      return name.equals(STATE) || name.startsWith(STATE + "/");
    }
  }

  /**
   * Tells where the logs of a checkpoint are.
   *
   * @param checkpoint the checkpoint, with the scheme of this class
   * @param folder a local folder
   */
  public static void begin(String checkpoint, String folder) {
    LOGS.put(Place.of(new Path(checkpoint)).incarnation, new Path("file", null, folder));
  }

  /** Forgets the logs of a checkpoint. */
  public static void end(String checkpoint) {
    LOGS.remove(Place.of(new Path(checkpoint)).incarnation);
  }

  /** Returns whether a path is a state file, or a folder of them. */
  static boolean isState(Path path) {
    return Place.of(path).isState();
  }

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
    uri = URI.create(SCHEME + "://" + name.getAuthority());
    working = new Path(uri + "/");
  }

  @Override
  public String getScheme() {
    return SCHEME;
  }

  @Override
  public URI getUri() {
    return uri;
  }

  private FileSystem store() throws IOException {
    return new Path(STORE, uri.getAuthority(), "/").getFileSystem(getConf());
  }

  private Path stored(String path) {
    return new Path(STORE, uri.getAuthority(), path);
  }

  private Path own(Place place) {
    return stored(place.incarnation + LIVE + "/" + place.name);
  }

  private static Path log(Place place) throws IOException {
    Path folder = LOGS.get(place.incarnation);
    if (folder == null) {
      throw new FileNotFoundException("the logs of " + place.incarnation + " are on the driver's machine");
    }
    return place.name.isEmpty() ? folder : new Path(folder, place.name);
  }

  private FileSystem local() throws IOException {
    return new Path("file:///").getFileSystem(getConf());
  }

  /** Returns the state files of former incarnations. Tasks that need them meanwhile wait for one read. */
  private NavigableMap<String, Former> base(String incarnation) throws IOException {
    synchronized (bases) {
      NavigableMap<String, Former> found = bases.get(incarnation);
      if (found == null) {
        found = readBase(incarnation);
        bases.put(incarnation, found);
      }
      return found;
    }
  }

  private NavigableMap<String, Former> readBase(String incarnation) throws IOException {
    NavigableMap<String, Former> found = new TreeMap<>();
    String region = incarnation.substring(0, incarnation.lastIndexOf('/'));
    try (InputStream in = store().open(stored(incarnation + "/" + BASE))) {
      for (Map.Entry<String, JsonNode> each : JSON.readTree(in.readAllBytes()).properties()) {
        JsonNode file = each.getValue();
        Path path = stored(region + "/" + file.get(0).asText() + "/" + each.getKey());
        found.put(each.getKey(), new Former(path, file.get(1).asLong()));
      }
    }
    return found;
  }

  @Override
  public FSDataInputStream open(Path path, int buffer) throws IOException {
    Place place = Place.of(path);
    if (!place.isState()) {
      return local().open(log(place), buffer);
    }
    Former former = base(place.incarnation).get(place.name);
    try {
      if (former != null && UNIQUE.matcher(place.name).matches()) {
        return store().open(former.path, buffer);
      }
      return store().open(own(place), buffer);
    } catch (FileNotFoundException missing) {
      if (former == null || UNIQUE.matcher(place.name).matches()) {
        throw absent(path);
      }
    }
    try {
      return store().open(former.path, buffer);
    } catch (FileNotFoundException missing) {
      throw absent(path);
    }
  }

  private static FileNotFoundException absent(Path path) {
    return new FileNotFoundException("File does not exist: " + path); // without the words of the object store
  }

  @Override
  public FSDataOutputStream create(
      Path path, FsPermission rights, boolean overwrite, int buffer, short copies, long block, Progressable progress)
      throws IOException {
    Place place = Place.of(path);
    if (!place.isState()) {
      return local().create(log(place), rights, overwrite, buffer, copies, block, progress);
    }
    return write(own(place));
  }

  /** Begins an object, which is there once the stream is closed. It replaces this incarnation's object of that name. */
  private FSDataOutputStream write(Path object) throws IOException {
    FSDataOutputStreamBuilder<?, ?> begun = store().createFile(object).create().overwrite(true).recursive();
    return (FSDataOutputStream) begun.opt("fs.s3a.create.performance", "true").build();
  }

  @Override
  public void copyFromLocalFile(boolean moves, boolean overwrite, Path source, Path target) throws IOException {
    FSDataOutputStream out = create(target);
    try (InputStream in = local().open(source)) {
      in.transferTo(out);
    } catch (IOException error) {
      out.abort();
      throw error;
    }
    out.close();
    if (moves) {
      local().delete(source, false);
    }
  }

  @Override
  public FSDataOutputStream append(Path path, int buffer, Progressable progress) {
    throw new UnsupportedOperationException("append");
  }

  @Override
  public boolean rename(Path from, Path to) throws IOException {
    Place source = Place.of(from), target = Place.of(to);
    if (source.isState() || target.isState()) {
      throw new UnsupportedOperationException("an object store has no renames");
    }
    return local().rename(log(source), log(target));
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    Place place = Place.of(path);
    if (!place.isState()) {
      return local().delete(log(place), recursive);
    }
    write(stored(place.incarnation + "/" + GONE + "/" + place.name)).close();
    return true;
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    Place place = Place.of(path);
    Map<String, FileStatus> found = new TreeMap<>();
    if (!place.isState()) {
      for (FileStatus each : local().listStatus(log(place))) {
        found.put(each.getPath().getName(), at(each, new Path(path, each.getPath().getName())));
      }
      return found.values().toArray(new FileStatus[0]);
    }
    Set<String> gone = new HashSet<>(); // first: then a file whose object was deleted meanwhile is hidden
    for (FileStatus each : listed(stored(place.incarnation + "/" + GONE + "/" + place.name))) {
      if (each.isFile()) {
        gone.add(each.getPath().getName());
      }
    }
    String start = place.name + "/";
    for (Map.Entry<String, Former> each : base(place.incarnation).tailMap(start).entrySet()) {
      if (!each.getKey().startsWith(start)) {
        break;
      }
      String rest = each.getKey().substring(start.length());
      int slash = rest.indexOf('/');
      String name = slash < 0 ? rest : rest.substring(0, slash);
      Path child = new Path(path, name);
      found.put(name, slash < 0 ? file(each.getValue(), child) : folder(child));
    }
    for (FileStatus each : listed(own(place))) {
      found.put(each.getPath().getName(), at(each, new Path(path, each.getPath().getName())));
    }
    found.keySet().removeAll(gone);
    return found.values().toArray(new FileStatus[0]);
  }

  private FileStatus[] listed(Path folder) throws IOException {
    try {
      return store().listStatus(folder);
    } catch (FileNotFoundException missing) { // an object store has no empty folders
      return new FileStatus[0];
    }
  }

  private static FileStatus at(FileStatus found, Path path) {
    return found.isFile() ? file(found.getLen(), found.getModificationTime(), path) : folder(path);
  }

  private static FileStatus file(long size, long time, Path path) {
    return new FileStatus(size, false, 1, 1, time, path);
  }

  /** Returns the status of a file of a former incarnation. Spark deletes tables that are older than all it knows. */
  private static FileStatus file(Former former, Path path) {
    return file(former.size, 0, path);
  }

  private static FileStatus folder(Path path) {
    return new FileStatus(0, true, 1, 1, 0, path);
  }

  @Override
  public boolean mkdirs(Path path, FsPermission rights) throws IOException {
    Place place = Place.of(path);
    return place.isState() || local().mkdirs(log(place), rights);
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    Place place = Place.of(path);
    if (!place.isState()) {
      return at(local().getFileStatus(log(place)), path);
    }
    NavigableMap<String, Former> base = base(place.incarnation);
    Former former = base.get(place.name);
    if (former != null && UNIQUE.matcher(place.name).matches()) {
      return file(former, path);
    }
    try {
      return at(store().getFileStatus(own(place)), path);
    } catch (FileNotFoundException missing) {
      if (former != null) {
        return file(former, path);
      }
      String inside = base.ceilingKey(place.name + "/");
      if (inside != null && inside.startsWith(place.name + "/")) {
        return folder(path);
      }
      throw absent(path);
    }
  }

  @Override
  public void setWorkingDirectory(Path path) {
    working = path;
  }

  @Override
  public Path getWorkingDirectory() {
    return working;
  }
}
