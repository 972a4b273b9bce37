package org.falkirk;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Opens and writes for Spark the files of a checkpoint whose states are objects. An object is there once its upload is
 * complete, so a state file needs no rename. Logs are local files, which Spark renames as always: see {@link RegionFiles}.
 */
public final class RegionFileManager extends FileSystemBasedCheckpointFileManager {
  public RegionFileManager(Path path, Configuration conf) {
    super(path, conf);
  }

  @Override
  public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
    if (!(fs() instanceof RegionFiles) || !RegionFiles.isState(path)) {
      return super.createAtomic(path, overwrite);
    }
    try {
      return new Upload(fs().create(path, true));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static final class Upload extends CheckpointFileManager.CancellableFSDataOutputStream {
    private final FSDataOutputStream object;
    private boolean ended;

    Upload(FSDataOutputStream object) {
      super(object);
      this.object = object;
    }

    @Override
    public void close() throws IOException {
      if (!ended) {
        ended = true;
        super.close();
      }
    }

    @Override
    public void cancel() {
      if (!ended) {
        ended = true;
        object.abort();
      }
    }
  }
}
