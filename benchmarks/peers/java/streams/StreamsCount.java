import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** A keyed count in Kafka Streams. Arguments: broker, source, sink, guarantee, interval in ms, folder. */
public final class StreamsCount {
    private StreamsCount() {}

    private static final ObjectMapper JSON = new ObjectMapper();

    private static String next(String word, String value, String before) {
        try {
            long version = before.isEmpty() ? 1 : JSON.readTree(before).get("version").asLong() + 1;
            return JSON.createObjectNode().put("word", word).put("version", version)
                    .put("n", JSON.readTree(value).get("n").asText()).toString();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] a) throws Exception {
        Properties options = new Properties();
        options.put("application.id", a[1] + "-streams");
        options.put("bootstrap.servers", a[0]);
        options.put("processing.guarantee", a[3].equals("exactly-once") ? "exactly_once_v2" : "at_least_once");
        options.put("commit.interval.ms", a[4]);
        options.put("statestore.cache.max.bytes", "0");
        options.put("num.stream.threads", "2");
        options.put("state.dir", a[5]);
        options.put("producer.linger.ms", "0");
        options.put("consumer.auto.offset.reset", "earliest");
        // A static member: after a kill, its successor need not wait until the dead member's session has ended (45 s).
        options.put("consumer.group.instance.id", "bench");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(a[1], Consumed.with(Serdes.String(), Serdes.String()))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                .aggregate(() -> "", (word, value, before) -> next(word, value, before),
                        Materialized.<String, String>as(Stores.inMemoryKeyValueStore("seen"))
                                .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()))
                .toStream().to(a[2], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), options);
        CountDownLatch running = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                running.countDown();
            }
        });
        streams.start();
        running.await();
        System.out.println("running");
        new CountDownLatch(1).await();
    }
}
