package org.falkirk;

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;

/**
 * A transactional id that no record is sent with. It tells which incarnation of a region is current.
 *
 * <p>Each start calls `initTransactions` with it, which raises the epoch that the broker keeps for it. The token of an
 * incarnation is the id's producer id and epoch after that.
 */
public final class Gate implements AutoCloseable {
  private static final long TIMEOUT_S = 30;

  private final Admin admin;
  private final String id;

  public Gate(Properties options, String id) {
    this.id = id;
    Thread thread = Thread.currentThread();
    ClassLoader before = thread.getContextClassLoader();
    thread.setContextClassLoader(Admin.class.getClassLoader()); // Kafka loads classes by their names
    try {
      Properties own = new Properties();
      options.forEach((name, value) -> {
        if (!name.equals("client.id")) own.put(name, value);
      });
      admin = Admin.create(own);
    } finally {
      thread.setContextClassLoader(before);
    }
  }

  /** Returns the present token; an empty text if nobody has used the id, or the broker has forgotten it. */
  public String token() {
    try {
      TransactionDescription found =
          admin.describeTransactions(List.of(id)).description(id).get(TIMEOUT_S, TimeUnit.SECONDS);
      return found.producerId() + "/" + found.producerEpoch();
    } catch (ExecutionException error) {
      if (error.getCause() instanceof TransactionalIdNotFoundException) return "";
      throw new IllegalStateException("the broker does not tell who may write: " + error.getCause(), error);
    } catch (Exception error) {
      throw new IllegalStateException("the broker does not tell who may write: " + error, error);
    }
  }

  /** Throws unless the token is still this one. */
  void require(String token) {
    String found = token();
    if (!found.equals(token)) {
      throw new IllegalStateException(
          "FALKIRK_FENCED: a later incarnation may write: the gate's token is " + found + ", not " + token);
    }
  }

  @Override
  public void close() {
    admin.close(Duration.ZERO);
  }
}
