package org.falkirk;

import java.io.IOException;
import java.net.ConnectException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.spark.SecurityManager;
import org.apache.spark.SparkConf;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcEnv;

/**
 * Gives Spark's driver the secret that it shares with its executors, before the Spark application starts.
 *
 * <p>The secret goes to the place where Spark looks first, and keeps those that it generates itself: the credentials of
 * the user in this JVM. So it is in no setting, argument or environment variable, and no page or log can show it.
 */
public final class SharedSecret {
  private static final int BYTES = 32;

  private SharedSecret() {}

  /** Uses the secret in a file: its text without the space around it. */
  public static void use(String file) throws IOException {
    keep(Files.readString(Path.of(file), StandardCharsets.US_ASCII).strip());
  }

  /** Uses a new secret, for a cluster that runs in this JVM. */
  public static void generate() throws IOException {
    byte[] secret = new byte[BYTES];
    new SecureRandom().nextBytes(secret);
    keep(HexFormat.of().formatHex(secret));
  }

  /**
   * Asks a standalone master for its endpoint, over a connection as Spark's own. Spark would try for a minute, and then
   * say only that the master does not respond.
   *
   * @param settings those of the driver that protect its connections
   * @return why it refuses the connection; null if it answers, says nothing in time, or does not
   *     listen. A master that stops or starts can close a connection, too, so a caller should ask again.
   */
  public static String refusal(String host, int port, Map<String, String> settings) {
    SparkConf conf = new SparkConf(false);
    settings.forEach(conf::set);
    SecurityManager security = new SecurityManager(
        conf, SecurityManager.$lessinit$greater$default$2(), SecurityManager.$lessinit$greater$default$3());
    RpcEnv connections = RpcEnv.create("falkirkDriver", "localhost", 0, conf, security, true);
    try {
      connections.setupEndpointRef(new RpcAddress(host, port), "Master");
      return null;
    } catch (Exception error) {
      Throwable first = error;
      while (first.getCause() != null) {
        first = first.getCause();
      }
      if (first instanceof TimeoutException || first instanceof ConnectException) {
        return null; // perhaps the network, or a master that starts: Spark tries again
      }
      return String.valueOf(first.getMessage()).lines().findFirst().orElse("");
    } finally {
      connections.shutdown();
      connections.awaitTermination();
    }
  }

  private static void keep(String secret) throws IOException {
    Credentials found = new Credentials();
    found.addSecretKey(SecurityManager.SECRET_LOOKUP_KEY(), secret.getBytes(StandardCharsets.US_ASCII));
    UserGroupInformation.getCurrentUser().addCredentials(found);
  }
}
