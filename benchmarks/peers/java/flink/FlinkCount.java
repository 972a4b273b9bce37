import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.KafkaSinkBuilder;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** A keyed count in Flink. Arguments: broker, source, sink, guarantee, interval in ms, folder, checkpoint or "". */
public final class FlinkCount {
    private FlinkCount() {}

    /** Counts the records of a word, and passes the last identity on. */
    static final class Count extends KeyedProcessFunction<String, String, String> {
        private transient ValueState<Long> seen;
        private transient ObjectMapper json;

        @Override
        public void open(OpenContext context) {
            seen = getRuntimeContext().getState(new ValueStateDescriptor<>("seen", Long.class));
            json = new ObjectMapper();
        }

        @Override
        public void processElement(String value, Context context, Collector<String> out) throws Exception {
            JsonNode record = json.readTree(value);
            Long before = seen.value();
            long version = before == null ? 1 : before + 1;
            seen.update(version);
            out.collect(json.createObjectNode().put("word", context.getCurrentKey()).put("version", version)
                    .put("n", record.get("n").asText()).toString());
        }
    }

    private static String word(String value) throws Exception {
        return MAPPER.readTree(value).get("word").asText();
    }

    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] a) throws Exception {
        boolean isExact = a[3].equals("exactly-once");
        boolean isSafe = !a[3].equals("none");
        Configuration options = new Configuration();
        options.setString("execution.checkpointing.dir", "file://" + a[5]);
        options.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        options.setString("restart-strategy.type", "none");
        if (!a[6].isEmpty()) {
            options.setString("execution.state-recovery.path", a[6]);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, options);
        env.setBufferTimeout(0);
        env.getConfig().enableObjectReuse();
        if (isSafe) {
            env.enableCheckpointing(Long.parseLong(a[4]));
        }
        KafkaSource<String> source = KafkaSource.<String>builder().setBootstrapServers(a[0]).setTopics(a[1])
                .setGroupId(a[1] + "-flink").setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema()).build();
        Properties sinkOptions = new Properties();
        sinkOptions.setProperty("linger.ms", "0");
        sinkOptions.setProperty("transaction.timeout.ms", "120000");
        KafkaSinkBuilder<String> sink = KafkaSink.<String>builder().setBootstrapServers(a[0])
                .setKafkaProducerConfig(sinkOptions)
                .setDeliveryGuarantee(isExact ? DeliveryGuarantee.EXACTLY_ONCE
                        : isSafe ? DeliveryGuarantee.AT_LEAST_ONCE : DeliveryGuarantee.NONE)
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder().setTopic(a[2])
                        .setKeySerializationSchema(row -> wordBytes(row))
                        .setValueSerializationSchema(new SimpleStringSchema()).build());
        if (isExact) {
            sink.setTransactionalIdPrefix(a[2]);
        }
        env.fromSource(source, WatermarkStrategy.noWatermarks(), "records").keyBy(FlinkCount::word)
                .process(new Count()).sinkTo(sink.build());
        JobClient job = env.executeAsync("count");
        while (job.getJobStatus().get() != JobStatus.RUNNING) {
            Thread.sleep(20);
        }
        System.out.println("running");
        job.getJobExecutionResult().get();
    }

    private static byte[] wordBytes(String row) {
        try {
            return word(row).getBytes(StandardCharsets.UTF_8);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
