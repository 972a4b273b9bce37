package org.falkirk;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.ExprUtils;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.json.JSONOptions;
import org.apache.spark.sql.catalyst.json.JacksonParser;
import org.apache.spark.sql.catalyst.util.FailureSafeParser;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.Function2;
import scala.collection.Iterable;
import scala.collection.Iterator;

/**
 * JSON texts as structs: parsed as by Spark's {@code from_json}, with the same parser.
 *
 * <p>Spark's function makes a reader with a buffer of 8 KB for each record, which was a tenth of the time that a task of a
 * count spent. Here the record is decoded at once.
 *
 * <p>The plan has one object, and each task has a copy of it.
 */
public final class JsonRecords implements Serializable {
  private static final long serialVersionUID = 1L;

  private final StructType fields;
  private final StructType schema;
  private final String corrupt;
  private final String zone;
  private transient FailureSafeParser<UTF8String> parser;

  private JsonRecords(StructType fields, StructType schema, String corrupt, String zone) {
    this.fields = fields;
    this.schema = schema;
    this.corrupt = corrupt;
    this.zone = zone;
  }

  /**
   * Returns texts as structs. A text that does not fit is in their last column, `corrupt`, and the others have the parts that
   * fit; null stays null.
   *
   * @param text STRING
   * @param schema of the other columns, as JSON
   * @param zone the time zone of texts without one
   */
  public static Column parsed(Column text, String schema, String corrupt, String zone) {
    // JSON can lack every field, and generated code would not look for a null in one that is not nullable.
    StructType fields = ((StructType) DataType.fromJson(schema)).asNullable();
    StructType type = fields.add(corrupt, DataTypes.StringType);
    if (ExprUtils.checkJsonSchema(type).isFailure()) { // Spark's analysis then says what JSON can't be
      return functions.from_json(text, type, Map.of("mode", "PERMISSIVE", "columnNameOfCorruptRecord", corrupt));
    }
    JsonRecords records = new JsonRecords(fields, type, corrupt, zone);
    Expression target = Literal.fromObject(records, new ObjectType(JsonRecords.class));
    return ExpressionUtils.column(new Invoke(
        target, "parse", type, Scala.seq(List.of(ExpressionUtils.expression(text))), Scala.seq(List.of()), true, true,
        true));
  }

  /** Returns the struct of a text; null if it has none, like an empty one. */
  public InternalRow parse(UTF8String text) {
    if (parser == null) parser = parser();
    Iterator<InternalRow> rows = parser.parse(text);
    return rows.hasNext() ? rows.next() : null;
  }

  private FailureSafeParser<UTF8String> parser() {
    JSONOptions options = new JSONOptions(Scala.map(Map.of("mode", "PERMISSIVE")), zone, corrupt);
    JacksonParser raw = new JacksonParser(fields, options, false, Scala.seq(List.of()));
    Function2<JsonFactory, UTF8String, JsonParser> opened = JsonRecords::open;
    Function1<UTF8String, UTF8String> same = text -> text;
    Function1<UTF8String, Iterable<InternalRow>> parsed = text -> raw.parse(text, opened, same);
    return new FailureSafeParser<>(parsed, options.parseMode(), schema, corrupt);
  }

  private static JsonParser open(JsonFactory factory, UTF8String text) {
    try {
      return factory.createParser(text.toString());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Returns the schema alone: Spark prints this text in plans. */
  @Override
  public String toString() {
    return "JsonRecords(" + schema.simpleString() + ")";
  }
}
