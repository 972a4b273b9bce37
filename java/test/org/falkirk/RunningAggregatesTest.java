package org.falkirk;

import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Length;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Uuid;
import scala.Option;

/** Each record gives the updated aggregates of its key; bad records pass; a key is in one source partition. */
public final class RunningAggregatesTest {
    private static RunningAggregates opened(InMemory tables) {
        RunningAggregates made =
                new RunningAggregates(EventTimeTest.NAMES, "key", "values", WindowsTest.aggregates());
        made.open(EventTimeTest.COLUMNS, tables);
        return made;
    }

    private static String shown(RunningAggregates operator, Row record) {
        List<Row> found = InMemory.all(operator.take(record));
        Check.equal(found.size(), 1);
        Row stamp = found.get(0).getStruct(1);
        Row values = found.get(0).getStruct(EventTimeTest.COLUMNS.size());
        String place = stamp.getInt(1) + "." + stamp.getLong(2);
        return values == null ? place : place + " " + values.getLong(0) + " " + values.getLong(1);
    }

    public void eachRecordGivesTheAggregatesOfItsKeySoFar() {
        InMemory tables = new InMemory();
        RunningAggregates operator = opened(tables);
        Check.equal(shown(operator, EventTimeTest.record("a", 0, 0, 7)), "0.0 1 7");
        Check.equal(shown(operator, EventTimeTest.record("a", 0, 1, 5)), "0.1 2 7");
        Check.equal(shown(operator, EventTimeTest.record("b", 1, 0, 9)), "1.0 1 9");
        Check.equal(shown(opened(tables.copy()), EventTimeTest.record("a", 0, 2, 8)), "0.2 3 8");
    }

    public void aColumnThatIsNeverNullHasNoValueInAResult() {
        RunningAggregates operator =
                new RunningAggregates(EventTimeTest.NAMES, "key", "values", WindowsTest.aggregates());
        EventTimeTest.checkResultsAreRows(operator, EventTimeTest.record("a", 0, 0, 7));
    }

    public void aRandomValueIsRefused() {
        Expression random = new Length(new Uuid(Option.apply((Object) 1L)));
        NamedExpression named = new Alias(
                random, "id", NamedExpression.newExprId(), Scala.seq(List.of()), Option.empty(), Scala.seq(List.of()));
        for (boolean isInput : new boolean[] {true, false}) {
            IllegalArgumentException error = Check.thrown(IllegalArgumentException.class, () -> Aggregates.of(
                    List.of(), isInput ? List.of() : List.of(named), isInput ? List.of(named) : List.of()));
            Check.that(error.getMessage().startsWith("uuid() can't be among aggregates"), error.getMessage());
        }
    }

    public void aBadRecordPasses() {
        InMemory tables = new InMemory();
        Check.equal(shown(opened(tables), EventTimeTest.bad(1, 4)), "1.4");
        Check.equal(tables.tables.get("aggregates").size(), 0);
    }

    public void aKeyFromTwoPartitionsIsAnError() {
        RunningAggregates operator = opened(new InMemory());
        operator.take(EventTimeTest.record("a", 1, 0, 5));
        IllegalStateException error =
                Check.thrown(IllegalStateException.class, () -> operator.take(EventTimeTest.record("a", 0, 0, 5)));
        Check.equal(error.getMessage(), FirstOfKey.SPLIT_KEY + "|0|1|[a]");
    }
}
