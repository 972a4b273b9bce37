package org.falkirk;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Rows as bytes, as `falkirk/steps/live/row_codec.py` reads and writes them.
 *
 * <p>It reads Spark's internal values, since the conversion to Java's own types is not exact: it changes the calendar of
 * old dates, and bytes of a text that are not UTF-8.
 */
public final class RowCodec {
  /** The codecs by their schemas as JSON. */
  private static final Map<UTF8String, RowCodec> KNOWN = new ConcurrentHashMap<>();

  private final StructType schema;

  /**
   * Make the codec of a schema.
   *
   * @throws IllegalArgumentException if a column has a type that the codec does not know
   */
  RowCodec(StructType schema) {
    check(schema);
    this.schema = schema;
  }

  /** Return the bytes of a row: for expressions. */
  public static byte[] toBytes(UTF8String schema, InternalRow row) {
    return of(schema).encode(row);
  }

  /** Return the row with these bytes: for expressions. */
  public static InternalRow fromBytes(UTF8String schema, byte[] value) {
    return of(schema).decode(value);
  }

  private static RowCodec of(UTF8String schema) {
    RowCodec codec = KNOWN.get(schema);
    if (codec == null) {
      codec = new RowCodec((StructType) DataType.fromJson(schema.toString()));
      KNOWN.put(UTF8String.fromString(schema.toString()), codec); // the caller may use its bytes again
    }
    return codec;
  }

