package org.falkirk;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.Stream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;

/**
 * The schemas of one registry, as the tasks of this JVM see them.
 *
 * <p>The schema of an id never changes, so each is fetched once. That an id is unknown is believed for a minute only:
 * its producer may register it later. If no answer comes, the caller waits, and then fails with {@link RegistryAway}.
 */
final class SchemaRegistry {
  private static final long UNKNOWN_MS = 60_000;
  private static final int UNKNOWN_MAX = 10_000;
  private static final long PAUSE_FIRST_MS = 100, PAUSE_MAX_MS = 2_000;
  private static final Duration REQUEST = Duration.ofSeconds(5);
  /** The registry's codes for an id, a subject and a version that it does not have. */
  private static final Set<Integer> NOT_FOUND = Set.of(40401, 40402, 40403);
  private static final Map<RegistryAddress, SchemaRegistry> ALL = new ConcurrentHashMap<>();
  private static final ObjectMapper JSON = new ObjectMapper();

  /**
   * The registry's answer for an id.
   *
   * @param schema null: there is a reason why none can be used
   * @param untilMs when the answer must be asked for again
   */
  record Answer(Schema schema, String reason, long untilMs) {}

  private final RegistryAddress address;
  private final HttpClient client;
  private final Map<Integer, Answer> known = new ConcurrentHashMap<>();
  private final Map<Integer, Answer> unknown = new LinkedHashMap<>() {
    private static final long serialVersionUID = 1L;

    @Override
    protected boolean removeEldestEntry(Map.Entry<Integer, Answer> eldest) {
      return size() > UNKNOWN_MAX;
    }
  };
  private final ReentrantLock[] fetching = Stream.generate(ReentrantLock::new).limit(64).toArray(ReentrantLock[]::new);

  private SchemaRegistry(RegistryAddress address) {
    this.address = address;
    HttpClient.Builder builder = HttpClient.newBuilder()
        .version(HttpClient.Version.HTTP_1_1).connectTimeout(REQUEST).followRedirects(HttpClient.Redirect.NEVER);
    if (address.authorities() != null) builder.sslContext(trusting(address.authorities()));
    client = builder.build();
  }

  /** Returns the registry with this address; tasks of one JVM share it. */
  static SchemaRegistry at(RegistryAddress address) {
    return ALL.computeIfAbsent(address, SchemaRegistry::new);
  }

