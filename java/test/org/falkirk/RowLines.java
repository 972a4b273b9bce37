package org.falkirk;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * Reads and writes rows that Python draws: `tests/unit/java/test_row_codec.py` compares both implementations.
 *
 * <p>A line has a schema as JSON and the bytes of a row, both as hexadecimal digits. The answer to {@code again} has the
 * bytes of the same row after Spark has copied it, or {@code refused}. The answer to {@code text} is Spark's text of it.
 */
public final class RowLines {
    private RowLines() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.US_ASCII);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(answer(line.split(" ", -1)));
        }
    }

    private static String answer(String[] words) {
        String json = new String(HexFormat.of().parseHex(words[1]), StandardCharsets.UTF_8);
        StructType schema = (StructType) DataType.fromJson(json);
        try {
            RowCodec codec = new RowCodec(schema);
            InternalRow row = codec.decode(HexFormat.of().parseHex(words[2]));
            if (words[0].equals("again")) {
                return HexFormat.of().formatHex(codec.encode(UnsafeProjection.create(schema).apply(row)));
            }
            InternalRow outer = new GenericInternalRow(new Object[] {row});
            BoundReference whole = new BoundReference(0, schema, false);
            return new Cast(whole, DataTypes.StringType, Option.apply("UTC"), Cast.apply$default$4()).eval(outer).toString();
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
    }
}
