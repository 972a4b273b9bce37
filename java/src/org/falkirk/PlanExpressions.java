package org.falkirk;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import scala.collection.Iterator;

/** Finds expressions in an analysed plan. In Python, a walk costs five calls to the JVM for each expression. */
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
        Deque<LogicalPlan> plans = new ArrayDeque<>(List.of(data.queryExecution().analyzed()));
        while (!plans.isEmpty()) {
            LogicalPlan plan = plans.pop();
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
            push(plans, plan.children());
            push(plans, plan.subqueries());
        }
        return found;
    }

    @SuppressWarnings("unchecked")
    private static <T> void push(Deque<T> waiting, scala.collection.Iterable<?> several) {
        for (Iterator<?> parts = several.iterator(); parts.hasNext(); ) {
            waiting.push((T) parts.next());
        }
    }
}
