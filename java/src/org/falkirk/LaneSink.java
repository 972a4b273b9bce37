package org.falkirk;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Writes the rows of a job to Kafka: `write.format("org.falkirk.LaneSink")`.
 *
 * <p>Rows: topic STRING, partition INT, key BINARY, value BINARY, header BINARY, and for measured ones cause TIMESTAMP:
 * of the record from which the latency counts. When a task ends without an error, its records are visible to readers. The options are those of {@link LaneSettings#of}; `job` numbers the jobs of an
 * incarnation from 1.
 *
 * <p>Each task of a fenced writer has a {@link Lane}, and the tasks of others share one.
 */
public final class LaneSink implements TableProvider {
  private static final int CAUSE = 5;

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return new StructType();
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Topic(schema);
  }

  /** Returns the writers of a job with these options. */
  static DataWriterFactory writers(Map<String, String> options) {
    return new Tasks(LaneSettings.of(options), Long.parseLong(options.get("job")));
  }

  private record Topic(StructType columnsOfNone) implements SupportsWrite {
    @Override
    public String name() {
      return "lanes";
    }

    @Override
    public StructType schema() {
      return columnsOfNone;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.BATCH_WRITE, TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      Job job = new Job(writers(new HashMap<>(info.options().asCaseSensitiveMap())));
      return new WriteBuilder() {
        @Override
        public Write build() {
          return new Write() {
            @Override
            public BatchWrite toBatch() {
              return job;
            }
          };
        }
      };
    }
  }

  private record Job(DataWriterFactory tasks) implements BatchWrite {
    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      return tasks;
    }

    @Override
    public boolean useCommitCoordinator() {
      return false; // records are sent before a task ends
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {}

    @Override
    public void abort(WriterCommitMessage[] messages) {}
  }

  private record Tasks(LaneSettings settings, long job) implements DataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int number, long task) {
      return new Task(Lanes.take(settings, settings.isShared() ? 0 : number, job), settings.headerKey);
    }
  }

  /** Returns the cause of a row as {@link Figures#cause} does; -1: it has none. */
  static long cause(InternalRow row) {
    return row.numFields() <= CAUSE || row.isNullAt(CAUSE) ? -1 : Math.max(-1, row.getLong(CAUSE) / 1000);
  }

  private record Task(Lane lane, String headerKey) implements DataWriter<InternalRow> {
    @Override
    public void write(InternalRow row) {
      String topic = row.getUTF8String(0).toString();
      ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, row.getInt(1), bytes(row, 2), bytes(row, 3));
      record.headers().add(headerKey, bytes(row, 4));
      lane.send(record, cause(row));
    }

    private static byte[] bytes(InternalRow row, int column) {
      return row.isNullAt(column) ? null : row.getBinary(column);
    }

    @Override
    public WriterCommitMessage commit() {
      lane.finish();
      return null;
    }

    /** Sends the accepted records, so that no record of a failed task arrives later. Its successor fences a fenced one. */
    @Override
    public void abort() {
      lane.abandon();
    }

    @Override
    public void close() {
      lane.leave();
    }
  }
}