  /** Return the bytes of a row. */
  byte[] encode(InternalRow row) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try {
      writeRow(row, schema, new DataOutputStream(bytes));
    } catch (IOException error) {
      throw new UncheckedIOException(error); // an array of bytes has no such errors
    }
    return bytes.toByteArray();
  }

  /**
   * Return the row with these bytes.
   *
   * @throws IllegalArgumentException if the bytes are not a row of the schema
   */
  InternalRow decode(byte[] value) {
    ByteBuffer in = ByteBuffer.wrap(value);
    try {
      InternalRow row = readRow(in, schema);
      if (in.hasRemaining()) {
        throw new IllegalArgumentException("the value has bytes after the end of the row");
      }
      return row;
    } catch (BufferUnderflowException error) {
      throw new IllegalArgumentException("the value ends before the end of the row", error);
    }
  }

  private static void check(DataType type) {
    if (type instanceof StructType struct) {
      for (StructField field : struct.fields()) {
        check(field.dataType());
      }
    } else if (type instanceof ArrayType array) {
      check(array.elementType());
    } else if (type instanceof MapType map) {
      check(map.keyType());
      check(map.valueType());
    } else if (!isPlain(type)) {
      throw new IllegalArgumentException(type.simpleString() + " is not a type of the codec");
    }
  }

  private static boolean isPlain(DataType type) {
    return type instanceof BooleanType || type instanceof ByteType || type instanceof ShortType || isFourBytes(type)
        || isEightBytes(type) || type instanceof FloatType || type instanceof DoubleType || type instanceof StringType
        || type instanceof BinaryType || type instanceof DecimalType;
  }

  private static boolean isFourBytes(DataType type) {
    return type instanceof IntegerType || type instanceof DateType;
  }

  private static boolean isEightBytes(DataType type) {
    return type instanceof LongType || type instanceof TimestampType || type instanceof TimestampNTZType;
  }

  private static void writeRow(InternalRow row, StructType schema, DataOutputStream out) throws IOException {
    StructField[] fields = schema.fields();
    for (int at = 0; at < fields.length; at++) {
      writeNullable(row, at, fields[at].dataType(), out);
    }
  }

  private static void writeNullable(SpecializedGetters from, int at, DataType type, DataOutputStream out)
      throws IOException {
    boolean known = !from.isNullAt(at);
    out.writeBoolean(known);
    if (known) {
      write(from, at, type, out);
    }
  }

  private static void write(SpecializedGetters from, int at, DataType type, DataOutputStream out) throws IOException {
    if (type instanceof BooleanType) {
      out.writeBoolean(from.getBoolean(at));
    } else if (type instanceof ByteType) {
      out.writeByte(from.getByte(at));
    } else if (type instanceof ShortType) {
      out.writeShort(from.getShort(at));
    } else if (isFourBytes(type)) {
      out.writeInt(from.getInt(at));
    } else if (isEightBytes(type)) {
      out.writeLong(from.getLong(at));
    } else if (type instanceof FloatType) {
      out.writeFloat(from.getFloat(at));
    } else if (type instanceof DoubleType) {
      out.writeDouble(from.getDouble(at));
    } else if (type instanceof StringType) {
      writeBytes(from.getUTF8String(at).getBytes(), out);
    } else if (type instanceof BinaryType) {
      writeBytes(from.getBinary(at), out);
    } else if (type instanceof DecimalType decimal) {
      Decimal value = from.getDecimal(at, decimal.precision(), decimal.scale());
      writeBytes(value.toJavaBigDecimal().setScale(decimal.scale()).unscaledValue().toByteArray(), out);
    } else if (type instanceof ArrayType array) {
      ArrayData elements = from.getArray(at);
      out.writeInt(elements.numElements());
      for (int i = 0; i < elements.numElements(); i++) {
        writeNullable(elements, i, array.elementType(), out);
      }
    } else if (type instanceof MapType map) {
      writeMap(from.getMap(at), map, out);
    } else {
      StructType struct = (StructType) type;
      writeRow(from.getStruct(at, struct.size()), struct, out);
    }
  }

  private static void writeMap(MapData pairs, MapType map, DataOutputStream out) throws IOException {
    out.writeInt(pairs.numElements());
    for (int i = 0; i < pairs.numElements(); i++) {
      write(pairs.keyArray(), i, map.keyType(), out);
      writeNullable(pairs.valueArray(), i, map.valueType(), out);
    }
  }

  private static void writeBytes(byte[] value, DataOutputStream out) throws IOException {
    out.writeInt(value.length);
    out.write(value);
  }

  private static InternalRow readRow(ByteBuffer in, StructType schema) {
    StructField[] fields = schema.fields();
    Object[] values = new Object[fields.length];
    for (int at = 0; at < values.length; at++) {
      values[at] = readNullable(in, fields[at].dataType());
    }
    return new GenericInternalRow(values);
  }

  private static Object readNullable(ByteBuffer in, DataType type) {
    return readFlag(in) ? read(in, type) : null;
  }

  private static Object read(ByteBuffer in, DataType type) {
    if (type instanceof BooleanType) {
      return readFlag(in);
    } else if (type instanceof ByteType) {
      return in.get();
    } else if (type instanceof ShortType) {
      return in.getShort();
    } else if (isFourBytes(type)) {
      return in.getInt();
    } else if (isEightBytes(type)) {
      return in.getLong();
    } else if (type instanceof FloatType) {
      return in.getFloat();
    } else if (type instanceof DoubleType) {
      return in.getDouble();
    } else if (type instanceof StringType) {
      return UTF8String.fromBytes(readBytes(in));
    } else if (type instanceof BinaryType) {
      return readBytes(in);
    } else if (type instanceof DecimalType decimal) {
      BigDecimal value = new BigDecimal(new BigInteger(readBytes(in)), decimal.scale());
      if (value.precision() > decimal.precision()) {
        throw new IllegalArgumentException(value + " does not fit " + decimal.simpleString());
      }
      return Decimal.apply(value, decimal.precision(), decimal.scale());
    } else if (type instanceof ArrayType array) {
      Object[] elements = new Object[readSize(in)];
      for (int i = 0; i < elements.length; i++) {
        elements[i] = readNullable(in, array.elementType());
      }
      return new GenericArrayData(elements);
    } else if (type instanceof MapType map) {
      Object[] keys = new Object[readSize(in)];
      Object[] values = new Object[keys.length];
      for (int i = 0; i < keys.length; i++) {
        keys[i] = read(in, map.keyType());
        values[i] = readNullable(in, map.valueType());
      }
      return new ArrayBasedMapData(new GenericArrayData(keys), new GenericArrayData(values));
    }
    return readRow(in, (StructType) type);
  }

  private static boolean readFlag(ByteBuffer in) {
    byte flag = in.get();
    if (flag != 0 && flag != 1) {
      throw new IllegalArgumentException(flag + " is neither 0 nor 1");
    }
    return flag == 1;
  }

  private static byte[] readBytes(ByteBuffer in) {
    byte[] value = new byte[readSize(in)];
    in.get(value);
    return value;
  }

  /** Return a size, which is refused if the rest is shorter, so that a damaged value takes no memory. */
  private static int readSize(ByteBuffer in) {
    int size = in.getInt();
    if (size < 0 || size > in.remaining()) {
      throw new IllegalArgumentException(size + " is not the size of a value in " + in.remaining() + " bytes");
    }
    return size;
  }
}
