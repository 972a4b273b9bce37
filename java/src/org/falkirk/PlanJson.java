package org.falkirk;

import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.zip.Deflater;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.catalyst.ScalaReflection$;
import org.apache.spark.sql.catalyst.catalog.BucketSpec;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.FunctionResource;
import org.apache.spark.sql.catalyst.AliasIdentifier;
import org.apache.spark.sql.catalyst.CatalystIdentifier;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.physical.BroadcastMode;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.storage.StorageLevel;
import scala.Option;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * The JSON of an analysed plan: the same as Spark's {@code toJSON}, without fields that the analysis ignores.
 *
 * <p>Spark asks Scala's reflection for the names of a class's parameters at each node of each plan, which takes most of
 * its time. Here they are kept for each class. A test compares both texts for the plans of the corpus.
 */
public final class PlanJson {
    private static final Map<Class<?>, String[]> NAMES = new ConcurrentHashMap<>();
    private static final Map<Class<?>, Boolean> WRITES_ITSELF = new ConcurrentHashMap<>();

    /** Deflated bytes are hardly longer than the text. */
    private static final int MARGIN_BYTES = 1_024;

    private final StringBuilder text = new StringBuilder(16_384);
    private final Map<DataType, String> types = new IdentityHashMap<>();
    private final Set<String> ignored;

    private PlanJson(Set<String> ignored) {
        this.ignored = ignored;
    }

    /**
     * Return a plan, the columns of its result, and the leaves of the plan and of its subqueries: {@code {"tree": …,
     * "output": [[name, identity], …], "leaves": [[kind, [identity of its first part, of its second part]], …]}}.
     *
     * <p>It is deflated: an answer of more than 8 KB leaves py4j in several writes, and waits 40 ms for TCP between them.
     *
     * @param ignored the names of fields to leave out, separated by commas
     */
    public static byte[] of(Dataset<?> data, String ignored) {
        LogicalPlan plan = data.queryExecution().analyzed();
        PlanJson json = new PlanJson(Set.of(ignored.split(",")));
        json.text.append("{\"tree\":");
        int start = json.text.length();
        try {
            json.tree(plan);
        } catch (RuntimeException | AssertionError unusual) { // Spark writes this plan, or fails as it always did
            json.text.setLength(start);
            json.text.append(plan.toJSON());
        }
        json.text.append(",\"output\":[");
        for (Iterator<Attribute> columns = plan.output().iterator(); columns.hasNext(); ) {
            Attribute column = columns.next();
            json.text.append('[');
            json.string(column.name());
            json.text.append(',').append(column.exprId().id()).append(columns.hasNext() ? "]," : "]");
        }
        json.text.append("],\"leaves\":[");
        json.leaves(plan);
        for (Object inner : list(plan.subqueriesAll())) {
            json.leaves((LogicalPlan) inner);
        }
        return deflated(json.text.append("]}").toString().getBytes(StandardCharsets.UTF_8));
    }

    /** Return the text of a plan, deflated. */
    public static byte[] text(Dataset<?> data) {
        return deflated(data.queryExecution().analyzed().toString().getBytes(StandardCharsets.UTF_8));
    }

    private void leaves(LogicalPlan plan) {
        for (Object each : list(plan.collectLeaves())) {
            LogicalPlan leaf = (LogicalPlan) each;
            text.append(text.charAt(text.length() - 1) == '[' ? "" : ",").append('[');
            string(leaf.getClass().getSimpleName());
            text.append(",[");
            for (int i = 0; i < Math.min(2, leaf.productArity()); i++) {
                text.append(i == 0 ? "" : ",").append(System.identityHashCode(leaf.productElement(i)));
            }
            text.append("]]");
        }
    }

    private static byte[] deflated(byte[] text) {
        Deflater deflater = new Deflater(Deflater.BEST_SPEED);
        try {
            deflater.setInput(text);
            deflater.finish();
            byte[] bytes = new byte[text.length + MARGIN_BYTES];
            return Arrays.copyOf(bytes, deflater.deflate(bytes));
        } finally {
            deflater.end();
        }
    }

