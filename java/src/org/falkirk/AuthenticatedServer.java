package org.falkirk;

import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.util.AttributeKey;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.crypto.AuthServerBootstrap;
import org.apache.spark.network.protocol.Message;
import org.apache.spark.network.protocol.RpcRequest;
import org.apache.spark.network.protocol.UploadStream;
import org.apache.spark.network.server.AbstractAuthRpcHandler;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.streaming.StreamingShuffleServerHandler;
import org.apache.spark.shuffle.streaming.StreamingShuffleWriter;
import org.apache.spark.util.ErrorNotifier;
import scala.Option;
import scala.runtime.BoxedUnit;

/**
 * Answers the connections to a task that writes into a shuffle: only those that have proven to know the secret.
 *
 * <p>Others lose their connection if they send something else, more than a handshake has, or nothing for a while. None
 * of this fails the task.
 */
final class AuthenticatedServer extends StreamingShuffleServerHandler {
  /** How long a connection may take to prove that it knows the secret. A test changes it. */
  static long patienceMs = 30_000;

  /** This process has no more unproven connections than this, so that it does not run out of open files. */
  private static final int STRANGERS_MAX = 256;

  /** The unproven connections, oldest first. A handshake takes milliseconds, so the oldest ones are no readers. */
  private static final Deque<Channel> STRANGERS = new ArrayDeque<>();

  /** A handshake has fewer bytes, and fewer requests, than this. */
  private static final long HANDSHAKE_BYTES_MAX = 64 << 10;

  private static final int HANDSHAKE_REQUESTS_MAX = 8;

  /** The name that Spark gives to the handler behind its decoder. */
  private static final String SPARKS_HANDLER = "handler";

  private static final AttributeKey<AbstractAuthRpcHandler> CHECKED = AttributeKey.valueOf("org.falkirk.checked");

  private final AuthServerBootstrap handshake =
      new AuthServerBootstrap(AuthenticatedShuffle.connections(), SparkEnv.get().securityManager());
  private final RpcHandler trusted = new Trusted();

  private AuthenticatedServer(
      CompletableFuture<StreamingShuffleWriter<?, ?>> writer,
      BaseShuffleHandle<?, ?, ?> handle,
      TaskContext context,
      ErrorNotifier errors) {
    super(
        (reader, sequence) -> {
          writer.join().onTerminationAckReceived((int) reader, (long) sequence);
          return BoxedUnit.UNIT;
        },
        handle.shuffleId(),
        handle.dependency().partitioner().numPartitions(),
        context,
        errors);
  }

  /** Returns the writer of a task, which listens from here on. */
  static <K, V> ShuffleWriter<K, V> writer(ShuffleHandle handle, long mapId, TaskContext context) {
    ErrorNotifier errors = new ErrorNotifier();
    CompletableFuture<StreamingShuffleWriter<?, ?>> made = new CompletableFuture<>();
    AuthenticatedServer server = new AuthenticatedServer(made, (BaseShuffleHandle<?, ?, ?>) handle, context, errors);
    StreamingShuffleWriter<K, V> writer =
        new StreamingShuffleWriter<>(handle, mapId, context, Option.apply(server), errors);
    made.complete(writer);
    return writer;
  }

  @Override
  public void channelActive(TransportClient client) {
    Channel channel = client.getChannel();
    channel.attr(CHECKED).set((AbstractAuthRpcHandler) handshake.doBootstrap(channel, trusted));
    channel.pipeline().addFirst(new Limit());
    channel.pipeline().addBefore(SPARKS_HANDLER, null, new Gate());
    Future<?> patience =
        channel.eventLoop().schedule(() -> closeUnlessChecked(channel), patienceMs, TimeUnit.MILLISECONDS);
    channel.closeFuture().addListener(closed -> patience.cancel(false));
    admit(channel);
    channel.closeFuture().addListener(closed -> forget(channel));
  }

  @Override
  public void channelInactive(TransportClient client) {
    AbstractAuthRpcHandler checked = client.getChannel().attr(CHECKED).get();
    if (checked != null) checked.channelInactive(client); // frees the resources of the handshake
  }

  @Override
  public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
    try {
      client.getChannel().attr(CHECKED).get().receive(client, message, callback);
    } catch (RuntimeException error) {
      // A stranger gets no answer, and writes nothing into the log.
      if (!closeUnlessChecked(client.getChannel())) throw error;
    }
  }

  @Override
  public void receive(TransportClient client, ByteBuffer message) {
    if (!closeUnlessChecked(client.getChannel())) client.getChannel().attr(CHECKED).get().receive(client, message);
  }

  @Override
  public void exceptionCaught(Throwable cause, TransportClient client) {
    if (!closeUnlessChecked(client.getChannel())) super.exceptionCaught(cause, client);
  }

  private void receiveTrusted(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
    super.receive(client, message, callback);
  }

  /** Counts a new connection, and closes the oldest unproven one if there are too many. */
  private static void admit(Channel channel) {
    Channel oldest;
    synchronized (STRANGERS) {
      STRANGERS.add(channel);
      oldest = STRANGERS.size() > STRANGERS_MAX ? STRANGERS.poll() : null;
    }
    if (oldest != null) closeUnlessChecked(oldest);
  }

  private static void forget(Channel channel) {
    synchronized (STRANGERS) {
      STRANGERS.remove(channel);
    }
  }

  private static boolean isChecked(Channel channel) {
    AbstractAuthRpcHandler checked = channel.attr(CHECKED).get();
    return checked != null && checked.isAuthenticated();
  }

  private static boolean closeUnlessChecked(Channel channel) {
    if (isChecked(channel)) return false;
    channel.close();
    return true;
  }

  /** Handles the messages of a connection after its handshake. */
  private final class Trusted extends RpcHandler {
    @Override
    public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
      receiveTrusted(client, message, callback);
    }

    @Override
    public StreamManager getStreamManager() {
      return null; // as in Spark's own handler
    }
  }

  /**
   * Passes the requests of a handshake, and closes a connection that sends anything else before its end. Spark would
   * answer some of these messages itself, with a stack trace each, and keep the answers until they are read.
   */
  private static final class Gate extends ChannelInboundHandlerAdapter {
    private int requests;

    @Override
    public void channelRead(ChannelHandlerContext context, Object read) {
      if (isChecked(context.channel())) {
        context.pipeline().remove(this);
        forget(context.channel());
      } else if (!(read instanceof RpcRequest) || ++requests > HANDSHAKE_REQUESTS_MAX) {
        release(read);
        context.close();
        return;
      }
      context.fireChannelRead(read);
    }

    private static void release(Object read) {
      if (read instanceof UploadStream upload) upload.meta.release();
      if (read instanceof Message message && message.body() != null) message.body().release();
    }
  }

  /** Closes a connection that sends more than a handshake, because Spark keeps an unfinished message in memory. */
  private static final class Limit extends ChannelInboundHandlerAdapter {
    private long bytes;

    @Override
    public void channelRead(ChannelHandlerContext context, Object part) {
      if (isChecked(context.channel())) {
        context.pipeline().remove(this);
      } else if (part instanceof ByteBuf read && (bytes += read.readableBytes()) > HANDSHAKE_BYTES_MAX) {
        read.release();
        context.close();
        return;
      }
      context.fireChannelRead(part);
    }
  }
}
