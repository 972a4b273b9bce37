package org.falkirk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.api.python.PythonEvalType;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.ExpressionUtils;

/**
 * The user-defined functions in the columns of a step that can be called now, taken out of these columns.
 *
 * <p>Functions on whose results other functions depend come in an earlier round. One exception is Spark's: if the result
 * of a function is the only argument of another one of the same kind, Python passes it on, without a conversion.
 */
public final class UdfRound {
  private final List<PythonUDF> calls = new ArrayList<>();
  private final List<Expression> columns = new ArrayList<>();

  private UdfRound() {}

  /** Return the first round of a step that computes these columns from a DataFrame. It may be empty. */
  public static UdfRound of(Dataset<Row> data, List<Column> columns) {
    UdfRound round = new UdfRound();
    Project step = (Project) data.select(Scala.<Column>seq(columns)).queryExecution().analyzed();
    for (NamedExpression column : Scala.<NamedExpression>list(step.projectList())) {
      round.columns.add((Expression) column);
      round.find((Expression) column);
    }
    return round;
  }

  private void find(Expression expression) {
    if (expression instanceof PythonUDF udf && isReady(udf)) {
      if (numberOf(udf) < 0) calls.add(udf);
      return;
    }
    for (Expression child : Scala.<Expression>list(expression.children())) find(child);
  }

  private int numberOf(PythonUDF udf) {
    for (int i = 0; i < calls.size(); i++) {
      if (calls.get(i) == udf || calls.get(i).semanticEquals(udf)) return i;
    }
    return -1;
  }

  private static boolean isReady(PythonUDF udf) {
    PythonUDF inner = chained(udf);
    return inner == null ? !hasUdf(udf.children()) : isReady(inner);
  }

  /** Return the function whose result Python passes to this one, or null. */
  private static PythonUDF chained(PythonUDF udf) {
    List<Expression> children = Scala.list(udf.children());
    return children.size() == 1 && children.get(0) instanceof PythonUDF inner && inner.evalType() == udf.evalType()
        ? inner : null;
  }

  private static boolean hasUdf(scala.collection.Iterable<Expression> several) {
    for (Expression each : Scala.<Expression>list(several)) {
      if (each instanceof PythonUDF || hasUdf(each.children())) return true;
    }
    return false;
  }

  /** Return how many calls the round has. */
  public int size() {
    return calls.size();
  }

  /** Return the pickled functions of a call, each with the type of its result. Each gets the result of the one before. */
  public List<byte[]> commands(int call) {
    List<byte[]> commands = new ArrayList<>();
    for (PythonUDF each : chain(call)) {
      List<Object> parts = Scala.list(each.func().command());
      byte[] command = new byte[parts.size()];
      for (int i = 0; i < command.length; i++) command[i] = (Byte) parts.get(i);
      commands.add(command);
    }
    return commands;
  }

  /** Return whether a call is of the kind that exchanges values through Arrow. */
  public boolean usesArrow(int call) {
    return calls.get(call).evalType() == PythonEvalType.SQL_ARROW_BATCHED_UDF();
  }

  /** Return the type of the result of a call, as JSON. */
  public String result(int call) {
    return calls.get(call).dataType().json();
  }

  private List<PythonUDF> chain(int call) {
    List<PythonUDF> chain = new ArrayList<>();
    for (PythonUDF each = calls.get(call); each != null; each = chained(each)) chain.add(each);
    Collections.reverse(chain);
    return chain;
  }

  private List<Expression> children(int call) {
    return Scala.list(chain(call).get(0).children());
  }

  private static Expression value(Expression argument) {
    return argument instanceof NamedArgumentExpression named ? named.value() : argument;
  }

  /** Return the arguments of a call. */
  public List<Column> arguments(int call) {
    List<Column> arguments = new ArrayList<>();
    for (Expression each : children(call)) arguments.add(ExpressionUtils.column(value(each)));
    return arguments;
  }

  /** Return the types of the arguments of a call, as JSON. */
  public List<String> types(int call) {
    List<String> types = new ArrayList<>();
    for (Expression each : children(call)) types.add(value(each).dataType().json());
    return types;
  }

  /** Return the names of the arguments of a call, the empty text for one without a name. */
  public List<String> names(int call) {
    List<String> names = new ArrayList<>();
    for (Expression each : children(call)) names.add(each instanceof NamedArgumentExpression named ? named.key() : "");
    return names;
  }

  /**
   * Return the step's columns with references in place of the calls.
   *
   * @param results the path of the result of each call, such as `column.field`, without dots in its parts.
   * @param named whether columns keep their names. If not, they are expressions without one.
   */
  public List<Column> columns(List<String> results, boolean named) {
    List<Column> found = new ArrayList<>();
    for (Expression column : columns) {
      Expression bare = !named && column instanceof Alias alias ? alias.child() : column;
      found.add(ExpressionUtils.column(replaced(bare, results)));
    }
    return found;
  }

  private Expression replaced(Expression expression, List<String> results) {
    int number = expression instanceof PythonUDF udf ? numberOf(udf) : -1;
    if (number >= 0) return new UnresolvedAttribute(Scala.seq(List.of(results.get(number).split("\\."))));
    boolean same = true;
    List<Expression> children = new ArrayList<>();
    for (Expression child : Scala.<Expression>list(expression.children())) {
      Expression other = replaced(child, results);
      same &= other == child;
      children.add(other);
    }
    return same ? expression : (Expression) expression.withNewChildren(Scala.seq(children));
  }
}