    /** Write a node and all below it as a list, each node before its children. */
    private void tree(TreeNode<?> node) {
        text.append('[');
        nodes(node);
        text.append(']');
    }

    private void nodes(TreeNode<?> node) {
        List<Object> children = list(node.children());
        text.append("{\"class\":");
        string(name(node));
        text.append(",\"num-children\":").append(children.size());
        if (node instanceof Literal literal) {
            literal(literal);
        } else if (writesItself(node)) {
            throw new IllegalStateException(node.getClass() + " has its own method for its fields");
        } else {
            fields(node, children);
        }
        text.append('}');
        for (Object below : children) {
            text.append(',');
            nodes((TreeNode<?>) below);
        }
    }

    /** Return the class of a node. A call of an object of Falkirk has that of the object, which says what it does. */
    private static String name(TreeNode<?> node) {
        boolean isOurs = node instanceof Invoke call && call.targetObject() instanceof Literal target
                && (target.value() instanceof NewestEpoch || target.value() instanceof ViewRows);
        return isOurs ? ((Literal) ((Invoke) node).targetObject()).value().getClass().getName() : node.getClass().getName();
    }

    /** Write the fields of a node. A field that is a child, or a list of children, becomes their places. */
    private void fields(TreeNode<?> node, List<Object> children) {
        String[] names = names(node.getClass());
        List<Object> others = list(node.otherCopyArgs());
        int arity = node.productArity();
        if (names.length != arity + others.size()) {
            throw new IllegalStateException("the fields of " + node.getClass() + " are unknown");
        }
        for (int i = 0; i < names.length; i++) {
            if (ignored.contains(names[i])) {
                continue;
            }
            Object value = i < arity ? node.productElement(i) : others.get(i - arity);
            int place = value instanceof TreeNode ? children.indexOf(value) : -1;
            if (place >= 0) {
                key(names[i]);
                text.append(place);
            } else if (value instanceof Seq<?> several && children.containsAll(list(several))) {
                key(names[i]);
                text.append(list(several).stream().map(children::indexOf).toList().toString().replace(" ", ""));
            } else {
                field(names[i], value);
            }
        }
    }

    /** Write a field. Spark leaves out an empty option. */
    private void field(String name, Object value) {
        if (!isNothing(value)) {
            key(name);
            value(value);
        }
    }

    private void key(String name) {
        text.append(text.charAt(text.length() - 1) == '{' ? "" : ",");
        string(name);
        text.append(':');
    }

    private static boolean isNothing(Object value) {
        return value instanceof Option<?> option && (option.isEmpty() || isNothing(option.get()));
    }

    private void value(Object value) {
        if (value == null) {
            text.append("null");
        } else if (value instanceof Boolean || value instanceof Byte || value instanceof Short
                || value instanceof Integer || value instanceof Long || value instanceof scala.math.BigInt) {
            text.append(value);
        } else if (value instanceof Float || value instanceof Double) {
            number(((Number) value).doubleValue());
        } else if (value instanceof String || value instanceof UUID) {
            string(value.toString());
        } else if (value instanceof DataType type) {
            text.append(types.computeIfAbsent(type, DataType::json));
        } else if (value instanceof Metadata) {
            text.append("{}");
        } else if (value instanceof Class<?> type) {
            string(type.getName());
        } else if (value instanceof StorageLevel level) {
            storage(level);
        } else if (value instanceof TreeNode<?> node) {
            tree(node);
        } else if (value instanceof Option<?> option) {
            value(option.get());
        } else if (value instanceof Seq<?> several) {
            several(list(several));
        } else if (value instanceof scala.collection.immutable.Map) {
            text.append("null");
        } else if (value.getClass().getName().endsWith("$")) {
            text.append("{\"object\":");
            string(value.getClass().getName());
            text.append('}');
        } else if (value instanceof Product product && isWritten(product)) {
            product(product);
        } else {
            text.append("null");
        }
    }

