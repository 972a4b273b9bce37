import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;

/**
 * A namenode and a datanode in one process, for tests. It does the commands of its input and answers each with "ok".
 *
 * <p>Arguments: the folder, and the ports of the namenode (RPC, HTTP) and of the datanode (data, HTTP, IPC).
 */
public final class HdfsServer {
  private final Configuration conf;
  private NameNode names;
  private DataNode data;

  private HdfsServer(String folder, String[] ports) {
    conf = new Configuration();
    String[] addresses = {
      "dfs.namenode.rpc-address", "dfs.namenode.http-address", "dfs.datanode.address", "dfs.datanode.http.address",
      "dfs.datanode.ipc.address"
    };
    for (int n = 0; n < addresses.length; n++) {
      conf.set(addresses[n], "127.0.0.1:" + ports[n]);
    }
    conf.set("fs.defaultFS", "hdfs://127.0.0.1:" + ports[0]);
    conf.set("dfs.namenode.name.dir", "file://" + folder + "/names");
    conf.set("dfs.datanode.data.dir", "file://" + folder + "/data");
    conf.set("hadoop.tmp.dir", folder + "/tmp");
    conf.setInt("dfs.replication", 1);
    conf.setInt("dfs.heartbeat.interval", 1);
    conf.setInt("dfs.namenode.heartbeat.recheck-interval", 1000);
    conf.setInt("dfs.namenode.safemode.extension", 0);
    conf.setInt("dfs.namenode.handler.count", 4);
    conf.setInt("dfs.datanode.handler.count", 2);
  }

  private void startData() throws IOException {
    data = DataNode.createDataNode(new String[0], conf);
  }

  private void run(String command) throws Exception {
    switch (command) {
      case "datanode stop" -> data.shutdown();
      case "datanode start" -> startData();
      case "namenode stop" -> stopNames();
      case "namenode start" -> names = new NameNode(conf);
      case "safemode enter" -> safeMode(SafeModeAction.SAFEMODE_ENTER);
      case "safemode leave" -> safeMode(SafeModeAction.SAFEMODE_LEAVE);
      default -> throw new IllegalArgumentException(command);
    }
  }

  private void stopNames() {
    names.stop();
    names.join();
  }

  private void safeMode(SafeModeAction action) throws IOException {
    try (DistributedFileSystem system = (DistributedFileSystem) FileSystem.newInstance(conf)) {
      system.setSafeMode(action);
    }
  }

  private void begin(String folder) throws Exception {
    boolean isNew = !new File(folder, "names/current/VERSION").exists();
    if (isNew) {
      NameNode.format(conf);
    }
    names = new NameNode(conf);
    startData();
    if (isNew) {
      try (FileSystem system = FileSystem.newInstance(conf)) {
        system.mkdirs(new Path("/shop"));
        system.setPermission(new Path("/shop"), new FsPermission((short) 0777));
      }
    }
  }

  public static void main(String[] args) {
    try {
      serve(args);
    } catch (Throwable error) {
      error.printStackTrace();
    }
    Runtime.getRuntime().halt(1); // the test has ended, or a command has failed
  }

  private static void serve(String[] args) throws Exception {
    DefaultMetricsSystem.setMiniClusterMode(true); // both have figures of one name
    HdfsServer server = new HdfsServer(args[0], java.util.Arrays.copyOfRange(args, 1, args.length));
    server.begin(args[0]);
    System.out.println("ok");
    try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        server.run(line);
        System.out.println("ok");
      }
    }
  }
}
