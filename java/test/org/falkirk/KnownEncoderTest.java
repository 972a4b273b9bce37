package org.falkirk;

import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/** An encoder is resolved once for its columns, gives the rows that it got, and is resolved anew for others. */
public final class KnownEncoderTest {
    private static final StructType COLUMNS = StructType.fromDDL("id STRING, n BIGINT, at STRUCT<s: INT, of: BINARY>");

    private static ExpressionEncoder<Row> of(StructType columns) {
        return KnownEncoder.of(columns);
    }

    private static ExpressionEncoder<Row> resolved(ExpressionEncoder<Row> made, Seq<Attribute> places) {
        Analyzer analyzer = made.resolveAndBind$default$2();
        return made.resolveAndBind(places, analyzer);
    }

    private static InternalRow written(ExpressionEncoder<Row> made, Row row) {
        return made.createSerializer().apply(row).copy();
    }

    public void anEncoderIsResolvedOnce() {
        ExpressionEncoder<Row> made = of(COLUMNS);
        made.assertUnresolved();
        Check.that(made == of(StructType.fromDDL(COLUMNS.toDDL())), "equal columns have one encoder");
        ExpressionEncoder<Row> first = resolved(made, made.resolveAndBind$default$1());
        Check.that(first == resolved(made, made.resolveAndBind$default$1()), "it is resolved once");
        Check.that(made != of(COLUMNS.add("more", "INT")), "other columns have another one");
        Check.that(made != of(COLUMNS.add("n", "INT")), "so have columns of other types");
    }

    public void rowsAreThoseThatWereWritten() {
        ExpressionEncoder<Row> made = of(COLUMNS);
        ExpressionEncoder<Row> back = resolved(made, made.resolveAndBind$default$1());
        for (Object id : new Object[] {"a", null}) {
            Row row = RowFactory.create(id, 7L, RowFactory.create(3, new byte[] {1, 2}));
            Row found = back.createDeserializer().apply(written(made, row));
            Check.equal(found.get(0), id);
            Check.equal(found.getLong(1), 7L);
            Check.equal(found.getStruct(2).getInt(0), 3);
            Check.equal(((byte[]) found.getStruct(2).get(1)).length, 2);
        }
    }

    public void othersThanItsColumnsAreResolvedAnew() {
        ExpressionEncoder<Row> made = of(StructType.fromDDL("id STRING, n BIGINT"));
        ExpressionEncoder<Row> other = of(StructType.fromDDL("name STRING, n BIGINT"));
        ExpressionEncoder<Row> first = resolved(made, made.resolveAndBind$default$1());
        ExpressionEncoder<Row> anew = resolved(made, other.resolveAndBind$default$1());
        Check.that(first != anew, "it is resolved for these columns");
        Row found = anew.createDeserializer().apply(written(other, RowFactory.create("b", 5L)));
        Check.equal(List.of(found.get(0), found.get(1)), List.of("b", 5L));
    }
}
