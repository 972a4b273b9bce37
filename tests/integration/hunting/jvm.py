"""Asks the JVM, with one call each, which expressions Spark accepts, and for the exact bits of a DataFrame's rows.
Single requests from Python would take many times as long."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.classic.dataframe import DataFrame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The separators between texts, and between the parts of a text.
_NEXT, _PART = "\u0001", "\u0002"
#: The beginning of the text of a failure, in place of a result.
FAILED = "!"
#: The time zone of another machine, which is not the session's.
_OTHER_ZONE = "Pacific/Chatham"

_SOURCE = """
package falkirkhunt;
import java.util.*;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;

public class Hunt {
  private static final String NEXT = "\\u0001", PART = "\\u0002";

  public static class Collected extends scala.runtime.AbstractFunction0 {
    private final SparkPlan plan;
    public Collected(SparkPlan plan) { this.plan = plan; }
    public Object apply() { return plan.executeCollect(); }
  }

  private static UnsafeRow[] collected(Dataset data) {
    Collected body = new Collected(data.queryExecution().executedPlan());
    Object rows = SQLExecution.withNewExecutionId(data.queryExecution(), scala.Option.apply("hunt"), body);
    Object[] several = (Object[]) rows;
    UnsafeRow[] found = new UnsafeRow[several.length];
    for (int i = 0; i < several.length; i++) { found[i] = (UnsafeRow) several[i]; }
    return found;
  }

  private static String joined(List texts, String between) {
    StringBuilder built = new StringBuilder();
    for (int i = 0; i < texts.size(); i++) {
      if (i > 0) { built.append(between); }
      built.append(texts.get(i));
    }
    return built.toString();
  }

  private static String sorted(List texts) {
    Collections.sort(texts);
    return joined(texts, "\\n");
  }

  private static String failed(Throwable error) {
    String text = String.valueOf(error.getMessage()).replace(NEXT, "?");
    return "!" + error.getClass().getSimpleName() + ": " + text.substring(0, Math.min(300, text.length()));
  }

  public static String rows(Object given) {
    try {
      Dataset data = (Dataset) given;
      UnsafeRow[] rows = collected(data);
      StructType schema = data.schema();
      List texts = new ArrayList();
      for (int i = 0; i < rows.length; i++) { texts.add(all(rows[i], schema)); }
      return schema.catalogString() + "\\n" + sorted(texts);
    } catch (Throwable error) { return failed(error); }
  }

  private static String all(UnsafeRow row, StructType schema) {
    StringBuilder built = new StringBuilder("(");
    for (int k = 0; k < schema.size(); k++) { built.append(value(row, k, schema)).append(" | "); }
    return built.append(")").toString();
  }

  private static String value(UnsafeRow row, int i, StructType schema) {
    if (row.isNullAt(i)) { return "null"; }
    long word = row.getLong(i);
    if (UnsafeRow.isFixedLength(schema.apply(i).dataType())) { return Long.toHexString(word); }
    if (schema.apply(i).dataType() instanceof StructType) {
      StructType inner = (StructType) schema.apply(i).dataType();
      return all((UnsafeRow) row.getStruct(i, inner.size()), inner);
    }
    long place = row.getBaseOffset() + (word >>> 32);
    StringBuilder built = new StringBuilder("*");
    for (int at = 0; at < (int) word; at++) {
      built.append(Integer.toHexString(Platform.getByte(row.getBaseObject(), place + at) & 0xff)).append(' ');
    }
    return built.toString();
  }

  private static void columns(SparkSession session, String head, String tail, List texts, List found) {
    StringBuilder sql = new StringBuilder(head);
    for (int i = 0; i < texts.size(); i++) { sql.append(", ").append(texts.get(i)).append(" AS falkirk_").append(i); }
    try {
      Dataset data = session.sql(sql.append(tail).toString());
      StructType schema = data.schema();
      UnsafeRow[] rows = collected(data);
      int keys = schema.size() - texts.size();
      for (int i = 0; i < texts.size(); i++) {
        List values = new ArrayList();
        for (int j = 0; j < rows.length; j++) {
          StringBuilder row = new StringBuilder();
          for (int k = 0; k < keys; k++) { row.append(value(rows[j], k, schema)).append(" | "); }
          values.add(row.append(value(rows[j], keys + i, schema)).toString());
        }
        found.add(schema.apply(keys + i).dataType().catalogString() + "\\n" + sorted(values));
      }
    } catch (Throwable error) {
      if (texts.size() == 1) { found.add(failed(error)); return; }
      int half = texts.size() / 2;
      columns(session, head, tail, texts.subList(0, half), found);
      columns(session, head, tail, texts.subList(half, texts.size()), found);
    }
  }

