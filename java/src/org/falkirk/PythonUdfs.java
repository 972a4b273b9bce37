package org.falkirk;

import java.io.IOException;
import java.io.Serializable;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.execution.python.BatchEvalPythonExec;
import org.apache.spark.sql.execution.python.EvaluatePython;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * User-defined functions (UDFs) of a live region: an expression that asks a Python process, and waits for its answer.
 *
 * <p>Spark has two kinds of scalar UDFs, whose conversions differ. Arguments and results of the plain kind are pickled by
 * Spark's own classes. Those of the kind that uses Arrow are bytes of {@link RowCodec}, and the process converts them as
 * Spark's worker does (`falkirk/steps/live/udf_worker.py`).
 *
 * <p>The plan has one object, and each task has a copy of it, with a process of its own.
 */
public final class PythonUdfs implements Serializable {
  private static final long serialVersionUID = 1L;

  private final PythonCommand command;
  private final StructType plain, arrow, plainResults, arrowResults;
  private final boolean binaryAsBytes;
  private transient Exchange exchange;

  private PythonUdfs(
      PythonCommand command, StructType plain, StructType arrow, StructType plainResults, StructType arrowResults,
      boolean binaryAsBytes) {
    this.command = command;
    this.plain = plain;
    this.arrow = arrow;
    this.plainResults = plainResults;
    this.arrowResults = arrowResults;
    this.binaryAsBytes = binaryAsBytes;
  }

  /**
   * Return the answers to the calls of a step, as a column STRUCT&lt;results, reason STRING, traceback STRING&gt;.
   *
   * <p>Spark must compute it once for each row. So it counts as non-deterministic, whatever the functions are: else
   * Spark's optimizer might copy it into several places.
   *
   * @param arguments a STRUCT column: the arguments of plain functions, and then those of functions with Arrow.
   * @param given the types of these arguments: JSON of a struct each.
   * @param results the types of the results, in the same way.
   * @param binaryAsBytes Spark's setting: whether plain functions get `bytes` instead of `bytearray`.
   */
  public static Column answers(
      Column arguments, PythonCommand command, List<String> given, List<String> results, boolean binaryAsBytes) {
    StructType plain = struct(given.get(0)), arrow = struct(given.get(1));
    StructType plainResults = struct(results.get(0)), arrowResults = struct(results.get(1));
    PythonUdfs calls = new PythonUdfs(command, plain, arrow, plainResults, arrowResults, binaryAsBytes);
    Expression target = Literal.fromObject(calls, new ObjectType(PythonUdfs.class));
    StructType all = new StructType(
        Stream.of(plainResults, arrowResults).flatMap(each -> Arrays.stream(each.fields())).toArray(StructField[]::new));
    StructType answer = new StructType().add("results", all).add("reason", "string").add("traceback", "string");
    Invoke call = new Invoke(
        target, "call", answer, Scala.seq(List.of(ExpressionUtils.expression(arguments))), Scala.seq(List.of()), true,
        true, false);
    return ExpressionUtils.column(call);
  }

  private static StructType struct(String json) {
    return (StructType) DataType.fromJson(json);
  }

  /** Return the answer to the calls of a row. */
  public InternalRow call(InternalRow arguments) {
    if (exchange == null) exchange = new Exchange();
    return exchange.answer(arguments);
  }

  /** The part of a task: its process, and the codecs. */
  private final class Exchange {
    private final RowCodec requests =
        new RowCodec(new StructType().add("plain", "binary").add("arrow", arrow));
    private final RowCodec answers = new RowCodec(
        new StructType().add("plain", "binary").add("arrow", arrowResults).add("reason", "string")
            .add("traceback", "string"));
    private final scala.Function1<Object, Object> plainValues = EvaluatePython.makeFromJava(plainResults);
    private final PythonCalls calls = new PythonCalls(command);

    Exchange() {
      EvaluatePython.registerPicklers();
    }

    InternalRow answer(InternalRow arguments) {
      byte[] pickled = plainResults.isEmpty() ? null : pickled(part(arguments, plain, 0));
      InternalRow request = new GenericInternalRow(new Object[] {pickled, part(arguments, arrow, plain.size())});
      InternalRow answer = answers.decode(calls.call(requests.encode(request)));
      if (!answer.isNullAt(2)) return failed(answer.getUTF8String(2), answer.getUTF8String(3));
      Object[] results = new Object[plainResults.size() + arrowResults.size()];
      try {
        if (pickled != null) {
          take(results, 0, (InternalRow) plainValues.apply(unpickled(answer.getBinary(0))), plainResults);
        }
      } catch (RuntimeException error) { // Spark's conversion refuses the value that the function returned
        String text = "the function failed: its result can't be converted: " + error.getMessage();
        return failed(UTF8String.fromString(text), UTF8String.fromString(error.toString()));
      }
      take(results, plainResults.size(), answer.getStruct(1, arrowResults.size()), arrowResults);
      return new GenericInternalRow(new Object[] {new GenericInternalRow(results), null, null});
    }

    private InternalRow failed(UTF8String reason, UTF8String traceback) {
      return new GenericInternalRow(new Object[] {null, reason, traceback});
    }

    /** Return a row as Spark sends it to its own workers: as a list of one row. */
    private byte[] pickled(InternalRow row) {
      return BatchEvalPythonExec.getInputIterator(
          Scala.seq(List.of(row)).iterator(), plain, 1, binaryAsBytes,
          BatchEvalPythonExec.getInputIterator$default$5(), BatchEvalPythonExec.getInputIterator$default$6()).next();
    }

    private Object unpickled(byte[] results) {
      try {
        return new Unpickler().loads(results);
      } catch (IOException error) {
        throw new IllegalStateException(error); // an array of bytes has no such errors
      }
    }
  }

  private static InternalRow part(InternalRow row, StructType types, int from) {
    Object[] values = new Object[types.size()];
    for (int i = 0; i < values.length; i++) values[i] = row.get(from + i, types.apply(i).dataType());
    return new GenericInternalRow(values);
  }

  private static void take(Object[] into, int from, InternalRow row, StructType types) {
    for (int i = 0; i < types.size(); i++) into[from + i] = row.get(i, types.apply(i).dataType());
  }
}
