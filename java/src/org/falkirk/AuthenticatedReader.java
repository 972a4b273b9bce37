package org.falkirk;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.internal.config.package$;
import org.apache.spark.network.TransportContext;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.client.TransportClientFactory;
import org.apache.spark.network.crypto.AuthClientBootstrap;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.streaming.StreamingShuffleClientHandler;
import org.apache.spark.shuffle.streaming.StreamingShuffleReader;
import org.apache.spark.util.ErrorNotifier;
import scala.Option;
import scala.runtime.BoxedUnit;

/** Reads what tasks write into a shuffle, after a handshake in which both sides prove that they know the secret. */
final class AuthenticatedReader<K, C> extends StreamingShuffleReader<K, C> {
  private final int shuffleId;
  /** Resources that stay open until the task ends, the last opened first. */
  private final Deque<Closeable> opened = new ConcurrentLinkedDeque<>();
  /** Spark's constructor starts a thread that connects. It waits until this object is complete. */
  private boolean complete;
  /** The task has ended, perhaps while a thread of Spark's still connects. */
  private boolean ended;

  AuthenticatedReader(ShuffleHandle handle, TaskContext context) {
    super(handle, context, Option.empty(), new ErrorNotifier());
    shuffleId = handle.shuffleId();
    synchronized (this) {
      complete = true;
      notifyAll();
    }
  }

  @Override
  public TransportClient createClient(int mapId, String host, int port) {
    try {
      awaitComplete();
      Records records = new Records(mapId);
      SparkEnv env = SparkEnv.get();
      TransportConf settings = AuthenticatedShuffle.connections();
      AuthClientBootstrap handshake =
          new AuthClientBootstrap(settings, env.conf().getAppId(), env.securityManager());
      TransportContext transport = new TransportContext(settings, records);
      keep(transport);
      TransportClientFactory factory = transport.createClientFactory(List.of(handshake));
      keep(factory);
      TransportClient client = factory.createClient(host, port);
      records.begin(client);
      return client;
    } catch (IOException error) {
      throw new IllegalStateException("no connection to the task that writes: " + error, error);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted while it connected to the task that writes", error);
    }
  }

  /**
   * Gives everything back when the task ends. Spark closes its connections first: their threads end with their factories,
   * and a thread that ends looks for work only every 0.1 s. So in the other order, each connection took that long to close.
   */
  @Override
  public void cleanupResources() {
    super.cleanupResources();
    if (opened != null) closeAll(); // Spark's constructor may have failed before there was anything
  }

  private synchronized void keep(Closeable each) throws IOException {
    if (ended) {
      each.close();
      throw new IOException("the task has ended");
    }
    opened.addFirst(each);
  }

  private synchronized void closeAll() {
    ended = true;
    for (Closeable each : opened) {
      try {
        each.close();
      } catch (IOException error) {
        // It only gives back threads and sockets, and the task has ended.
      }
    }
  }

  private synchronized void awaitComplete() throws InterruptedException {
    while (!complete) wait();
  }

  /** Returns how many bytes of one writer may wait to be read: as Spark's reader, whose number is private. */
  private long bytesMax() {
    SparkEnv env = SparkEnv.get();
    SparkConf settings = env.conf();
    int all = (int) settings.get(package$.MODULE$.STREAMING_SHUFFLE_READER_MAX_MEMORY());
    int writers = env.streamingShuffleOutputTracker()
        .get()
        .getAvailableShuffleWriterTaskLocations(shuffleId)
        .get()
        .numShuffleWriterTasks();
    return Math.max(all / writers, 1);
  }

  /** Takes the records of one writer, and asks for the first ones only after the handshake. */
  private final class Records extends StreamingShuffleClientHandler {
    private volatile boolean begun;

    Records(int mapId) {
      super(
          mapId,
          AuthenticatedReader.this.context().partitionId(),
          messageQueue(),
          shuffleId,
          bytesMax(),
          AuthenticatedReader.this.context(),
          errorNotifier());
      setOnTermAckResponseHandler(writer -> {
        AuthenticatedReader.this.onTermAckResponse((int) writer);
        return BoxedUnit.UNIT;
      });
    }

    @Override
    public void channelActive(TransportClient client) {
      // The handshake comes first; see begin.
    }

    @Override
    public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
      if (begun) {
        super.receive(client, message, callback);
      } else {
        client.getChannel().close(); // no writer sends before it is asked
      }
    }

    void begin(TransportClient client) {
      begun = true;
      super.channelActive(client);
    }
  }
}
