"""Python: finds the user's functions in a Spark plan, and the user's assertions about them."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark import cloudpickle
from pyspark.sql import DataFrame

from falkirk.declare.asserting import DeterminismAssertion, assertion_of
from falkirk.steps.static_analysis.structure import class_name, objects_in, plan_tree

#: Catalyst's classes that stand for Python functions.
PYTHON_EXPRESSIONS = frozenset(
    {
        "PythonUDF", "PythonUDAF", "MapInArrow", "MapInPandas", "PythonMapInArrow", "FlatMapGroupsInPandas",
        "FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapCoGroupsInArrow",
    }
)  # fmt: skip


#: Stands beside tree patterns for a plan that Spark takes for non-deterministic.
NON_DETERMINISTIC_PLAN = "NON_DETERMINISTIC_PLAN"


def assertions(data: DataFrame) -> tuple[DeterminismAssertion, ...] | None:
    """Return the user's assertions about the Python functions in a plan; None: at least one function has none.

    `asNondeterministic()` outweighs an assertion.
    """
    found: list[DeterminismAssertion] = []
    for udf in _calls(data):
        assertion = assertion_of(function_of(udf)) if udf.udfDeterministic() else None
        if assertion is None:
            return None
        if assertion not in found:
            found.append(assertion)
    return tuple(found)


def functions(data: DataFrame) -> Iterator[Any]:
    """Yield the Python functions in a plan; None for a function that can't be unpickled."""
    yield from map(function_of, _calls(data))


def _calls(data: DataFrame) -> Iterator[Any]:
    """Yield the expressions that call a Python function."""
    if not _mentions_python(plan_tree(data)):
        return  # a walk through the plan costs a call to the JVM for each expression
    udf = _class(data.sparkSession, "PythonFuncExpression")
    for expression in expressions(data._jdf.queryExecution().analyzed()):
        if udf.isInstance(expression):
            yield expression


def _mentions_python(node: Any) -> bool:
    """Return whether any class in a plan, as Spark's JSON, stands for a Python function."""
    return any(class_name(each) in PYTHON_EXPRESSIONS for each, _ in objects_in(node))


def replaced(data: DataFrame, kinds: Collection[str]) -> Iterator[Any]:
    """Yield the expressions of some classes in a DataFrame's plan. The session may lack the Java module.

    Args: kinds: the classes' simple names. If Spark replaces an expression before it runs, its replacement counts.
    """
    finder = data.sparkSession._jvm.org.falkirk.PlanExpressions  # type: ignore[union-attr]
    if isinstance(finder, JavaClass):
        yield from finder.of(data._jdf, ",".join(kinds))
    else:
        every = _replaced(data.sparkSession, expressions(data._jdf.queryExecution().analyzed()))
        yield from (each for each in every if str(each.getClass().getSimpleName()) in kinds)


def nodes_of(data: DataFrame, kinds: Collection[str]) -> Iterator[Any]:
    """Yield the nodes of some classes in a DataFrame's plan. The session may lack the Java module.

    Args: kinds: the classes' simple names.
    """
    finder = data.sparkSession._jvm.org.falkirk.PlanExpressions  # type: ignore[union-attr]
    if isinstance(finder, JavaClass):
        yield from finder.nodes(data._jdf, ",".join(kinds))
    else:
        every = nodes(data._jdf.queryExecution().analyzed())
        yield from (each for each in every if str(each.getClass().getSimpleName()) in kinds)


def patterns(data: DataFrame, names: Collection[str]) -> frozenset[str]:
    """Return those of some of Spark's tree patterns that a DataFrame's plan contains, and `NON_DETERMINISTIC_PLAN` if
    it is not deterministic. The session may lack the Java module."""
    jvm: Any = data.sparkSession._jvm
    finder = jvm.org.falkirk.PlanExpressions
    if isinstance(finder, JavaClass):
        return frozenset(filter(None, str(finder.patterns(data._jdf, ",".join(names))).split(",")))
    plan, known = data._jdf.queryExecution().analyzed(), jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    found = {name for name in names if plan.containsPattern(getattr(known, name)())}
    return frozenset(found if plan.deterministic() else {*found, NON_DETERMINISTIC_PLAN})


def _replaced(session: Any, found: Iterable[Any]) -> Iterator[Any]:
    replaceable = _class(session, "RuntimeReplaceable")
    waiting = list(found)
    while waiting:
        expression = waiting.pop()
        if not replaceable.isInstance(expression):
            yield expression
            continue
        parts = [expression.replacement()]
        while parts:
            part = parts.pop()
            waiting.append(part)
            parts += [part.children().apply(i) for i in range(part.children().size())]


def _class(session: Any, name: str) -> Any:
    """Return a class of Catalyst's expressions."""
    loader = session._jvm.Thread.currentThread().getContextClassLoader()
    return session._jvm.java.lang.Class.forName(f"org.apache.spark.sql.catalyst.expressions.{name}", True, loader)


def function_of(udf: Any) -> Any:
    """Return the function that an expression calls; None: it can't be unpickled."""
    command = udf.func().command()
    if not isinstance(command, bytes | bytearray):  # a Scala sequence: read it as one text, not byte by byte
        command = bytes(int(byte) & 0xFF for byte in str(command.mkString(" ")).split())
    try:
        return cloudpickle.loads(bytes(command))[0]
    except Exception:  # a user's class may raise any error when it is unpickled
        return None


def nodes(plan: Any) -> Iterator[Any]:
    """Yield a plan and all plans below it, including subqueries."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        for below in (node.children(), node.subqueries()):
            waiting += [below.apply(i) for i in range(below.size())]


def expressions(plan: Any) -> Iterator[Any]:
    """Yield the expressions of a plan and of all plans below it, including subqueries, each before its parts."""
    for node in nodes(plan):
        found = node.expressions()
        parts = [found.apply(i) for i in range(found.size())]
        while parts:
            expression = parts.pop()
            yield expression
            children = expression.children()
            parts += [children.apply(i) for i in range(children.size())]