  /** Returns the answer for an id. If there is none within {@code waitMs}, it throws {@link RegistryAway}. */
  Answer schema(int id, long waitMs) {
    Answer found = cached(id);
    if (found != null) return found;
    if (id < 0) return new Answer(null, "schema " + id + " is unknown to the registry", Long.MAX_VALUE);
    long deadlineNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs);
    ReentrantLock lock = fetching[id % fetching.length];
    try {
      if (!lock.tryLock(waitMs, TimeUnit.MILLISECONDS)) {
        throw new RegistryAway(address.url(), id, "another task waits for it");
      }
      try {
        found = cached(id);
        return found == null ? remember(id, fetched(id, deadlineNs)) : found;
      } finally {
        lock.unlock();
      }
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new RegistryAway(address.url(), id, "the task was stopped");
    }
  }

  private Answer cached(int id) {
    Answer found = known.get(id);
    if (found != null) return found;
    synchronized (unknown) {
      found = unknown.get(id);
    }
    return found == null || found.untilMs < nowMs() ? null : found;
  }

  private Answer remember(int id, Answer answer) {
    if (answer.untilMs == Long.MAX_VALUE) {
      known.put(id, answer);
    } else {
      synchronized (unknown) {
        unknown.remove(id); // a new entry is the youngest one
        unknown.put(id, answer);
      }
    }
    return answer;
  }

  private Answer fetched(int id, long deadlineNs) throws InterruptedException {
    JsonNode found = get("/schemas/ids/" + id, id, deadlineNs);
    if (found == null) return new Answer(null, "schema " + id + " is unknown to the registry", nowMs() + UNKNOWN_MS);
    String kind = found.path("schemaType").asText("AVRO");
    if (!kind.equals("AVRO")) {
      return new Answer(null, "schema " + id + " is " + kind + ", not AVRO", Long.MAX_VALUE);
    }
    Schema.Parser parser = new Schema.Parser();
    try {
      if (!parseReferences(found, parser, new HashSet<>(), id, deadlineNs)) {
        return new Answer(null, "schema " + id + " refers to a schema that is unknown", nowMs() + UNKNOWN_MS);
      }
      return new Answer(parser.parse(found.path("schema").asText()), null, Long.MAX_VALUE);
    } catch (AvroRuntimeException | StackOverflowError invalid) {
      return new Answer(null, "schema " + id + " is not a valid Avro schema", Long.MAX_VALUE);
    }
  }

  /** Parses the schemas to which a schema refers by their names; returns whether the registry has all of them. */
  private boolean parseReferences(JsonNode from, Schema.Parser parser, Set<String> seen, int id, long deadlineNs)
      throws InterruptedException {
    for (JsonNode each : from.path("references")) {
      String path = "/subjects/" + escaped(each.path("subject").asText()) + "/versions/" + each.path("version").asInt();
      if (!seen.add(path)) continue;
      JsonNode found = get(path, id, deadlineNs);
      if (found == null || !parseReferences(found, parser, seen, id, deadlineNs)) return false;
      parser.parse(found.path("schema").asText());
    }
    return true;
  }

  /** Returns the registry's answer; null: it says that it has none. Any other answer is asked for again. */
  private JsonNode get(String path, int id, long deadlineNs) throws InterruptedException {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(address.url() + path))
        .header("Accept", "application/vnd.schemaregistry.v1+json, application/json");
    if (address.authorization() != null) request.header("Authorization", address.authorization());
    long pauseMs = PAUSE_FIRST_MS;
    String reason = null;
    while (true) {
      long timeoutMs = TimeUnit.NANOSECONDS.toMillis(deadlineNs - System.nanoTime());
      timeoutMs = Math.max(1, Math.min(timeoutMs, REQUEST.toMillis()));
      try {
        HttpResponse<String> answer = answer(request.build(), timeoutMs);
        JsonNode content = json(answer.body());
        if (answer.statusCode() == 200 && content.path("schema").isTextual()) return content;
        // A proxy may answer 404 for a registry that is away. Only the registry's own code says that there is none.
        if (answer.statusCode() == 404 && NOT_FOUND.contains(content.path("error_code").asInt())) return null;
        reason = "HTTP " + answer.statusCode();
      } catch (IOException failed) {
        // The last request may have had hardly any time, so the answer before it is the better reason.
        boolean isCutShort = failed.getCause() instanceof TimeoutException && timeoutMs < REQUEST.toMillis();
        if (reason == null || !isCutShort) {
          reason = failed.getMessage() == null ? failed.getClass().getSimpleName() : failed.getMessage();
        }
      }
      long leftMs = TimeUnit.NANOSECONDS.toMillis(deadlineNs - System.nanoTime());
      if (leftMs <= pauseMs) throw new RegistryAway(address.url(), id, reason);
      Thread.sleep(pauseMs);
      pauseMs = Math.min(2 * pauseMs, PAUSE_MAX_MS);
    }
  }

  /** Returns the answer with its body. A request's own timeout ends with the header of the answer. */
  private HttpResponse<String> answer(HttpRequest request, long timeoutMs) throws IOException, InterruptedException {
    CompletableFuture<HttpResponse<String>> sent =
        client.sendAsync(request, HttpResponse.BodyHandlers.ofString(StandardCharsets.UTF_8));
    try {
      return sent.get(timeoutMs, TimeUnit.MILLISECONDS);
    } catch (TimeoutException late) {
      throw new IOException("no answer within " + timeoutMs + " ms", late);
    } catch (ExecutionException failed) {
      Throwable cause = failed.getCause();
      throw new IOException(cause.getMessage() == null ? cause.getClass().getSimpleName() : cause.getMessage(), cause);
    } finally {
      sent.cancel(true);
    }
  }

  private static JsonNode json(String body) {
    try {
      JsonNode found = JSON.readTree(body);
      return found == null ? JSON.createObjectNode() : found;
    } catch (IOException invalid) {
      return JSON.createObjectNode();
    }
  }

  private static String escaped(String part) {
    return URLEncoder.encode(part, StandardCharsets.UTF_8).replace("+", "%20");
  }

  private static long nowMs() {
    return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
  }

  private static SSLContext trusting(String authorities) {
    try {
      KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
      trusted.load(null, null);
      byte[] pem = authorities.getBytes(StandardCharsets.UTF_8);
      for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(pem))) {
        trusted.setCertificateEntry(Integer.toString(trusted.size()), each);
      }
      TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      managers.init(trusted);
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(null, managers.getTrustManagers(), null);
      return context;
    } catch (GeneralSecurityException | IOException invalid) {
      throw new IllegalStateException("the certificates of the registry's authorities can't be read", invalid);
    }
  }
}
