package org.falkirk;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Values in the wire format of a schema registry: a zero byte, the id of a schema in four bytes, and the content.
 *
 * <p>Avro content in the schema with that id, the writer's, becomes Avro content in the reader's schema. Spark's own
 * function reads that. JSON content stays as it is, and its id is not looked up.
 *
 * <p>The plan has one object, and each task has a copy of it.
 */
public final class WireFormat implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final int PREFIX = 5;
  private static final UTF8String NO_PREFIX =
      UTF8String.fromString("is not in the wire format of a schema registry (byte 0, then a schema id of four bytes)");

  /** How long a record waits for the registry. Falkirk takes a region for hanging only after 30 s. */
  private static final long WAIT_MS = 15_000;

  private final RegistryAddress address;
  private final String readers;
  private final long waitMs;
  private transient Resolution resolution;

  /** Args: readers: the reader's Avro schema; null: the content is JSON. */
  WireFormat(RegistryAddress address, String readers, long waitMs) {
    this.address = address;
    this.waitMs = waitMs;
    this.readers = readers;
  }

  /**
   * Returns values without their prefix, in the reader's schema, as a column STRUCT&lt;value BINARY, reason STRING&gt;.
   *
   * <p>Spark must compute it once for each record, so it counts as non-deterministic: else Spark's optimizer might copy
   * it into several places.
   *
   * @param authorization the header of each request; null: none
   * @param authorities certificates in PEM form; null: those that Java trusts
   * @param readers the reader's Avro schema; null: the content is JSON
   */
  public static Column plain(Column value, String url, String authorization, String authorities, String readers) {
    WireFormat format = new WireFormat(new RegistryAddress(url, authorization, authorities), readers, WAIT_MS);
    Expression target = Literal.fromObject(format, new ObjectType(WireFormat.class));
    StructType answer = new StructType().add("value", "binary").add("reason", "string");
    return ExpressionUtils.column(new Invoke(
        target, "call", answer, Scala.seq(List.of(ExpressionUtils.expression(value))), Scala.seq(List.of()), true, true,
        false));
  }

  /** Returns a value without its prefix, or the reason why it has none. */
  public InternalRow call(byte[] value) {
    if (value.length < PREFIX || value[0] != 0) return new GenericInternalRow(new Object[] {null, NO_PREFIX});
    if (readers == null) {
      return new GenericInternalRow(new Object[] {Arrays.copyOfRange(value, PREFIX, value.length), null});
    }
    if (resolution == null) resolution = new Resolution(SchemaRegistry.at(address));
    return resolution.resolved(value);
  }

  /** Returns the URL of the registry alone: Spark prints this text in plans. */
  @Override
  public String toString() {
    return "WireFormat(" + address + ")";
  }

  /** A schema of writers. Args: reader: reads its values; null: it is the reader's schema. */
  private record Writer(GenericDatumReader<Object> reader) {}

  /** The part of a task: the reader of each writer's schema. */
  private final class Resolution {
    private final SchemaRegistry registry;
    private final Schema schema = new Schema.Parser().parse(readers);
    private final Map<Integer, Writer> known = new HashMap<>();
    private final GenericDatumWriter<Object> writer = new GenericDatumWriter<>(schema, new GenericData());
    private BinaryDecoder decoder;
    private BinaryEncoder encoder;

    Resolution(SchemaRegistry registry) {
      this.registry = registry;
    }

    InternalRow resolved(byte[] value) {
      int id = ByteBuffer.wrap(value, 1, 4).getInt();
      Writer written = known.get(id);
      if (written == null) {
        SchemaRegistry.Answer answer = registry.schema(id, waitMs);
        if (answer.schema() == null) return refused(answer.reason());
        written = new Writer(
            answer.schema().equals(schema) ? null : new GenericDatumReader<>(answer.schema(), schema, new GenericData()));
        known.put(id, written);
      }
      if (written.reader == null) {
        return new GenericInternalRow(new Object[] {Arrays.copyOfRange(value, PREFIX, value.length), null});
      }
      try {
        decoder = DecoderFactory.get().binaryDecoder(value, PREFIX, value.length - PREFIX, decoder);
        Object content = written.reader.read(null, decoder);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(value.length);
        encoder = EncoderFactory.get().binaryEncoder(bytes, encoder);
        writer.write(content, encoder);
        encoder.flush();
        return new GenericInternalRow(new Object[] {bytes.toByteArray(), null});
      } catch (IOException | RuntimeException | StackOverflowError unfit) {
        decoder = null; // they may hold a part of this value
        encoder = null;
        return refused("does not fit the schema: it was written with schema " + id);
      }
    }

    private InternalRow refused(String reason) {
      return new GenericInternalRow(new Object[] {null, UTF8String.fromString(reason)});
    }
  }
}