  public static String columns(Object session, String head, String tail, String texts) {
    List found = new ArrayList();
    columns((SparkSession) session, head, tail, Arrays.asList(texts.split(NEXT)), found);
    return joined(found, NEXT);
  }

  public static String types(Object session, String head, String tail, String texts) {
    String[] several = texts.split(NEXT);
    List found = new ArrayList();
    for (int i = 0; i < several.length; i++) {
      try {
        StructType schema = ((SparkSession) session).sql(head + several[i] + tail).schema();
        found.add(schema.size() == 1 ? schema.apply(0).dataType().catalogString() : "");
      } catch (Throwable error) { found.add(""); }
    }
    return joined(found, NEXT);
  }

  public static String error(Object session, String text) {
    try {
      ((SparkSession) session).sql(text).schema();
      return "";
    } catch (Throwable error) { return failed(error); }
  }

  public static String functions(Object session) {
    org.apache.spark.sql.internal.SessionState state = ((SparkSession) session).sessionState();
    return listed(state.functionRegistry()) + NEXT + listed(state.tableFunctionRegistry());
  }

  private static String listed(org.apache.spark.sql.catalyst.analysis.FunctionRegistryBase registry) {
    scala.collection.Seq names = registry.listFunction();
    List found = new ArrayList();
    for (int i = 0; i < names.size(); i++) {
      scala.Option option = registry.lookupFunction((org.apache.spark.sql.catalyst.FunctionIdentifier) names.apply(i));
      ExpressionInfo info = (ExpressionInfo) option.get();
      found.add(info.getName() + PART + info.getGroup() + PART + info.getExamples());
    }
    return joined(found, NEXT);
  }
}
"""


@cache
def _compiled(jvm: Any) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    loaded = compiler.getClassLoader().loadClass("falkirkhunt.Hunt")
    methods = {str(m.getName()): m for m in loaded.getMethods()}
    array, kind = jvm.java.lang.reflect.Array, jvm.java.lang.Object

    def call(name: str, *arguments: Any) -> str:
        given = array.newInstance(kind().getClass(), len(arguments))
        for i, argument in enumerate(arguments):
            given[i] = argument
        return str(methods[name].invoke(None, given))

    return call


def _call(session: "SparkSession", name: str, *arguments: Any) -> str:
    return str(_compiled(session._jvm)(name, *arguments))


def activate(session: "SparkSession") -> None:
    """Make a session the active one, whose settings Spark uses if it has no particular session."""
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


def shared(data: DataFrame, session: "SparkSession") -> DataFrame:
    """Return the rows of a DataFrame in another session. Spark does not know how they are divided and sorted."""
    java: Any = session._jsparkSession
    rows = data._jdf.queryExecution().toRdd()
    return DataFrame(java.internalCreateDataFrame(rows, data._jdf.schema(), False), session)


def rows(data: DataFrame) -> str:
    """Run a DataFrame; return its columns and its rows, sorted as text; or `FAILED` and the reason."""
    return _call(data.sparkSession, "rows", data._jdf)


def columns(session: "SparkSession", head: str, tail: str, texts: Sequence[str]) -> list[str]:
    """Run expressions in one job, or in a few if some of them fail; return the same text for each as `rows`.

    Args: head: the text before the expressions: `SELECT` and the keys. tail: the text after them.
    """
    if not texts:
        return []
    return _call(session, "columns", session._jsparkSession, head, tail, _NEXT.join(texts)).split(_NEXT)


def types(session: "SparkSession", head: str, tail: str, texts: Sequence[str]) -> list[str]:
    """Return the type of each expression; an empty text if Spark does not accept it."""
    if not texts:
        return []
    return _call(session, "types", session._jsparkSession, head, tail, _NEXT.join(texts)).split(_NEXT)


def error(session: "SparkSession", text: str) -> str:
    """Return why Spark does not accept a statement; an empty text if it does."""
    return _call(session, "error", session._jsparkSession, text)


def functions(session: "SparkSession") -> Iterator[tuple[str, str, str]]:
    """Yield the name, the group and the documented examples of each function in Spark's registries."""
    for one in _call(session, "functions", session._jsparkSession).split(_NEXT):
        name, group, examples = one.split(_PART)
        yield name, group, examples


@contextmanager
def on_another_machine(session: "SparkSession") -> Iterator[None]:
    """For a while, let the JVM have the time zone of another machine. Its language is pinned, see `elsewhere`."""
    jvm: Any = session._jvm
    zones = jvm.java.util.TimeZone
    zone = zones.getDefault()
    zones.setDefault(zones.getTimeZone(_OTHER_ZONE))
    try:
        yield
    finally:
        zones.setDefault(zone)
