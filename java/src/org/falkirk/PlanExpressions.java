package org.falkirk;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import java.util.StringJoiner;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.Dataset;
import scala.collection.Iterator;

/** Finds nodes and expressions in an analysed plan. In Python, a walk costs five calls to the JVM for each expression. */
public final class PlanExpressions {
    private PlanExpressions() {}

    /**
     * Return the expressions of some classes in a plan and in its subqueries. If Spark replaces an expression before it
     * runs, those of the replacement are meant.
     *
     * @param kinds the simple names of the classes, separated by commas
     */
    public static List<Expression> of(Dataset<?> data, String kinds) {
        Set<String> wanted = Set.of(kinds.split(","));
        List<Expression> found = new ArrayList<>();
        Set<Expression> seen = Collections.newSetFromMap(new IdentityHashMap<>());
        for (LogicalPlan plan : nodes(data)) {
            Deque<Expression> waiting = new ArrayDeque<>();
            push(waiting, plan.expressions());
            while (!waiting.isEmpty()) {
                Expression each = waiting.pop();
                if (!seen.add(each)) {
                    continue;
                }
                push(waiting, each.children());
                if (each instanceof RuntimeReplaceable replaceable) {
                    waiting.push(replaceable.replacement());
                } else if (wanted.contains(each.getClass().getSimpleName())) {
                    found.add(each);
                }
            }
        }
        return found;
    }

    /**
     * Return the nodes of some classes in a plan and in its subqueries.
     *
     * @param kinds the simple names of the classes, separated by commas
     */
    public static List<LogicalPlan> nodes(Dataset<?> data, String kinds) {
        Set<String> wanted = Set.of(kinds.split(","));
        return nodes(data).stream().filter(each -> wanted.contains(each.getClass().getSimpleName())).toList();
    }

    private static List<LogicalPlan> nodes(Dataset<?> data) {
        List<LogicalPlan> found = new ArrayList<>();
        Deque<LogicalPlan> plans = new ArrayDeque<>(List.of(data.queryExecution().analyzed()));
        while (!plans.isEmpty()) {
            LogicalPlan plan = plans.pop();
            found.add(plan);
            push(plans, plan.children());
            push(plans, plan.subqueries());
        }
        return found;
    }

    /**
     * Return those of some tree patterns that a plan contains, separated by commas, and {@code NON_DETERMINISTIC_PLAN} if
     * it is not deterministic.
     *
     * @param names the names of the patterns, separated by commas
     */
    public static String patterns(Dataset<?> data, String names) {
        LogicalPlan plan = data.queryExecution().analyzed();
        StringJoiner found = new StringJoiner(",");
        for (String name : names.split(",")) {
            if (plan.containsPattern(TreePattern.withName(name))) {
                found.add(name);
            }
        }
        return (plan.deterministic() ? found : found.add("NON_DETERMINISTIC_PLAN")).toString();
    }

    @SuppressWarnings("unchecked")
    private static <T> void push(Deque<T> waiting, scala.collection.Iterable<?> several) {
        for (Iterator<?> parts = several.iterator(); parts.hasNext(); ) {
            waiting.push((T) parts.next());
        }
    }
}