    private void several(List<Object> several) {
        if (all(several, Partitioning.class) || all(several, DataType.class) || all(several, Product.class)) {
            text.append('[');
            for (Object part : several) {
                if (!isNothing(part)) {
                    text.append(text.charAt(text.length() - 1) == '[' ? "" : ",");
                    value(part);
                }
            }
            text.append(']');
        } else if (several.get(0) instanceof String) {
            throw new IllegalStateException("Spark may shorten a list of texts");
        } else {
            text.append("null");
        }
    }

    private static boolean all(List<Object> several, Class<?> type) {
        return several.stream().allMatch(type::isInstance);
    }

    private static List<Object> list(scala.collection.Iterable<?> several) {
        List<Object> list = new ArrayList<>();
        for (Iterator<?> parts = several.iterator(); parts.hasNext(); ) {
            list.add(parts.next());
        }
        return list;
    }

    private static boolean isWritten(Product value) {
        return value instanceof ExprId || value instanceof StructField || value instanceof AliasIdentifier
                || value instanceof CatalystIdentifier || value instanceof JoinType
                || value instanceof BucketSpec || value instanceof CatalogTable || value instanceof Partitioning
                || value instanceof FunctionResource || value instanceof BroadcastMode
                || value instanceof CatalogTableType || value instanceof CatalogStorageFormat
                || value.productIterator().exists(part -> part instanceof TreeNode);
    }

    private void product(Product value) {
        String[] names = names(value.getClass());
        boolean isWhole = value.productArity() == names.length;
        text.append("{\"product-class\":");
        string(value.getClass().getName());
        for (int i = 0; i < names.length; i++) {
            if (!ignored.contains(names[i])) {
                field(names[i], isWhole ? value.productElement(i) : declared(value, names[i]));
            }
        }
        text.append('}');
    }

    private static Object declared(Object value, String name) {
        try {
            Field field = value.getClass().getDeclaredField(name);
            field.setAccessible(true);
            return field.get(value);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Write the fields of a literal: all values are texts. */
    private void literal(Literal literal) {
        Object value = literal.value();
        DataType type = literal.dataType();
        boolean isTime = value instanceof Integer && type == DataTypes.DateType
                || value instanceof Long && type == DataTypes.TimestampType;
        field("value", value == null ? null : isTime ? literal.toString() : value.toString());
        field("dataType", type);
    }

    private static boolean writesItself(TreeNode<?> node) {
        return WRITES_ITSELF.computeIfAbsent(node.getClass(), type -> {
            try {
                return type.getMethod("jsonFields").getDeclaringClass() != TreeNode.class;
            } catch (NoSuchMethodException error) {
                throw new IllegalStateException(error);
            }
        });
    }

    private static String[] names(Class<?> type) {
        return NAMES.computeIfAbsent(type, each -> {
            return list(ScalaReflection$.MODULE$.getConstructorParameterNames(each)).toArray(String[]::new);
        });
    }

    private void storage(StorageLevel level) {
        text.append("{\"useDisk\":").append(level.useDisk()).append(",\"useMemory\":").append(level.useMemory())
                .append(",\"useOffHeap\":").append(level.useOffHeap())
                .append(",\"deserialized\":").append(level.deserialized())
                .append(",\"replication\":").append(level.replication()).append('}');
    }

    private void number(double value) {
        if (Double.isNaN(value) || Double.isInfinite(value)) {
            throw new IllegalStateException("JSON has no number " + value);
        }
        text.append(value);
    }

    private void string(String value) {
        text.append('"');
        for (int i = 0; i < value.length(); i++) {
            char each = value.charAt(i);
            if (each == '"' || each == '\\') {
                text.append('\\').append(each);
            } else if (each < ' ' || Character.isSurrogate(each)) {
                text.append(String.format("\\u%04x", (int) each));
            } else {
                text.append(each);
            }
        }
        text.append('"');
    }
}
