package org.falkirk;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Writes the files of a job into an object store under their final names, and names them in one more file.
 *
 * <p>An object store has no renames, and its listings may lag. So each attempt of a task writes files with names of its
 * own, and the job names those of its committed tasks with their sizes in {@code _written.json}, which
 * falkirk/platform/object_data.py reads. A folder without that file has no complete job. Files of other attempts stay until
 * the folder is deleted; nobody reads them.
 *
 * <p>Only jobs with the option {@link #LISTED} work so. Spark's own protocol writes all others, such as those into the
 * folders of users.
 */
public final class ListingFiles extends SQLHadoopMapReduceCommitProtocol {
  private static final long serialVersionUID = 1L;
  /** The option of a job, which Spark adds to the job's configuration. */
  static final String LISTED = "falkirk.listed";

  static final String WRITTEN = "_written.json";
  private final String folder;
  private transient Map<String, Path> files;

  public ListingFiles(String job, String folder, boolean dynamicPartitionOverwrite) {
    super(job, folder, dynamicPartitionOverwrite);
    this.folder = folder;
  }

  private static boolean isOurs(JobContext context) {
    return context.getConfiguration().getBoolean(LISTED, false);
  }

  @Override
  public void setupJob(JobContext context) {
    if (!isOurs(context)) {
      super.setupJob(context);
    }
  }

  @Override
  public void setupTask(TaskAttemptContext context) {
    files = new HashMap<>();
    if (!isOurs(context)) {
      super.setupTask(context);
    }
  }

  @Override
  public String newTaskTempFile(TaskAttemptContext context, Option<String> part, FileNameSpec spec) {
    if (!isOurs(context)) {
      return super.newTaskTempFile(context, part, spec);
    }
    int attempt = context.getTaskAttemptID().getId();
    String name = getFilename(context, new FileNameSpec(spec.prefix() + attempt + "-", spec.suffix()));
    String relative = part.isDefined() ? part.get() + "/" + name : name;
    Path path = new Path(folder, relative);
    files.put(relative, path);
    return path.toString();
  }

  @Override
  public FileCommitProtocol.TaskCommitMessage commitTask(TaskAttemptContext context) {
    if (!isOurs(context)) {
      return super.commitTask(context);
    }
    Configuration conf = context.getConfiguration();
    HashMap<String, Long> sizes = new HashMap<>();
    try {
      for (Map.Entry<String, Path> file : files.entrySet()) {
        Path path = file.getValue();
        sizes.put(file.getKey(), path.getFileSystem(conf).getFileStatus(path).getLen());
      }
    } catch (IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
    return new FileCommitProtocol.TaskCommitMessage(sizes);
  }

  @Override
  public void abortTask(TaskAttemptContext context) {
    if (!isOurs(context)) {
      super.abortTask(context);
    }
  }

  @Override
  public void commitJob(JobContext context, Seq<FileCommitProtocol.TaskCommitMessage> tasks) {
    if (!isOurs(context)) {
      super.commitJob(context, tasks);
      return;
    }
    TreeMap<String, Long> sizes = new TreeMap<>();
    for (FileCommitProtocol.TaskCommitMessage task : Scala.<FileCommitProtocol.TaskCommitMessage>list(tasks)) {
      ((Map<?, ?>) task.obj()).forEach((name, size) -> sizes.put((String) name, (Long) size));
    }
    Path path = new Path(folder, WRITTEN);
    try (OutputStream out = path.getFileSystem(context.getConfiguration()).create(path, true)) {
      out.write(json(sizes).getBytes(StandardCharsets.UTF_8));
    } catch (IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  @Override
  public void abortJob(JobContext context) {
    if (!isOurs(context)) {
      super.abortJob(context);
    }
  }

  /** Returns the text of the list. Spark escapes what JSON would in the names of partitions. */
  static String json(Map<String, Long> sizes) {
    return sizes.entrySet().stream()
        .map(each -> "\"" + each.getKey().replace("\\", "\\\\").replace("\"", "\\\"") + "\": " + each.getValue())
        .collect(Collectors.joining(", ", "{\"files\": {", "}}"));
  }
}
