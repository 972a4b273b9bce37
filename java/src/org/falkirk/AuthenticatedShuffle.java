package org.falkirk;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.network.netty.SparkTransportConf;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.streaming.StreamingShuffleManager;
import scala.Option;

/**
 * Spark's streaming shuffle, in which readers and writers prove to each other that they know the application's secret.
 *
 * <p>Each task that writes listens on all interfaces, and Spark 4.3 gives its records to the first client that asks. With
 * `spark.authenticate`, this manager runs the handshake of Spark's other connections on each of them, and a stranger
 * gets and breaks nothing. With `spark.network.crypto.enabled` the records are encrypted as well. Without
 * `spark.authenticate` there is no secret, and Spark's own classes run.
 */
public final class AuthenticatedShuffle extends StreamingShuffleManager {
  @Override
  public <K, V> ShuffleWriter<K, V> getWriter(
      ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
    if (!hasSecret()) return super.getWriter(handle, mapId, context, metrics);
    return AuthenticatedServer.writer(handle, mapId, context);
  }

  @Override
  public <K, C> ShuffleReader<K, C> getReader(
      ShuffleHandle handle,
      int firstMap,
      int endMap,
      int firstPartition,
      int endPartition,
      TaskContext context,
      ShuffleReadMetricsReporter metrics) {
    if (!hasSecret()) {
      return super.getReader(handle, firstMap, endMap, firstPartition, endPartition, context, metrics);
    }
    return new AuthenticatedReader<>(handle, context);
  }

  /** Returns the settings of connections between tasks. */
  static TransportConf connections() {
    // Both ends have this class. With the fallback, somebody between them could switch the encryption off.
    SparkConf settings = SparkEnv.get().conf().clone().set("spark.network.crypto.saslFallback", "false");
    return SparkTransportConf.fromSparkConf(settings, "streaming-shuffle", 1, Option.empty(), Option.empty());
  }

  private static boolean hasSecret() {
    return SparkEnv.get().securityManager().isAuthenticationEnabled();
  }
}
